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
from habitus.evidence.findings import ItemFinding, ItemVerdict, WorseVersionFinding, is_item_used_without_trace
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
from habitus.use_counts import UsageCountKey, UsageCounts

MAX_LESSONS = 10_000
# Turns that a reason names.
_MAX_NAMED_TURNS = 5
# This many failures in a row after an edit propose to roll it back.
_FAILURES_AFTER_EDIT = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class DueLifecycleTransition:
    """A transition that an item is due for, and why; `to` is the version to roll back to."""

    item: EvidenceItem
    transition: LifecycleTransitionKind
    reason: str
    to: int = 0


class _SkillsAndRecipesSnapshot:
    """The skills and recipes in one snapshot of the library."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._seen = home.skills.snapshot()
        self._recipes = {recipe.name: recipe for recipe in home.recipes.list_recipes(at=self._seen)}

    def find_skill_of_item(self, item: EvidenceItem) -> ListedSkill | None:
        """Return the skill that the item is a version, code or recipe of; None if it was removed."""
        recipe = self._recipes.get(item.name) if item.kind is ItemKind.RECIPE else None
        if item.kind is ItemKind.RECIPE and recipe is None:
            return None
        try:
            return self.home.skills.find(recipe.skill if recipe else item.name, at=self._seen)
        except HabitusError:
            return None

    def count_outcomes_of_version_uses(self, found: ItemFinding, skill: ListedSkill) -> UsageCounts:
        """Return the outcomes of the uses of this version.

        Empty for a tool, whose calls count for its health instead.
        """
        match found.item.kind:
            case ItemKind.SKILL if found.estimate.used:
                counted = self.home.skills.read_counters(skill, version=found.item.version)
                return counted.get(Stage.STEPS, UsageCounts())
            case ItemKind.RECIPE:
                return _get_recipe_run_counts(self._recipes[found.item.name])
            case _:
                return UsageCounts()

    def list_never_offered_recipes_with_runs(
        self, found: Iterable[EvidenceItem]
    ) -> Iterator[tuple[EvidenceItem, UsageCounts]]:
        """Yield the active recipes that were never offered, with the outcomes of their runs by hand or by name."""
        known = set(found)
        for recipe in self._recipes.values():
            item = EvidenceItem(kind=ItemKind.RECIPE, name=recipe.name, version=recipe.version)
            if recipe.status is RecipeStatus.ACTIVE and item not in known:
                yield item, _get_recipe_run_counts(recipe)


def _get_recipe_run_counts(recipe: SkillRecipe) -> UsageCounts:
    return UsageCounts(succeeded=recipe.counts.succeeded, failed=recipe.counts.failed)


def list_due_transitions(home: Home) -> tuple[DueLifecycleTransition, ...]:
    """Return the transitions that today's evidence on active items leads to."""
    (found, by_request), now = home.evidence.compute_findings_and_chosen_items(), _SkillsAndRecipesSnapshot(home)
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
        for item, runs in now.list_never_offered_recipes_with_runs(one.item for one in found.items)
    ]
    return tuple(step for step in steps if step is not None)


def _is_lesson_item(item: EvidenceItem) -> bool:
    return item.kind is ItemKind.LESSON


def _decide_lesson_transition(home: Home, found: ItemFinding, lesson: Engram | None) -> DueLifecycleTransition | None:
    if lesson is None:
        return None
    counted = home.journal.count_requests_with_lesson(lesson.id)
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
    return DueLifecycleTransition(
        item=found.item,
        transition=then,
        reason=_get_reason_if_evidence_decided(worth, found) or f"{shown}{_format_latest_turn_ids(turns)}.",
    )


