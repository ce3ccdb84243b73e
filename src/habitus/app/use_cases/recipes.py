"""Recipes of skills: list them, show one, run one as a model would, and check them without running."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from habitus.access import Access
from habitus.agent.user_input import Asking
from habitus.app.conversations.hosting import Hosting, HostRequest
from habitus.app.home import Home
from habitus.app.library import recipes
from habitus.app.library.recipes import CheckedRecipe
from habitus.app.use_cases.declaration import argument, json_argument, option, use_case
from habitus.errors import NotFound
from habitus.events import ToolResult
from habitus.recipes.catalogue import SkillRecipe
from habitus.recipes.execution import StepRun, fill_defaults, foreseen


@dataclass(frozen=True, kw_only=True)
class RecipeList:
    name: str | None = option("Only those of this skill.", "--skill")


@dataclass(frozen=True, kw_only=True)
class RecipesFound:
    recipes: Sequence[SkillRecipe]


@use_case("recipes list", route="GET /skills/{name}/recipes", access=Access.OPEN_READING, example=RecipeList())
def list_recipes(home: Home, wanted: RecipeList) -> RecipesFound:
    """List the recipes with their skill, status and results so far."""
    skill = None if wanted.name is None else home.skills.find(wanted.name).name
    return RecipesFound(recipes=[one for one in home.recipes.all() if skill in (None, one.skill)])


@dataclass(frozen=True, kw_only=True)
class OneRecipe:
    recipe: str = argument("A recipe.", metavar="NAME")


@use_case("recipes show", access=Access.OPEN_READING, example=OneRecipe(recipe="monthly-report"))
def show(home: Home, wanted: OneRecipe) -> SkillRecipe:
    """Show one recipe: its parameters, its steps, and its results so far."""
    return home.recipes.get(wanted.recipe)


@dataclass(frozen=True, kw_only=True)
class RecipeRun:
    recipe: str = argument("A recipe.", metavar="NAME")
    payload: dict[str, Any] = json_argument("Its parameters as JSON, a file with it, or '-'.", metavar="PARAMS")
    name: str | None = option("Refuse unless it is one of this skill.", "--skill")


@use_case(
    "recipes run",
    route="POST /skills/{name}/recipes/{recipe}",
    access=Access.ADMIN,
    example=RecipeRun(recipe="monthly-report", payload={"month": "2026-10"}),
)
def run(home: Home, wanted: RecipeRun) -> ToolResult:
    """Run a recipe through the tools of a session, in a turn of its own that is recorded. Exit code 1 if it fails."""
    recipe = _runnable(home, wanted)
    # Fails on a missing parameter before a turn is opened for the run.
    fill_defaults(recipe.plan, wanted.payload)
    asking = Asking(text=f"Run the recipe {recipe.plan.name}.")
    with (
        closing(Hosting(home)) as hosting,
        hosting.turn(HostRequest(asking=asking, user=home.user(), source_type="cli")) as turn,
    ):
        result = turn.run(recipe.name, json.dumps(wanted.payload, ensure_ascii=False, default=str))
        turn.done(result.content, ok=result.outcome.is_ok, reason=result.outcome.reason)
    return result


@dataclass(frozen=True, kw_only=True)
class RecipeSteps:
    steps: Sequence[StepRun]


def plan_run(home: Home, wanted: RecipeRun) -> RecipeSteps:
    """Return the calls that a run would make."""
    return RecipeSteps(steps=foreseen(_runnable(home, wanted).plan, wanted.payload))


def _runnable(home: Home, wanted: RecipeRun) -> SkillRecipe:
    """Return the recipe. Raises `NotFound` if it belongs to another skill than the one given."""
    recipe = recipes.runnable(home.recipes, wanted.recipe)
    if wanted.name is not None and home.skills.find(wanted.name).name != recipe.skill:
        raise NotFound(f"'{wanted.name}' has no recipe '{wanted.recipe}'.", hint=f"'{recipe.skill}' has.")
    return recipe


@dataclass(frozen=True, kw_only=True)
class RecipeNames:
    names: tuple[str, ...] = argument("Recipes; all without.", default=())


@dataclass(frozen=True, kw_only=True)
class CheckedRecipes:
    recipes: Sequence[CheckedRecipe]

    @property
    def is_failed(self) -> bool:
        """Whether a recipe can't run."""
        return any(one.problems for one in self.recipes)


@use_case("recipes test", access=Access.OPEN_READING, example=RecipeNames(names=("monthly-report",)))
def check(home: Home, wanted: RecipeNames) -> CheckedRecipes:
    """Check recipes without running them: their syntax, line by line, and whether their tools exist.

    Exit code 1 if one can't run.
    """
    return CheckedRecipes(recipes=recipes.check_recipes(home.recipes, wanted.names))
