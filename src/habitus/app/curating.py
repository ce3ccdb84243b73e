"""Curating: degraded tools retire, rules are compacted, lessons that never helped go, stale proofs are renewed, and
what evidence and use say of skills is proposed: up a stage, back, off the menu, out of use.

What goes is in the archive. The end of a session tidies memory as well, without a sandbox or a model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.evidence.model import ItemKind
from habitus.memory.model import Engram
from habitus.skills.lifecycle import Transition
from habitus.skills.model import Author
from habitus.tools.model import ToolStatus

if TYPE_CHECKING:
    from habitus.app.climbing import Climb
    from habitus.app.habitus import Habitus
    from habitus.app.verdicts import Due
    from habitus.memory.cortex import Cortex
    from habitus.skills.review import Proposal
    from habitus.tools.model import Regression
    from habitus.tools.tools import Tools


class CuratorAction(StrEnum):
    RETIRE = "retire"  # a degraded tool
    TEST = "test"  # run the cases of a tool again
    COMPACT = "compact"  # too many rules of a kind
    PRUNE = "prune"  # a lesson that never helped
    PROPOSE = "propose"  # what evidence or use says of a skill
    CLIMB = "climb"  # a lesson to a skill, a skill to a recipe, a recipe or steps to code
    ARCHIVE = "archive"  # a lesson that does harm


@dataclass(frozen=True, kw_only=True, slots=True)
class CuratorStep:
    """One thing that is to be done, or was, and why. `undo` follows `habitus`."""

    action: CuratorAction
    item: str  # the name of a tool, the id of a lesson
    reason: str
    text: str = ""
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Curation:
    is_done: bool
    steps: tuple[CuratorStep, ...]


async def curate(habitus: Habitus, *, apply: bool, model: str = "") -> Curation:
    """Look at everything that ages; without `apply` nothing is changed and nothing is run.

    `model`, as provider:model, drafts what climbs; without one what takes no model does.
    """
    # The arithmetic of evidence and the reading of the journal, for those who curate.
    from habitus.app import verdicts
    from habitus.app.climbing import Climbing, drafting

    if not apply:
        due = verdicts.due(habitus)
        proved = (_proved(one) for one in due if one.transition is not Transition.CLIMB)
        climbs = map(_climb, Climbing(habitus).due(due))
        aged = tidy(habitus.memory, dry_run=True)
        return Curation(is_done=False, steps=(*_due_tools(habitus.tools), *proved, *climbs, *aged))
    habitus.refuse_if_read_only()
    async with habitus.tools as tools:
        looked_at = await _curated_tools(tools, habitus.person())
    due = verdicts.due(habitus)
    known = [one for one in due if one.transition is not Transition.CLIMB]
    proposed = tuple(_proved(one, proposal) for one, proposal in verdicts.carry_out(habitus, known))
    climbing = Climbing(habitus)
    async with drafting(habitus, model) as drafter:
        climbed = [_climb(await climbing.carry_out(one, drafter)) for one in climbing.due(due)]
    return Curation(is_done=True, steps=(*looked_at, *proposed, *climbed, *tidy(habitus.memory)))


def _climb(climb: Climb) -> CuratorStep:
    decides = f"; decide with 'habitus review show {climb.proposal}'" if climb.proposal is not None else ""
    text = f"to {climb.to.value}: {climb.problem}" if climb.problem else f"to {climb.to.value}{decides}"
    return CuratorStep(action=CuratorAction.CLIMB, item=climb.skill or climb.item, reason=climb.why, text=text)


def _proved(due: Due, proposal: Proposal | None = None) -> CuratorStep:
    """A verdict of the evidence: of a lesson it is carried out, of a skill a person decides."""
    name = due.item.name
    if due.item.kind is ItemKind.LESSON:
        return CuratorStep(
            action=CuratorAction.ARCHIVE, item=name, reason=due.reason, undo=("lessons", "restore", name)
        )
    to = f" to version {due.to}" if due.to else ""
    decides = f"; decide with 'habitus review show {proposal.id}'" if proposal is not None else ""
    text = f"{due.transition}{to}{decides}"
    return CuratorStep(action=CuratorAction.PROPOSE, item=name, reason=due.reason, text=text)


def tidy(memory: Cortex, *, dry_run: bool = False) -> tuple[CuratorStep, ...]:
    """Compact the rules and prune the lessons."""
    compacted = memory.compact(dry_run=dry_run)
    pruned = memory.prune(dry_run=dry_run)
    too_many = "there are too many {} entries for {}, and others are more useful"
    return (
        *(_step(CuratorAction.COMPACT, e, too_many.format(e.kind.value, e.scope.value)) for e in compacted),
        *(_step(CuratorAction.PRUNE, e, f"shown {e.counters.retrievals} times, and it never helped") for e in pruned),
    )


def _step(action: CuratorAction, engram: Engram, reason: str) -> CuratorStep:
    undo = ("lessons", "restore", engram.id)
    return CuratorStep(action=action, item=engram.id, reason=reason, text=engram.text, undo=undo)


_STALE = "code, dependencies or interpreter are not those that its cases passed with"


def _due_tools(tools: Tools) -> list[CuratorStep]:
    return [*_degraded(tools), *_stale(tools)]


def _degraded(tools: Tools) -> list[CuratorStep]:
    found = [tool for tool in tools.all() if tool.status is ToolStatus.DEGRADED]
    return [CuratorStep(action=CuratorAction.TEST, item=tool.name, reason=f"degraded: {tool.reason}") for tool in found]


def _stale(tools: Tools) -> list[CuratorStep]:
    active = [tool for tool in tools.all() if tool.status is ToolStatus.ACTIVE]
    found = [tool for tool in active if tool.cases and tool.proved_on is None]
    return [CuratorStep(action=CuratorAction.TEST, item=tool.name, reason=_STALE) for tool in found]


async def _curated_tools(tools: Tools, author: Author) -> list[CuratorStep]:
    degraded, stale = _degraded(tools), _stale(tools)
    steps = [
        CuratorStep(action=CuratorAction.RETIRE, item=gone.name, reason=gone.reason, undo=gone.undo)
        for gone in await tools.curate(author)
    ]
    left = {tool.name: tool.status for tool in tools.all()}
    for due in degraded:
        if due.item in left:
            came_to = "it has some time yet" if left[due.item] is ToolStatus.DEGRADED else "its cases pass again"
            steps.append(replace(due, reason=f"{due.reason}: {came_to}"))
    for due in stale:  # what is degraded only now has its time until a later run
        came_to = _came_to(due.item, await tools.renew(due.item))
        steps.append(CuratorStep(action=due.action, item=due.item, reason=f"{_STALE}: {came_to}"))
    return steps


def _came_to(name: str, report: Regression) -> str:
    if report.passed:
        return "its cases pass again"
    if not report.failed:
        return f"its cases could not be run: {report.results[0].outcome.reason}"
    failed = f"{len(report.failed)} of {len(report.results)} cases fail"
    return f"{failed}, and it is degraded; see 'habitus tools test {name}'"