def _decide_skill_transition(
    now: _SkillsAndRecipesSnapshot, found: ItemFinding, back: WorseVersionFinding | None, is_chosen: bool
) -> DueLifecycleTransition | None:
    """Decide about the version that is offered today; a read-only layer has no version to roll back to.

    An item that only stood on menus hardly changes a session, however much it helps when needed, so it is not useless.
    """
    item, skill, home = found.item, now.find_skill_of_item(found.item), now.home
    if skill is None or skill.summary is None or (skill.state, skill.summary.version) != (SkillState.OK, item.version):
        return None
    if not home.skills.get_layer(skill.layer).can_write:
        back = None
    uses = now.count_outcomes_of_version_uses(found, skill)
    worth = _assess_utility(
        found, uses, is_chosen=is_chosen or is_item_used_without_trace(found.estimate), is_worse=back is not None
    )
    then = decide_transition(worth, threshold=home.settings.reliable)
    is_of_skill = item.kind is ItemKind.SKILL or then is not LifecycleTransitionKind.RETIRE or worth.does_harm
    # Below a failing recipe there are steps that may still serve, so the skill is not retired for it.
    if then is LifecycleTransitionKind.STAY or not is_of_skill:
        return None
    if back is not None:
        return DueLifecycleTransition(item=item, transition=then, reason=back.reason, to=back.to.version)
    went, count = ("failed", uses.failed) if then is LifecycleTransitionKind.RETIRE else ("served", uses.succeeded)
    if reason := _get_reason_if_evidence_decided(worth, found):
        return DueLifecycleTransition(item=item, transition=then, reason=reason)
    turns = _list_turns_with_outcome(home, item, skill, is_good=then is not LifecycleTransitionKind.RETIRE)
    counted = (
        f"It {went} in {count} of the {uses.succeeded + uses.failed} uses that were "
        f"judged{_format_latest_turn_ids(turns)}."
    )
    return DueLifecycleTransition(item=item, transition=then, reason=counted)


def _decide_recipe_transition(
    now: _SkillsAndRecipesSnapshot, item: EvidenceItem, runs: UsageCounts
) -> DueLifecycleTransition | None:
    """Decide about a recipe of which only its runs are known: they let it climb, nothing else."""
    if not is_reliable(runs, now.home.settings.reliable):
        return None
    past = now.home.journal.iterate_latest_finished_turns(limit=MAX_TURNS)
    turns = [
        turn.id
        for turn in past
        if any(_read_tool_name_and_success(event) == (item.name, True) for event in turn.events)
    ]
    judged = runs.succeeded + runs.failed
    reason = f"It served in {runs.succeeded} of the {judged} uses that were judged{_format_latest_turn_ids(turns)}."
    return DueLifecycleTransition(item=item, transition=LifecycleTransitionKind.CLIMB, reason=reason)


def _list_turns_with_outcome(home: Home, item: EvidenceItem, skill: ListedSkill, *, is_good: bool) -> list[str]:
    """Return the stored turns in which the item succeeded, or failed."""
    if item.kind is ItemKind.SKILL:
        wanted_verdict = UseVerdict.SUCCEEDED if is_good else UseVerdict.FAILED
        used = home.journal.load_judged_uses_of_skill(skill.name, home.skills.get_layer(skill.layer).store.key)
        return [
            one.use.turn
            for one in used
            if one.verdict is wanted_verdict and (one.use.version, one.use.stage) == (item.version, Stage.STEPS.value)
        ]
    kept = [one.unit for one in home.journal.load_scored_exposures([item.name]) if one.exposure.is_used]
    turns = [turn for unit in dict.fromkeys(kept[-_MAX_NAMED_TURNS:]) for turn in home.journal.list_session_turns(unit)]
    wanted = (item.name, is_good)
    return [turn.id for turn in turns if any(_read_tool_name_and_success(event) == wanted for event in turn.events)]


def _read_tool_name_and_success(event: AgentEvent) -> tuple[object, object]:
    is_result = event.kind is EventKind.TOOL_RESULT
    return (event.detail.get("name"), event.detail.get("success")) if is_result else ("", None)


def _format_latest_turn_ids(turns: Sequence[str]) -> str:
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


