"""The catalogue of recipes: which skills have recipes, whether each can run, and how often it succeeded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

import sqlalchemy as sa

from habitus import sql
from habitus.errors import NotFound, did_you_mean
from habitus.events import Outcome, OutcomeKind
from habitus.plain_data import INTERNAL
from habitus.recipes.execution import Plan, Problem, plan, tool_name_of
from habitus.skills import names, trees
from habitus.skills.formats import recipes_md
from habitus.skills.formats.foreign_values import Notes
from habitus.skills.layers.listing import Listed, Snapshot
from habitus.skills.library import Library
from habitus.skills.model import Stage, State
from habitus.sql import Utc, metadata


@dataclass(frozen=True, slots=True)
class RecipeCounts:
    """The counts of one recipe, in the order of the table's columns."""

    used: int = 0
    succeeded: int = 0
    failed: int = 0
    last_used: datetime | None = None


# `place` is the skill's layer, or the folder of a project's layer.
recipe_counts = sa.Table(
    "recipe_counts",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("skill", sa.String, primary_key=True),
    sa.Column("recipe", sa.String, primary_key=True),
    sa.Column("used", sa.Integer, nullable=False, server_default="0"),
    sa.Column("succeeded", sa.Integer, nullable=False, server_default="0"),
    sa.Column("failed", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_used", Utc),
)
# Place, skill and recipe.
Key = tuple[str, str, str]


# More recipes would crowd the tool list of the prompt.
MOST_ACTIVE = 50


class RecipeStatus(StrEnum):
    """Whether a recipe is offered, or what prevents it."""

    ACTIVE = "active"
    # Can't run as it is written.
    BROKEN = "broken"
    # Not trusted by a person yet.
    INERT = "inert"
    # Its skill is off.
    OFF = "off"
    # Another tool or recipe has its name.
    TAKEN = "taken"
    # Enough other recipes have served better.
    ARCHIVED = "archived"


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillRecipe:
    """A recipe of a skill, with the first reason why it is not offered."""

    IN_JSON: ClassVar = ("name",)

    skill: str
    layer: str
    version: int
    plan: Plan
    status: RecipeStatus
    reason: str = ""
    problems: tuple[Problem, ...] = ()
    counts: RecipeCounts = field(default_factory=RecipeCounts)
    # The key under which its uses are counted.
    key: Key = field(default=("", "", ""), metadata=INTERNAL)

    @property
    def name(self) -> str:
        return self.plan.callable_name


@dataclass(kw_only=True, eq=False)
class RecipeCatalogue:
    """Lists, finds and counts the recipes of a library."""

    library: Library
    # The database with the usage counts.
    engine: sa.Engine
    # Returns why a skill's code is not trusted; asked only for recipes that run code.
    code_objection: Callable[[Listed], str]
    # Names of the code tools that steps may call besides the built-in tools.
    code_tools: Callable[[Snapshot], Iterable[str]]
    clock: Callable[[], datetime]
    # By a skill's tree hash.
    _read: dict[str, tuple[tuple[Plan, tuple[Problem, ...]], ...]] = field(default_factory=dict)

    def all(self, *, at: Snapshot | None = None) -> tuple[SkillRecipe, ...]:
        """Return all recipes of the library with their status, sorted by name."""
        seen = at or self.library.snapshot()
        if not seen.with_recipes:
            return ()
        counted = self._counts()
        there = names.BUILT_IN_TOOLS | set(self.code_tools(seen))
        found: list[SkillRecipe] = []
        taken = set(there)
        for item in seen.with_recipes:
            for made, problems in self._plans(item):
                missing = _missing(made, there) if not problems else ()
                found.append(self._recipe(item, made, (*problems, *missing), counted, taken))
                taken.add(made.callable_name)
        return tuple(sorted(_the_most_useful(found), key=lambda recipe: (recipe.name, recipe.skill)))

    def get(self, name: str) -> SkillRecipe:
        """Return the recipe with this name, as people or as models write it; an active one if several share it."""
        wanted, found = tool_name_of(name), self.all()
        named = [recipe for recipe in found if recipe.name == wanted]
        if not named:
            near = did_you_mean(wanted, [recipe.name for recipe in found]) or "See 'habitus recipes list'."
            raise NotFound(f"There is no recipe '{name}'.", hint=near)
        return next((recipe for recipe in named if recipe.status is RecipeStatus.ACTIVE), named[0])

    def ran(self, recipe: SkillRecipe, outcome: Outcome) -> None:
        """Count a run of a recipe; an outage counts neither way."""
        named = dict(zip(("place", "skill", "recipe"), recipe.key, strict=True))
        table = recipe_counts.c
        with sql.writing(self.engine, lock="recipe_counts") as connection:
            sql.insert_missing(connection, recipe_counts, [named])
            mine = [table[name] == value for name, value in named.items()]
            counted = {
                "used": table.used + 1,
                "succeeded": table.succeeded + (outcome.kind is OutcomeKind.OK),
                "failed": table.failed + (outcome.kind is OutcomeKind.FAILED),
                "last_used": self.clock(),
            }
            connection.execute(recipe_counts.update().where(*mine).values(counted))
        succeeded = {"ok": True, "failed": False}.get(outcome.kind.value)
        self.library.count_use(f"{recipe.skill}@{recipe.layer}", stage=Stage.CHUNKS, succeeded=succeeded)

    def _counts(self) -> dict[Key, RecipeCounts]:
        with sql.reading(self.engine) as connection:
            rows = connection.execute(sa.select(recipe_counts)).all()
        return {(place, skill, recipe): RecipeCounts(*counts) for place, skill, recipe, *counts in rows}

    def _plans(self, item: Listed) -> tuple[tuple[Plan, tuple[Problem, ...]], ...]:
        if item.tree_hash not in self._read:
            file = self.library.tree(f"{item.name}@{item.layer}").get(trees.CHUNKS_FILE)
            self._read[item.tree_hash] = plans(file.content if file is not None and file.content else b"")
        return self._read[item.tree_hash]

    def _recipe(
        self,
        item: Listed,
        made: Plan,
        problems: tuple[Problem, ...],
        counted: dict[Key, RecipeCounts],
        taken: set[str],
    ) -> SkillRecipe:
        assert item.summary is not None
        status, reason = self._status(item, made, problems, taken)
        key = (self.library.layer(item.layer).trust_root or item.layer, item.name, made.name)
        return SkillRecipe(
            skill=item.name,
            layer=item.layer,
            version=item.summary.version,
            plan=made,
            status=status,
            reason=reason,
            problems=problems,
            counts=counted.get(key, RecipeCounts()),
            key=key,
        )

    def _status(
        self, item: Listed, made: Plan, problems: tuple[Problem, ...], taken: set[str]
    ) -> tuple[RecipeStatus, str]:
        if problems:
            return RecipeStatus.BROKEN, str(problems[0])
        if item.state is not State.OK:
            return RecipeStatus.OFF, f"{item.state.value}: {item.reason}"
        if reason := self.library.unreviewed_origin(item) or self.library.untrusted_notice(item):
            return RecipeStatus.INERT, f"{reason}; trust it as it is: habitus trust {item.name}"
        if made.tools & names.CODE_RUNNERS and (objection := self.code_objection(item)):
            return RecipeStatus.INERT, f"it runs code: {objection}"
        if made.callable_name in taken:
            return RecipeStatus.TAKEN, f"another tool goes by '{made.callable_name}'"
        return RecipeStatus.ACTIVE, ""


def _missing(made: Plan, there: Collection[str]) -> tuple[Problem, ...]:
    """Return a problem for each step whose tool does not exist."""
    # Checked before the run, because a late failure would leave the earlier steps done.
    steps = (step for steps in (made.steps, *made.branches.values()) for step in steps)
    return tuple(
        Problem(line=step.line, what=f"it calls '{step.tool}', and there is no such tool")
        for step in steps
        if step.tool and step.tool not in there
    )


def _the_most_useful(found: Sequence[SkillRecipe]) -> list[SkillRecipe]:
    """Archive the active recipes beyond the limit: those that failed most often go first, before new ones."""

    def usefulness(recipe: SkillRecipe) -> tuple[float, float, str]:
        counts = recipe.counts
        last = counts.last_used.timestamp() if counts.last_used else 0.0
        return (1 + counts.succeeded) / (2 + counts.succeeded + counts.failed), last, recipe.name

    active = sorted((one for one in found if one.status is RecipeStatus.ACTIVE), key=usefulness, reverse=True)
    out = {recipe.key for recipe in active[MOST_ACTIVE:]}
    reason = f"{MOST_ACTIVE} others have served better; it is back when one of them goes"
    return [replace(one, status=RecipeStatus.ARCHIVED, reason=reason) if one.key in out else one for one in found]


def plans(content: bytes) -> tuple[tuple[Plan, tuple[Problem, ...]], ...]:
    """Parse the recipes of a chunks.md, each with its problems."""
    notes = Notes("chunks.md")
    made = [plan(recipe) for recipe in recipes_md.parse(content, notes)]
    # A section that can't be parsed has no plan, only a problem.
    unread = [(Plan(name="chunks", description=""), (Problem(line=0, what=note.what),)) for note in notes.found]
    return (*made, *unread)
