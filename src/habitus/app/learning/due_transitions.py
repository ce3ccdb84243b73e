"""Decide what evidence and use lead to: a proposal for a skill, the archive for a harmful lesson.

`habitus learn curate` carries these transitions out; items that earned their next stage go to `climbing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from habitus.app.home import Home
from habitus.app.learning.mining import MAX_TURNS
from habitus.errors import HabitusError, Refused
from habitus.events import AgentEvent, EventKind
from habitus.evidence.findings import ItemFinding, ItemVerdict, VersionRollback, is_item_ignored
from habitus.evidence.model import EvidenceItem, ItemKind
from habitus.journal.model import TurnFilter
from habitus.journal.usage import JudgedUse, UseVerdict
from habitus.memory.model import Engram
from habitus.recipes.catalogue import RecipeStatus, SkillRecipe
from habitus.skills import trees
from habitus.skills.layers.layer import format_skill_address
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.lifecycle import (
    LifecycleTransitionKind,
    UtilityAssessment,
    decide_lesson_transition,
    decide_transition,
    is_failing,
    is_reliable,
)
from habitus.skills.model import ActorKind, Author, SkillState, Stage
from habitus.skills.review import Proposal, ProposalAction, SkillChange
from habitus.use_counts import UsageCounts, UseKey

MAX_LESSONS = 10_000
# Turns that a reason names.
_MAX_NAMED_TURNS = 5
# This many failures in a row after an edit propose to roll it back.
_FAILURES_AFTER_EDIT = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class DueTransition:
    """A transition that an item is due for, and why; `to` is the version to roll back to."""

    item: EvidenceItem
    transition: LifecycleTransitionKind
    reason: str
    to: int = 0


class _SkillsAndRecipes:
    """The skills and recipes in one snapshot of the library."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._seen = home.skills.snapshot()
        self._recipes = {recipe.name: recipe for recipe in home.recipes.list_recipes(at=self._seen)}

    def find_skill(self, item: EvidenceItem) -> ListedSkill | None:
        """Return the skill that the item is a version, code or recipe of; None if it was removed."""
        recipe = self._recipes.get(item.name) if item.kind is ItemKind.RECIPE else None
        if item.kind is ItemKind.RECIPE and recipe is None:
            return None
        try:
            return self.home.skills.find(recipe.skill if recipe else item.name, at=self._seen)
        except HabitusError:
            return None

    def count_uses(self, found: ItemFinding, skill: ListedSkill) -> UsageCounts:
        """Return the outcomes of the uses of this version.

        Empty for a tool, whose calls count for its health instead.
        """
        match found.item.kind:
            case ItemKind.SKILL if found.estimate.used:
                counted = self.home.skills.read_counters(skill, version=found.item.version)
                return counted.get(Stage.STEPS, UsageCounts())
            case ItemKind.RECIPE:
                return _count_runs(self._recipes[found.item.name])
            case _:
                return UsageCounts()

    def list_unoffered_recipes(self, found: Iterable[EvidenceItem]) -> Iterator[tuple[EvidenceItem, UsageCounts]]:
        """Yield the active recipes that were never offered, with the outcomes of their runs by hand or by name."""
        known = set(found)
        for recipe in self._recipes.values():
            item = EvidenceItem(kind=ItemKind.RECIPE, name=recipe.name, version=recipe.version)
            if recipe.status is RecipeStatus.ACTIVE and item not in known:
                yield item, _count_runs(recipe)


def _count_runs(recipe: SkillRecipe) -> UsageCounts:
    return UsageCounts(succeeded=recipe.counts.succeeded, failed=recipe.counts.failed)


def list_due_transitions(home: Home) -> tuple[DueTransition, ...]:
    """Return the transitions that today's evidence on active items leads to."""
    (found, by_request), now = home.evidence.compute_findings_and_chosen_items(), _SkillsAndRecipes(home)
    back = {one.item: one for one in found.rollbacks}
    lessons = {(lesson.id, lesson.version): lesson for lesson in home.memory.list_lessons(limit=MAX_LESSONS)}
    steps = []
    for one in found.items:
        is_chosen = (one.item.kind, one.item.name) in by_request
        if _is_lesson_item(one.item):
            steps.append(_decide_lesson_transition(home, one, lessons.get((one.item.name, one.item.version))))
        else:
            steps.append(_decide_skill_transition(now, one, back.get(one.item), is_chosen))
    steps += [
        _decide_recipe_transition(now, item, runs)
        for item, runs in now.list_unoffered_recipes(one.item for one in found.items)
    ]
    return tuple(step for step in steps if step is not None)


def _is_lesson_item(item: EvidenceItem) -> bool:
    return item.kind is ItemKind.LESSON


