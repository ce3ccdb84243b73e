"""The catalogue of recipes: which skills have recipes, whether each can run, and how often it succeeded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar
from urllib.parse import quote

import sqlalchemy as sa

from habitus import sql
from habitus.errors import NotFound, did_you_mean
from habitus.events import Outcome
from habitus.journal.model import ItemUse
from habitus.journal.usage import build_use_of_code_or_recipe_run
from habitus.plain_data import INTERNAL
from habitus.recipes.execution import RecipePlan, RecipeProblem, compile_recipe_into_plan, get_recipe_tool_name
from habitus.skills import names, trees
from habitus.skills.formats import recipes_md
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill, build_skill_uses_url_path
from habitus.skills.library import Library
from habitus.skills.model import SkillState, Stage
from habitus.sql import UtcDateTime, build_primary_key_columns, build_required_columns, metadata
from habitus.use_counts import UsageByKey, UsageCounts, compute_count_changes, sum_counts_by_key

_COUNTED = ("used", "succeeded", "failed")


# A cache of what the journal counts, except `*_before`, which were counted before it kept each use. `place` is the
# skill's layer, or the folder of a project's layer.
recipe_counts = sa.Table(
    "recipe_counts",
    metadata,
    *build_primary_key_columns(sa.String, "place", "skill", "recipe"),
    *build_required_columns(sa.Integer, "used", "succeeded", "failed", default="0"),
    sa.Column("last_used", UtcDateTime),
    *(sa.Column(f"{name}_before", sa.Integer, nullable=False, server_default="0") for name in _COUNTED),
)
# Place, skill and recipe.
RecipeKey = tuple[str, str, str]


# More recipes would crowd the tool list of the prompt.
MAX_ACTIVE_RECIPES = 50


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
    plan: RecipePlan
    status: RecipeStatus
    reason: str = ""
    problems: tuple[RecipeProblem, ...] = ()
    counts: UsageCounts = field(default_factory=UsageCounts)
    # The key under which its uses are counted.
    key: RecipeKey = field(default=("", "", ""), metadata=INTERNAL)

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
    code_objection: Callable[[ListedSkill], str]
    # Names of the code tools that steps may call besides the built-in tools.
    code_tools: Callable[[LibrarySnapshot], Iterable[str]]
    clock: Callable[[], datetime]
    record_use: Callable[[ItemUse], None]
    # Who runs recipes outside a session.
    user: str
    # By a skill's tree hash.
    _read: dict[str, tuple[tuple[RecipePlan, tuple[RecipeProblem, ...]], ...]] = field(default_factory=dict)

    def list_recipes(self, *, at: LibrarySnapshot | None = None) -> tuple[SkillRecipe, ...]:
        """Return all recipes of the library with their status, sorted by name."""
        seen = at or self.library.snapshot()
        if not seen.skills_with_recipes:
            return ()
        counted = self._load_cached_recipe_counts()
        there = names.BUILT_IN_TOOLS | set(self.code_tools(seen))
        plans = [
            (item, made, problems)
            for item in seen.skills_with_recipes
            for made, problems in self._load_recipe_plans_of_skill(item)
        ]
        recipes = {made.callable_name for _, made, _ in plans}
        found: list[SkillRecipe] = []
        taken = set(there)
        for item, made, problems in plans:
            missing = _find_missing_tool_problems(made, there, recipes) if not problems else ()
            found.append(self._build_recipe(item, made, (*problems, *missing), counted, taken))
            taken.add(made.callable_name)
        return tuple(sorted(_mark_excess_recipes_as_archived(found), key=lambda recipe: (recipe.name, recipe.skill)))

    def get(self, name: str) -> SkillRecipe:
        """Return the recipe with this name, as people or as models write it; an active one if several share it."""
        wanted, found = get_recipe_tool_name(name), self.list_recipes()
        named = [recipe for recipe in found if recipe.name == wanted]
        if not named:
            near = did_you_mean(wanted, [recipe.name for recipe in found]) or "See 'habitus skills recipes list'."
            raise NotFound(f"There is no recipe '{name}'.", hint=near)
        return next((recipe for recipe in named if recipe.status is RecipeStatus.ACTIVE), named[0])

    def record_recipe_run(self, recipe: SkillRecipe, outcome: Outcome, *, turn: str = "", user: str = "") -> None:
        """Record a run of a recipe; an outage counts neither way."""
        layer = self.library.get_layer(recipe.layer).store.key
        self.record_use(
            build_use_of_code_or_recipe_run(
                skill=(recipe.skill, layer, recipe.version),
                stage=Stage.CHUNKS.value,
                part=recipe.plan.name,
                outcome=outcome.kind,
                turn=turn,
                user=user or self.user,
                at=self.clock(),
            )
        )

    def add_to_cached_recipe_counts(self, changes: UsageByKey) -> None:
        """Add to the cached counts of recipes."""
        self._add_counts(_sum_usage_counts_by_recipe(changes))

    def _add_counts(self, changes: Mapping[RecipeKey, UsageCounts]) -> None:
        table = recipe_counts.c

        def sum_up(new: sa.ColumnCollection[str, Any]) -> Mapping[str, Any]:
            last = sa.case((new.last_used.is_(None), table.last_used), else_=new.last_used)
            return {name: table[name] + new[name] for name in _COUNTED} | {"last_used": last}

        # A judgement or an erasure is no newer use.
        rows = [
            {"place": place, "skill": skill, "recipe": recipe, "last_used": plus.last_used if plus.used > 0 else None}
            | {name: getattr(plus, name) for name in _COUNTED}
            for (place, skill, recipe), plus in changes.items()
        ]
        with sql.write_transaction(self.engine) as conn:
            sql.upsert_rows(conn, recipe_counts, rows, sum_up)

    def _load_cached_recipe_counts(self, *, with_before: bool = True) -> dict[RecipeKey, UsageCounts]:
        with sql.read_transaction(self.engine) as conn:
            rows = conn.execute(sa.select(recipe_counts)).mappings().all()
        return {
            (row["place"], row["skill"], row["recipe"]): UsageCounts(
                **{name: row[name] - (0 if with_before else row[f"{name}_before"]) for name in _COUNTED},
                last_used=row["last_used"],
            )
            for row in rows
        }

    def find_recipes_with_stale_counts(self, facts: UsageByKey) -> list[str]:
        """Return the recipes whose cached counts differ from those of the journal, as skill/recipe."""
        return [f"{skill}/{recipe}" for _, skill, recipe in self._compute_differences_from_journal_counts(facts)]

    def correct_cached_counts_from_journal(self, facts: UsageByKey) -> None:
        """Make the cached counts equal to those of the journal."""
        self._add_counts(self._compute_differences_from_journal_counts(facts))

    def _compute_differences_from_journal_counts(self, facts: UsageByKey) -> dict[RecipeKey, UsageCounts]:
        """Return by how much the counts of the journal exceed the cached ones, where they differ."""
        cached = self._load_cached_recipe_counts(with_before=False)
        return compute_count_changes(_sum_usage_counts_by_recipe(facts), cached)

    def _load_recipe_plans_of_skill(
        self, item: ListedSkill
    ) -> tuple[tuple[RecipePlan, tuple[RecipeProblem, ...]], ...]:
        if item.tree_hash not in self._read:
            file = self.library.read_tree(f"{item.name}@{item.layer}").get(trees.CHUNKS_FILE)
            self._read[item.tree_hash] = parse_recipe_plans(file.content if file is not None and file.content else b"")
        return self._read[item.tree_hash]

    def _build_recipe(
        self,
        item: ListedSkill,
        made: RecipePlan,
        problems: tuple[RecipeProblem, ...],
        counted: dict[RecipeKey, UsageCounts],
        taken: set[str],
    ) -> SkillRecipe:
        assert item.summary is not None
        status, reason = self._determine_status(item, made, problems, taken)
        key = (self.library.get_layer(item.layer).trust_root or item.layer, item.name, made.name)
        address = build_skill_uses_url_path(item.layer, item.name)
        return SkillRecipe(
            skill=item.name,
            layer=item.layer,
            version=item.summary.version,
            plan=made,
            status=status,
            reason=reason,
            problems=problems,
            counts=replace(counted.get(key, UsageCounts()), address=f"{address}?recipe={quote(made.name)}"),
            key=key,
        )

    def _determine_status(
        self, item: ListedSkill, made: RecipePlan, problems: tuple[RecipeProblem, ...], taken: set[str]
    ) -> tuple[RecipeStatus, str]:
        if problems:
            return RecipeStatus.BROKEN, str(problems[0])
        if item.state is not SkillState.OK:
            return RecipeStatus.OFF, f"{item.state.value}: {item.reason}"
        if reason := self.library.describe_unreviewed_origin(item) or self.library.describe_missing_trust(item):
            return RecipeStatus.INERT, f"{reason}; trust it as it is: habitus review trust {item.name}"
        if made.tools & names.CODE_RUNNERS and (objection := self.code_objection(item)):
            return RecipeStatus.INERT, f"it runs code: {objection}"
        if made.callable_name in taken:
            return RecipeStatus.TAKEN, f"another tool goes by '{made.callable_name}'"
        return RecipeStatus.ACTIVE, ""


def _sum_usage_counts_by_recipe(counts: UsageByKey) -> dict[RecipeKey, UsageCounts]:
    """Return the counts of recipes over all versions, of which fewer are stored than of stages."""
    return sum_counts_by_key(
        (
            (_get_place_of_layer_key(key.layer), key.item, key.part),
            UsageCounts(**{name: getattr(one, name) for name in _COUNTED}, last_used=one.last_used),
        )
        for key, one in counts.items()
        if key.part
    )


def _get_place_of_layer_key(layer: str) -> str:
    """Return the `place` of a layer, given the key of its store."""
    kind, _, root = layer.partition(":")
    return root if kind == "project" else kind


def _find_missing_tool_problems(
    made: RecipePlan, there: Collection[str], recipes: Collection[str]
) -> tuple[RecipeProblem, ...]:
    """Return a problem for each step whose tool does not exist or is a recipe."""
    # Checked before the run, because a late failure would leave the earlier steps done.
    steps = (step for steps in (made.steps, *made.branches.values()) for step in steps)
    return tuple(
        RecipeProblem(line=step.line, message=f"it calls '{step.tool}', {_explain_missing_tool(step.tool, recipes)}")
        for step in steps
        if step.tool and step.tool not in there
    )


def _explain_missing_tool(tool: str, recipes: Collection[str]) -> str:
    if get_recipe_tool_name(tool) in recipes:
        return "a recipe, and recipes can't call recipes; write its steps here"
    return "and there is no such tool"


def _mark_excess_recipes_as_archived(found: Sequence[SkillRecipe]) -> list[SkillRecipe]:
    """Archive the active recipes beyond the limit: those that failed most often go first, before new ones."""

    def usefulness(recipe: SkillRecipe) -> tuple[float, float, str]:
        counts = recipe.counts
        last = counts.last_used.timestamp() if counts.last_used else 0.0
        return (1 + counts.succeeded) / (2 + counts.succeeded + counts.failed), last, recipe.name

    active = sorted((one for one in found if one.status is RecipeStatus.ACTIVE), key=usefulness, reverse=True)
    out = {recipe.key for recipe in active[MAX_ACTIVE_RECIPES:]}
    reason = f"{MAX_ACTIVE_RECIPES} others have served better; it is back when one of them goes"
    return [replace(one, status=RecipeStatus.ARCHIVED, reason=reason) if one.key in out else one for one in found]


def parse_recipe_plans(content: bytes) -> tuple[tuple[RecipePlan, tuple[RecipeProblem, ...]], ...]:
    """Parse the recipes of a chunks.md, each with its problems."""
    notes = DiagnosticCollector("chunks.md")
    made = [compile_recipe_into_plan(recipe) for recipe in recipes_md.parse_recipes(content, notes)]
    # A section that can't be parsed has no plan, only a problem.
    unread = [
        (RecipePlan(name="chunks", description=""), (RecipeProblem(line=0, message=note.message),))
        for note in notes.diagnostics
    ]
    return (*made, *unread)
