"""Recipes without an agent: the catalogue of a home, which recipes can run, and what keeps one from running."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.app.home import Home
from habitus.errors import Invalid
from habitus.files import Tree
from habitus.recipes.catalogue import RecipeCatalogue, RecipeStatus, SkillRecipe, parse_recipe_plans
from habitus.skills import trees
from habitus.skills.model import Diagnostic


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeCheckResult:
    """The problems of a recipe, in its text and with its tools."""

    name: str
    skill: str
    problems: tuple[str, ...]


def open_recipe_catalogue(home: Home) -> RecipeCatalogue:
    """Open the recipe catalogue of a home."""
    return RecipeCatalogue(
        library=home.skills,
        engine=home.shared,
        # Lambdas, because opening the tools loads the sandbox, which most commands don't need.
        code_objection=lambda item: home.tools.objection(item),
        code_tools=lambda seen: (tool.callable_name for tool in home.tools.active(at=seen)),
        clock=home.clock,
        record_use=lambda use: home.journal.record_use(use),
        user=home.settings.user,
    )


def check_recipes(recipes: RecipeCatalogue, names: tuple[str, ...] = ()) -> list[RecipeCheckResult]:
    """Return every recipe, or those named, with the problems that keep it from running."""
    wanted = [recipes.get(name) for name in names] or recipes.list_recipes()
    return [RecipeCheckResult(name=one.name, skill=one.skill, problems=_list_recipe_problems(one)) for one in wanted]


def _list_recipe_problems(recipe: SkillRecipe) -> tuple[str, ...]:
    reason = [recipe.reason] if recipe.status is not RecipeStatus.ACTIVE and not recipe.problems else []
    return (*map(str, recipe.problems), *reason)


def lint_recipes(name: str, tree: Tree) -> list[Diagnostic]:
    """Return the problems in the text of a skill's recipes, line by line."""
    file = tree.get(trees.CHUNKS_FILE)
    found = parse_recipe_plans(file.content) if file is not None and file.content else ()
    hint = "Correct it; 'habitus skills recipes test' checks all of them, and whether their tools are there."
    return [
        Diagnostic(
            file=f"{name}/{trees.CHUNKS_FILE}", message=f"chunks.md, recipe '{made.name}', {problem}.", hint=hint
        )
        for made, problems in found
        for problem in problems
    ]


def get_runnable_recipe(recipes: RecipeCatalogue, name: str) -> SkillRecipe:
    """Return the recipe. Raises `Invalid` if it can't run."""
    recipe = recipes.get(name)
    if recipe.status is not RecipeStatus.ACTIVE:
        raise Invalid(f"The recipe '{recipe.name}' can't run: {recipe.reason}.", hint="")
    return recipe