def _decide_lesson_transition(home: Home, found: ItemFinding, lesson: Engram | None) -> DueTransition | None:
    if lesson is None:
        return None
    counted = home.journal.count_lesson_requests(lesson.id)
    uses = UsageCounts(succeeded=counted.succeeded, failed=counted.failed)
    worth = _assess_utility(found, uses)
    is_verified = lesson.verified and lesson.kind.is_lesson
    then = decide_lesson_transition(worth, is_verified=is_verified, threshold=home.settings.reliable)
    if then is LifecycleTransitionKind.STAY:
        return None
    good = TurnFilter(lesson=lesson.id, verdict=UseVerdict.SUCCEEDED)
    turns = [turn.id for turn in reversed(home.journal.find_turns(good, limit=_MAX_NAMED_TURNS))]
    judged = uses.succeeded + uses.failed
    shown = (
        f"It was verified by a trial, and {uses.succeeded} of the {judged} judged requests it was shown for succeeded"
    )
    return DueTransition(
        item=found.item,
        transition=then,
        reason=_describe_judgement(worth, found) or f"{shown}{_name_latest_turns(turns)}.",
    )


def _decide_skill_transition(
    now: _SkillsAndRecipes, found: ItemFinding, back: VersionRollback | None, is_chosen: bool
) -> DueTransition | None:
    """Decide about the version that is offered today; a read-only layer has no version to roll back to.

    An item that only stood on menus hardly changes a session, however much it helps when needed, so it is not useless.
    """
    item, skill, home = found.item, now.find_skill(found.item), now.home
    if skill is None or skill.summary is None or (skill.state, skill.summary.version) != (SkillState.OK, item.version):
        return None
    if not home.skills.get_layer(skill.layer).can_write:
        back = None
    uses = now.count_uses(found, skill)
    worth = _assess_utility(
        found, uses, is_chosen=is_chosen or is_item_ignored(found.estimate), is_worse=back is not None
    )
    then = decide_transition(worth, threshold=home.settings.reliable)
    is_of_skill = item.kind is ItemKind.SKILL or then is not LifecycleTransitionKind.RETIRE or worth.does_harm
    # Below a failing recipe there are steps that may still serve, so the skill is not retired for it.
    if then is LifecycleTransitionKind.STAY or not is_of_skill:
        return None
    if back is not None:
        return DueTransition(item=item, transition=then, reason=back.reason, to=back.to.version)
    went, count = ("failed", uses.failed) if then is LifecycleTransitionKind.RETIRE else ("served", uses.succeeded)
    if reason := _describe_judgement(worth, found):
        return DueTransition(item=item, transition=then, reason=reason)
    turns = _list_turns_with_outcome(home, item, skill, is_good=then is not LifecycleTransitionKind.RETIRE)
    counted = (
        f"It {went} in {count} of the {uses.succeeded + uses.failed} uses that were judged{_name_latest_turns(turns)}."
    )
    return DueTransition(item=item, transition=then, reason=counted)


def _decide_recipe_transition(now: _SkillsAndRecipes, item: EvidenceItem, runs: UsageCounts) -> DueTransition | None:
    """Decide about a recipe of which only its runs are known: they let it climb, nothing else."""
    if not is_reliable(runs, now.home.settings.reliable):
        return None
    past = now.home.journal.iterate_past_turns(limit=MAX_TURNS)
    turns = [turn.id for turn in past if any(_read_tool_result(event) == (item.name, True) for event in turn.events)]
    judged = runs.succeeded + runs.failed
    reason = f"It served in {runs.succeeded} of the {judged} uses that were judged{_name_latest_turns(turns)}."
    return DueTransition(item=item, transition=LifecycleTransitionKind.CLIMB, reason=reason)


def _list_turns_with_outcome(home: Home, item: EvidenceItem, skill: ListedSkill, *, is_good: bool) -> list[str]:
    """Return the stored turns in which the item succeeded, or failed."""
    if item.kind is ItemKind.SKILL:
        wanted_verdict = UseVerdict.SUCCEEDED if is_good else UseVerdict.FAILED
        used = home.journal.load_skill_uses(skill.name, home.skills.get_layer(skill.layer).store.key)
        return [
            one.use.turn
            for one in used
            if one.verdict is wanted_verdict and (one.use.version, one.use.stage) == (item.version, Stage.STEPS.value)
        ]
    kept = [one.unit for one in home.journal.load_exposures([item.name]) if one.exposure.is_used]
    turns = [turn for unit in dict.fromkeys(kept[-_MAX_NAMED_TURNS:]) for turn in home.journal.list_session_turns(unit)]
    wanted = (item.name, is_good)
    return [turn.id for turn in turns if any(_read_tool_result(event) == wanted for event in turn.events)]


def _read_tool_result(event: AgentEvent) -> tuple[object, object]:
    is_result = event.kind is EventKind.TOOL_RESULT
    return (event.detail.get("name"), event.detail.get("success")) if is_result else ("", None)


def _name_latest_turns(turns: Sequence[str]) -> str:
    """Name the latest turns; empty if none is stored any more."""
    more = f" and {len(turns) - _MAX_NAMED_TURNS} before" if len(turns) > _MAX_NAMED_TURNS else ""
    return f": turn{'s' if len(turns) > 1 else ''} {', '.join(turns[-_MAX_NAMED_TURNS:])}{more}" if turns else ""


