"""Curation: retire tools, compact rules, prune lessons, test tools again, and propose changes of skills.

Everything removed is in the archive. The end of a session tidies memory as well, without a sandbox or a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.app.home import Home, refuse_if_read_only
from habitus.errors import Invalid, Refused
from habitus.evidence.model import ItemKind
from habitus.learning.detectors.rules import DETECTORS, is_more_specific_detector
from habitus.memory.model import Engram
from habitus.skills import trees
from habitus.skills.choosing.skill_finder import DUPLICATE_THRESHOLD
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.lifecycle import LifecycleTransitionKind
from habitus.skills.model import ActorKind, Author, SkillSource, SkillState, Stage
from habitus.skills.review import Proposal, ProposalAction, ReviewQueue, SkillChange
from habitus.tools.model import ToolStatus
from habitus.use_counts import UsageCounts

if TYPE_CHECKING:
    from habitus.app.learning.climbing import StageClimbPlanOrResult
    from habitus.app.learning.comparing import ComparisonDecision
    from habitus.app.learning.due_transitions import DueLifecycleTransition
    from habitus.memory.cortex import Cortex
    from habitus.tools.model import ToolCaseRerunReport
    from habitus.tools.service import ToolService

# A limit high enough to mean all of them.
_ALL_RULES = 10_000


class CuratorActionKind(StrEnum):
    """What a step of curation does."""

    # Archive a degraded tool.
    RETIRE = "retire"
    # Run the cases of a tool again.
    TEST = "test"
    # Archive the least useful rules of a kind that has too many.
    COMPACT = "compact"
    # Remove a lesson that never helped, has expired, or repeats another.
    PRUNE = "prune"
    # Propose what evidence or use says about a skill.
    PROPOSE = "propose"
    # Propose to merge two skills that say the same.
    MERGE = "merge"
    # Report that a skill fails its own eval case, which a person has to fix.
    FIX = "fix"
    # Propose a lesson as a skill, a skill's recipe, or its code.
    CLIMB = "climb"
    # Archive a lesson that does harm.
    ARCHIVE = "archive"
    # End a comparison of two versions in use.
    COMPARE = "compare"


@dataclass(frozen=True, kw_only=True, slots=True)
class CuratorStep:
    """One planned or finished step of curation and its reason; `undo` holds the arguments for `habitus`."""

    action: CuratorActionKind
    # The name of a tool or skill, or the id of a lesson.
    item: str
    reason: str
    text: str = ""
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CurationReport:
    """The steps of a curation, planned or done."""

    is_done: bool
    steps: tuple[CuratorStep, ...]
    # The tokens and cost spent on a model, in words.
    spent: str = ""


async def plan_or_run_curation(home: Home, *, apply: bool, model: str = "") -> CurationReport:
    """Curate skills, lessons and tools; without `apply`, only plan it.

    `model`, as provider:model, drafts climbs. Without one, only climbs that need no model are drafted.
    """
    # Imported here because only curation needs the statistics and the journal; other commands start faster.
    from habitus.app.learning import due_transitions
    from habitus.app.learning.climbing import ClimbPlannerAndRunner, open_budgeted_climb_model
    from habitus.app.learning.comparing import decide_running_comparisons

    climbing = ClimbPlannerAndRunner(home)
    if not apply:
        due = due_transitions.list_due_transitions(home)
        known = (_make_transition_step(one) for one in due if one.transition is not LifecycleTransitionKind.CLIMB)
        same = (_make_merge_step(pair) for pair in find_own_duplicate_skill_pairs(home))
        climbs = map(_make_climb_step, climbing.plan_due_climbs(due))
        aged = compact_rules_and_prune_lessons(home.memory, dry_run=True, is_thorough=True)
        tools = (*_list_degraded_tool_steps(home.tools), *_list_unproved_tool_steps(home))
        return CurationReport(
            is_done=False,
            steps=(
                *tools,
                *_list_steps_for_failing_trigger_evals(home),
                *map(_make_comparison_step, decide_running_comparisons(home, apply=False)),
                *known,
                *same,
                *climbs,
                *aged,
            ),
        )
    refuse_if_read_only(home)
    async with open_budgeted_climb_model(home, model) as drafter:
        looked_at = await _retire_and_retest_tools(home)
        compared = list(map(_make_comparison_step, decide_running_comparisons(home, apply=True)))
        due = due_transitions.list_due_transitions(home)
        others = [one for one in due if one.transition is not LifecycleTransitionKind.CLIMB]
        proposed = [
            _make_transition_step(one, proposal)
            for one, proposal in due_transitions.propose_or_apply_transitions(home, others)
        ]
        pairs = find_own_duplicate_skill_pairs(home)
        merged = [
            _make_merge_step(pair, made)
            for pair in pairs
            if (made := propose_skill_merge(home.skills, home.review, pair))
        ]
        climbed = [
            _make_climb_step(await climbing.draft_and_propose_climb(one, drafter))
            for one in climbing.plan_due_climbs(due)
        ]
    aged = compact_rules_and_prune_lessons(home.memory, is_thorough=True)
    steps = (*looked_at, *_list_steps_for_failing_trigger_evals(home), *compared, *proposed, *merged, *climbed, *aged)
    return CurationReport(is_done=True, steps=steps, spent=drafter.budget.summary if drafter is not None else "")


def _list_steps_for_failing_trigger_evals(home: Home) -> list[CuratorStep]:
    """Return a step for each eval case that says a skill should be chosen when it is not."""
    from habitus.app.library.explaining import run_skill_trigger_cases

    steps = []
    for item in home.skills.list_skills():
        if item.state is not SkillState.OK or not home.skills.get_layer(item.layer).can_write:
            continue
        try:
            missed = [f"'{one.query}': {one.detail}" for one in run_skill_trigger_cases(home, item) if not one.passed]
        except Invalid as problem:
            missed = [str(problem)]
        reason = "its own case in evals/evals.json fails"
        steps += [CuratorStep(action=CuratorActionKind.FIX, item=item.name, reason=reason, text=one) for one in missed]
    return steps


def _make_merge_step(pair: DuplicateSkillPair, proposal: Proposal | None = None) -> CuratorStep:
    text = f"{pair.merge_effect}{_format_review_hint(proposal.id if proposal else None)}"
    return CuratorStep(action=CuratorActionKind.MERGE, item=pair.lesser.name, reason=pair.reason, text=text)


def _format_review_hint(proposal: int | None) -> str:
    return f"; decide with 'habitus review show {proposal}'" if proposal is not None else ""


def _make_climb_step(climb: StageClimbPlanOrResult) -> CuratorStep:
    came_to = f": {climb.problem}" if climb.problem else _format_review_hint(climb.proposal)
    text = f"to {climb.to.label}{came_to}"
    return CuratorStep(action=CuratorActionKind.CLIMB, item=climb.skill or climb.item, reason=climb.why, text=text)


def _make_transition_step(due: DueLifecycleTransition, proposal: Proposal | None = None) -> CuratorStep:
    """Describe a transition that the evidence demands: lessons are archived at once, for skills a person decides."""
    name = due.item.name
    if due.item.kind is ItemKind.LESSON:
        return CuratorStep(
            action=CuratorActionKind.ARCHIVE, item=name, reason=due.reason, undo=("lessons", "restore", name)
        )
    to = f" to version {due.to}" if due.to else ""
    text = f"{due.transition}{to}{_format_review_hint(proposal.id if proposal else None)}"
    return CuratorStep(action=CuratorActionKind.PROPOSE, item=name, reason=due.reason, text=text)


def _make_comparison_step(settled: ComparisonDecision) -> CuratorStep:
    one = settled.comparison
    text = f"version {one.new} against {one.old}: {settled.state}{_format_review_hint(settled.proposal)}"
    return CuratorStep(action=CuratorActionKind.COMPARE, item=one.skill, reason=settled.reason, text=text)


def compact_rules_and_prune_lessons(
    memory: Cortex, *, dry_run: bool = False, is_thorough: bool = False
) -> tuple[CuratorStep, ...]:
    """Compact the rules and prune the lessons; `is_thorough` also looks for lessons that repeat each other."""
    compacted = memory.compact(dry_run=dry_run)
    pruned = memory.prune(dry_run=dry_run, is_thorough=is_thorough, also=_find_superseded_rules(memory))
    too_many = "there are too many {} entries for {}, and others are more useful"
    return (
        *(
            _make_lesson_step(CuratorActionKind.COMPACT, e, too_many.format(e.kind.value, e.scope.value))
            for e in compacted
        ),
        *(_make_lesson_step(CuratorActionKind.PRUNE, e, e.reason) for e in pruned),
    )


def _find_superseded_rules(memory: Cortex) -> list[Engram]:
    """Return rules of detectors for which the same turn taught a more specific rule."""
    taught: dict[str, list[Engram]] = {}
    for one in memory.list_lessons(limit=_ALL_RULES):
        if one.evidence.detector in DETECTORS and one.evidence.trace:
            taught.setdefault(one.evidence.trace, []).append(one)
    return [
        replace(one, reason=f"the same turn taught what is more specific: {better.text}")
        for together in taught.values()
        for one in together
        for better in together
        if is_more_specific_detector(better.evidence.detector, one.evidence.detector)
    ]


def _make_lesson_step(action: CuratorActionKind, engram: Engram, reason: str) -> CuratorStep:
    undo = ("lessons", "restore", engram.id)
    return CuratorStep(action=action, item=engram.id, reason=reason, text=engram.text, undo=undo)


# Days after which the cases of a tool are run again.
_PROOF_MAX_AGE_DAYS = 30
_STALE = "code, dependencies or interpreter are not those that its cases passed with"


def _list_degraded_tool_steps(tools: ToolService) -> list[CuratorStep]:
    found = [tool for tool in tools.all() if tool.status is ToolStatus.DEGRADED]
    return [
        CuratorStep(action=CuratorActionKind.TEST, item=tool.name, reason=f"degraded: {tool.reason}") for tool in found
    ]


def _list_unproved_tool_steps(home: Home) -> list[CuratorStep]:
    """Return the active tools whose cases never passed with their present code, or passed long ago."""
    long_ago = home.clock() - timedelta(days=_PROOF_MAX_AGE_DAYS)
    steps = []
    for tool in home.tools.all():
        if tool.status is ToolStatus.ACTIVE and tool.cases and (tool.proved_on is None or tool.proved_on <= long_ago):
            reason = f"its cases last passed on {tool.proved_on:%Y-%m-%d}" if tool.proved_on else _STALE
            steps.append(CuratorStep(action=CuratorActionKind.TEST, item=tool.name, reason=reason))
    return steps


async def _retire_and_retest_tools(home: Home) -> list[CuratorStep]:
    async with home.tools as tools:
        degraded, unproved = _list_degraded_tool_steps(tools), _list_unproved_tool_steps(home)
        steps = [
            CuratorStep(action=CuratorActionKind.RETIRE, item=gone.name, reason=gone.reason, undo=gone.undo)
            for gone in await tools.curate(home.build_author())
        ]
        left = {tool.name: tool.status for tool in tools.all()}
        for due in degraded:
            if due.item in left:
                came_to = "it has some time yet" if left[due.item] is ToolStatus.DEGRADED else "its cases pass again"
                steps.append(replace(due, reason=f"{due.reason}: {came_to}"))
        # A tool that degrades only now gets its grace period and is retired by a later run at the earliest.
        for due in unproved:
            came_to = _describe_tool_case_rerun(due.item, await tools.renew(due.item))
            steps.append(replace(due, reason=f"{due.reason}: {came_to}"))
    return steps


def _describe_tool_case_rerun(name: str, report: ToolCaseRerunReport) -> str:
    if report.passed:
        return "its cases pass again"
    if not report.cases_counting_against_tool:
        return f"its cases could not be run: {report.results[0].outcome.reason}"
    failed = f"{len(report.cases_counting_against_tool)} of {len(report.results)} cases fail"
    return f"{failed}, and it is degraded; see 'habitus tools test {name}'"


# The bullet or number of a list item.
_LIST_MARKER = re.compile(r"^(?:[-*+]|\d+[.)])\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class DuplicateSkillPair:
    """Two skills that say the same; `added` holds the lines that only the lesser one has."""

    better: ListedSkill
    lesser: ListedSkill
    similarity: float
    added: tuple[str, ...]

    @property
    def reason(self) -> str:
        """Why the two should be merged, as a sentence."""
        return f"'{self.lesser.name}' is very similar to '{self.better.name}' ({self.similarity:.2f})."

    @property
    def merge_effect(self) -> str:
        """What merging them changes."""
        if not self.added:
            return f"remove {self.lesser.name}, which adds nothing"
        return f"put what only {self.lesser.name} says into {self.better.name}"


def find_own_duplicate_skill_pairs(home: Home) -> Iterator[DuplicateSkillPair]:
    """Yield pairs of the user's own similar skills.

    Each skill is in at most one pair, and in none while a change of it is pending.
    """
    seen = home.skills.snapshot()
    own = {item.name: item for item in seen.listing if _is_own_writable_skill(home.skills, item)}
    busy = {proposal.change.name for proposal in home.review.list_proposals_by_state(with_contents=False)}
    # Of all at once: a query for each pair took a third of the time of curation.
    counts = home.skills.read_all_counters()
    for name, near in home.finder.find_neighbours_of_all_skills(DUPLICATE_THRESHOLD, at=seen).items():
        for hit in near:
            pair = {name, hit.id}
            if pair <= own.keys() and not pair & busy:
                busy |= pair
                better, lesser = sorted(
                    (own[one] for one in pair),
                    key=lambda item: _get_skill_merge_rank(item, counts.get((item.layer, item.name), {})),
                )
                if lesser.summary is not None and lesser.summary.stages == {Stage.STEPS}:
                    kept, other = (home.skills.load(f"{one.name}@{one.layer}", at=seen) for one in (better, lesser))
                    added = _list_added_lines(kept.body, other.body)
                    yield DuplicateSkillPair(better=better, lesser=lesser, similarity=hit.score, added=added)


def _is_own_writable_skill(skills: Library, item: ListedSkill) -> bool:
    is_ours = item.summary is not None and item.summary.source is not SkillSource.IMPORTED
    return is_ours and item.state is SkillState.OK and skills.get_layer(item.layer).can_write


def _get_skill_merge_rank(item: ListedSkill, counts: Mapping[Stage, UsageCounts]) -> tuple[int, int, str, str]:
    """Return a sort key: more stages first, then more successes, then the older one."""
    assert item.summary is not None
    served = sum(counts.values(), UsageCounts()).succeeded
    return -len(item.summary.stages), -served, str(item.summary.created_on), item.name


def _list_added_lines(kept: str, other: str) -> tuple[str, ...]:
    """Return the lines of the other text that the kept one doesn't have."""
    known = {_normalize_line(line) for line in kept.splitlines()}
    return tuple(line for line in other.splitlines() if _normalize_line(line) not in known)


def _normalize_line(line: str) -> str:
    return " ".join(_LIST_MARKER.sub("", line.strip()).casefold().split()).rstrip(".")


def propose_skill_merge(skills: Library, review: ReviewQueue, pair: DuplicateSkillPair) -> Proposal | None:
    """Propose to merge the pair; None if a person rejected that before."""
    author = Author(actor=ActorKind.JOB, name="curator", reason=pair.reason)
    # A lesser skill that adds nothing is removed; otherwise its extra lines go into the better one.
    item = pair.better if pair.added else pair.lesser
    change = SkillChange(action=ProposalAction.REMOVE, name=item.name, layer=item.layer)
    if pair.added:
        _, tree, skill = skills.prepare_editable_copy(item)
        body = "\n".join([skill.body.rstrip(), "", f"## From {pair.lesser.name}", "", *pair.added, ""])
        change = replace(
            change, action=ProposalAction.WRITE, tree=trees.update_main_file(tree, replace(skill, body=body))
        )
    try:
        return review.propose(change, author, [pair.reason])
    except Refused:
        return None