def _get_reason_if_evidence_decided(worth: UtilityAssessment, found: ItemFinding) -> str:
    """Return the reason of the judgement, if the evidence decided rather than the counts."""
    return found.decision.reason if worth.helps or worth.is_useless or worth.does_harm else ""


def propose_or_apply_transitions(
    home: Home, steps: Sequence[DueLifecycleTransition]
) -> Iterator[tuple[DueLifecycleTransition, Proposal | None]]:
    """Propose the changes of skills and archive harmful lessons; changes that a person rejected before are skipped."""
    now = _SkillsAndRecipesSnapshot(home)
    for step in steps:
        if _is_lesson_item(step.item):
            home.memory.remove(step.item.name, by=home.settings.author_name, reason=step.reason)
            yield step, None
        elif (proposal := _propose_transition(now, step)) is not None:
            yield step, proposal


def propose_transition_after_failure(home: Home, key: UsageCountKey) -> None:
    """Propose to roll a new version back, or to switch a skill off, once its judged uses call for it."""
    layer = next((layer for layer in home.skills.layers if layer.store.key == key.layer), None)
    if layer is None or home.is_read_only or home.pause.get_pause_details() is not None:
        return
    address = format_skill_address(key.item, layer.name)
    try:
        skill = home.skills.find(address)
    except HabitusError:
        return
    if skill.summary is None or (skill.state, skill.summary.version) != (SkillState.OK, key.version):
        return
    used = [one for one in home.journal.load_judged_uses_of_skill(key.item, key.layer) if one.use.stage == key.stage]
    judged = [one for one in used if one.verdict in (UseVerdict.SUCCEEDED, UseVerdict.FAILED)]
    step = _decide_transition_after_failure(judged, key.version)
    if step is None or (step.transition is LifecycleTransitionKind.ROLL_BACK and not layer.can_write):
        return
    due = replace(step, item=EvidenceItem(kind=ItemKind.SKILL, name=address, version=key.version))
    list(propose_or_apply_transitions(home, [due]))


def _decide_transition_after_failure(judged: Sequence[JudgedUse], version: int) -> DueLifecycleTransition | None:
    """Decide by the judged uses of a skill's steps, oldest first."""
    now = [one for one in judged if one.use.version == version]
    failed = [one for one in now if one.verdict is UseVerdict.FAILED]
    turns = _format_latest_turn_ids([one.use.turn for one in failed])
    earlier = [one for one in judged if one.use.version == version - 1]
    item = EvidenceItem(kind=ItemKind.SKILL, name="", version=version)
    # Only failures since the edit; with a success in between, the edit is not what broke it.
    if version > 1 and len(now) == len(failed) >= _FAILURES_AFTER_EDIT and not _is_failing_version(earlier):
        reason = f"All {len(failed)} judged uses since the edit to version {version} failed{turns}."
        return DueLifecycleTransition(
            item=item, transition=LifecycleTransitionKind.ROLL_BACK, reason=reason, to=version - 1
        )
    if _is_failing_version(now):
        reason = f"It failed in {len(failed)} of the {len(now)} uses that were judged{turns}."
        return DueLifecycleTransition(item=item, transition=LifecycleTransitionKind.RETIRE, reason=reason)
    return None


def _is_failing_version(judged: Sequence[JudgedUse]) -> bool:
    failed = sum(one.verdict is UseVerdict.FAILED for one in judged)
    return is_failing(UsageCounts(succeeded=len(judged) - failed, failed=failed))


def _propose_transition(now: _SkillsAndRecipesSnapshot, step: DueLifecycleTransition) -> Proposal | None:
    home, skill = now.home, now.find_skill_of_item(step.item)
    assert skill is not None  # a due transition has a skill
    author = Author(actor=ActorKind.JOB, name="evidence", reason=step.reason)
    try:
        return home.review.propose(_make_skill_change_for_transition(home.skills, step, skill), author, [step.reason])
    except Refused:
        return None


def _make_skill_change_for_transition(skills: Library, step: DueLifecycleTransition, skill: ListedSkill) -> SkillChange:
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