def _assess_utility(
    found: ItemFinding, uses: UsageCounts, *, is_chosen: bool = True, is_worse: bool = False
) -> UtilityAssessment:
    verdict = found.decision.verdict
    return UtilityAssessment(
        counters=uses,
        helps=verdict is ItemVerdict.PROMOTE,
        is_useless=verdict is ItemVerdict.DEGRADE and is_chosen,
        does_harm=verdict is ItemVerdict.RETIRE,
        is_worse=is_worse,
    )


def _describe_judgement(worth: UtilityAssessment, found: ItemFinding) -> str:
    """Return the reason of the judgement, if the evidence decided rather than the counts."""
    return found.decision.reason if worth.helps or worth.is_useless or worth.does_harm else ""


def apply_transitions(home: Home, steps: Sequence[DueTransition]) -> Iterator[tuple[DueTransition, Proposal | None]]:
    """Propose the changes of skills and archive harmful lessons; changes that a person rejected before are skipped."""
    now = _SkillsAndRecipes(home)
    for step in steps:
        if _is_lesson_item(step.item):
            home.memory.remove(step.item.name, by=home.settings.author_name, reason=step.reason)
            yield step, None
        elif (proposal := _propose_transition(now, step)) is not None:
            yield step, proposal


def propose_transition_after_failure(home: Home, key: UseKey) -> None:
    """Propose to roll a new version back, or to switch a skill off, once its judged uses call for it."""
    layer = next((layer for layer in home.skills.layers if layer.store.key == key.layer), None)
    if layer is None or home.is_read_only or home.pause.get_state() is not None:
        return
    address = format_skill_address(key.item, layer.name)
    try:
        skill = home.skills.find(address)
    except HabitusError:
        return
    if skill.summary is None or (skill.state, skill.summary.version) != (SkillState.OK, key.version):
        return
    used = [one for one in home.journal.load_skill_uses(key.item, key.layer) if one.use.stage == key.stage]
    judged = [one for one in used if one.verdict in (UseVerdict.SUCCEEDED, UseVerdict.FAILED)]
    step = _decide_transition_after_failure(judged, key.version)
    if step is None or (step.transition is LifecycleTransitionKind.ROLL_BACK and not layer.can_write):
        return
    due = replace(step, item=EvidenceItem(kind=ItemKind.SKILL, name=address, version=key.version))
    list(apply_transitions(home, [due]))


def _decide_transition_after_failure(judged: Sequence[JudgedUse], version: int) -> DueTransition | None:
    """Decide by the judged uses of a skill's steps, oldest first."""
    now = [one for one in judged if one.use.version == version]
    failed = [one for one in now if one.verdict is UseVerdict.FAILED]
    turns = _name_latest_turns([one.use.turn for one in failed])
    earlier = [one for one in judged if one.use.version == version - 1]
    item = EvidenceItem(kind=ItemKind.SKILL, name="", version=version)
    # Only failures since the edit; with a success in between, the edit is not what broke it.
    if version > 1 and len(now) == len(failed) >= _FAILURES_AFTER_EDIT and not _is_failing_version(earlier):
        reason = f"All {len(failed)} judged uses since the edit to version {version} failed{turns}."
        return DueTransition(item=item, transition=LifecycleTransitionKind.ROLL_BACK, reason=reason, to=version - 1)
    if _is_failing_version(now):
        reason = f"It failed in {len(failed)} of the {len(now)} uses that were judged{turns}."
        return DueTransition(item=item, transition=LifecycleTransitionKind.RETIRE, reason=reason)
    return None


def _is_failing_version(judged: Sequence[JudgedUse]) -> bool:
    failed = sum(one.verdict is UseVerdict.FAILED for one in judged)
    return is_failing(UsageCounts(succeeded=len(judged) - failed, failed=failed))


def _propose_transition(now: _SkillsAndRecipes, step: DueTransition) -> Proposal | None:
    home, skill = now.home, now.find_skill(step.item)
    assert skill is not None  # a due transition has a skill
    author = Author(actor=ActorKind.JOB, name="evidence", reason=step.reason)
    try:
        return home.review.propose(_make_skill_change(home.skills, step, skill), author, [step.reason])
    except Refused:
        return None


def _make_skill_change(skills: Library, step: DueTransition, skill: ListedSkill) -> SkillChange:
    match step.transition:
        case LifecycleTransitionKind.ROLL_BACK:
            tree = skills.read_tree(f"{skill.name}@{skill.layer}", step.to)
            return SkillChange(action=ProposalAction.WRITE, name=skill.name, layer=skill.layer, tree=tree)
        case LifecycleTransitionKind.HIDE:
            layer, tree, whole = skills.prepare_editable_copy(skill)
            hidden = replace(whole, manifest=replace(whole.manifest, disable_model_invocation=True))
            return SkillChange(
                action=ProposalAction.WRITE, name=skill.name, layer=layer, tree=trees.update_main_file(tree, hidden)
            )
        case LifecycleTransitionKind.RETIRE | LifecycleTransitionKind.STAY | LifecycleTransitionKind.CLIMB:
            return SkillChange(action=ProposalAction.DISABLE, name=skill.name, layer=skill.layer)
