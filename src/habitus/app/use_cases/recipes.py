"""Recipes of skills: list them, show one, run one as a model would, and check them without running."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Annotated, Any

from habitus.access import Access
from habitus.agent.user_input import SubmittedRequest
from habitus.app.conversations.hosting import HostDrivenConversations, HostTurnRequest
from habitus.app.home import Home
from habitus.app.library import recipes
from habitus.app.use_cases.declaration import argument, json_argument, option, use_case
from habitus.errors import NotFound
from habitus.events import ToolResult
from habitus.recipes.catalogue import SkillRecipe
from habitus.recipes.execution import StepRun, fill_parameter_defaults, preview_planned_calls


@dataclass(frozen=True, kw_only=True)
class ListRecipesResult:
    recipes: Sequence[SkillRecipe]


@use_case("skills recipes list", route="GET /skills/{name}/recipes", access=Access.OPEN_READING)
def list_recipes(
    home: Home, name: Annotated[str | None, option("Only those of this skill.", "--skill")] = None
) -> ListRecipesResult:
    """List the recipes with their skill, status and results so far."""
    skill = None if name is None else home.skills.find(name).name
    return ListRecipesResult(recipes=[one for one in home.recipes.list_recipes() if skill in (None, one.skill)])


@use_case("skills recipes show", access=Access.OPEN_READING, example={"recipe": "monthly-report"})
def show_recipe(home: Home, recipe: Annotated[str, argument("A recipe.", metavar="NAME")]) -> SkillRecipe:
    """Show one recipe: its parameters, its steps, and its results so far."""
    return home.recipes.get(recipe)


@dataclass(frozen=True, kw_only=True)
class RunRecipeRequest:
    recipe: Annotated[str, argument("A recipe.", metavar="NAME")]
    payload: Annotated[
        dict[str, Any], json_argument("Its parameters as JSON, a file with it, or '-'.", metavar="PARAMS")
    ] = field(default_factory=dict)
    name: Annotated[str | None, option("Fail unless the recipe belongs to this skill.", "--skill")] = None


@use_case(
    "skills recipes run",
    route="POST /skills/{name}/recipes/{recipe}",
    access=Access.ADMIN,
    example={"recipe": "monthly-report", "payload": {"month": "2026-10"}},
)
def run_recipe(home: Home, request: RunRecipeRequest) -> ToolResult:
    """Run a recipe through the tools of a session, in a turn of its own that is recorded. Exit code 1 if it fails."""
    recipe = _get_runnable_recipe(home, request)
    # Fails on a missing parameter before a turn is opened for the run.
    fill_parameter_defaults(recipe.plan, request.payload)
    asking = SubmittedRequest(text=f"Run the recipe {recipe.plan.name}.")
    with (
        closing(HostDrivenConversations(home)) as hosting,
        hosting.open_turn(HostTurnRequest(user_input=asking, user=home.get_user(), source_type="cli")) as turn,
    ):
        result = turn.run(recipe.name, json.dumps(request.payload, ensure_ascii=False, default=str))
        turn.done(result.content, ok=result.outcome.is_ok, reason=result.outcome.reason)
    return result


@dataclass(frozen=True, kw_only=True)
class RecipeRunPreview:
    steps: Sequence[StepRun]


def preview_recipe_run(home: Home, request: RunRecipeRequest) -> RecipeRunPreview:
    """Return the calls that a run would make."""
    return RecipeRunPreview(steps=preview_planned_calls(_get_runnable_recipe(home, request).plan, request.payload))


def _get_runnable_recipe(home: Home, request: RunRecipeRequest) -> SkillRecipe:
    """Return the recipe. Raises `NotFound` if it belongs to another skill than the one given."""
    recipe = recipes.get_runnable_recipe(home.recipes, request.recipe)
    if request.name is not None and home.skills.find(request.name).name != recipe.skill:
        raise NotFound(f"'{request.name}' has no recipe '{request.recipe}'.", hint=f"'{recipe.skill}' has.")
    return recipe


@dataclass(frozen=True, kw_only=True)
class CheckRecipesResult:
    recipes: Sequence[recipes.RecipeCheckResult]

    @property
    def is_failed(self) -> bool:
        """Whether a recipe can't run."""
        return any(one.problems for one in self.recipes)


@use_case("skills recipes test", access=Access.OPEN_READING, example={"names": ("monthly-report",)})
def check_recipes(
    home: Home, names: Annotated[tuple[str, ...], argument("Recipes; default is all.")] = ()
) -> CheckRecipesResult:
    """Check recipes without running them: their syntax, line by line, and whether their tools exist.

    Exit code 1 if one can't run.
    """
    return CheckRecipesResult(recipes=recipes.check_recipes(home.recipes, names))
