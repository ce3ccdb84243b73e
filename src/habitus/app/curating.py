"""Curating: degraded tools retire, rules are compacted, lessons that never helped go, stale proofs are renewed.

What goes is in the archive. The end of a session tidies memory as well, without a sandbox or a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.memory.model import Engram
from habitus.skills.model import Author
from habitus.tools.model import ToolStatus

if TYPE_CHECKING:
    from habitus.app.habitus import Habitus
    from habitus.memory.cortex import Cortex
    from habitus.tools.model import Regression
    from habitus.tools.tools import Tools


class CuratorAction(StrEnum):
    RETIRE = "retire"  # a degraded tool
    TEST = "test"  # run the cases of a tool again
    COMPACT = "compact"  # too many rules of a kind
    PRUNE = "prune"  # a lesson that never helped


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


async def curate(habitus: Habitus, *, apply: bool) -> Curation:
    """Look at everything that ages; without `apply` nothing is changed and nothing is run."""
    if not apply:
        return Curation(is_done=False, steps=(*_due_tools(habitus.tools), *tidy(habitus.memory, dry_run=True)))
    habitus.refuse_if_read_only()
    async with habitus.tools as tools:
        looked_at = await _curated_tools(tools, habitus.person())
    return Curation(is_done=True, steps=(*looked_at, *tidy(habitus.memory)))


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
    known = tools.all()
    degraded = [tool for tool in known if tool.status is ToolStatus.DEGRADED]
    stale = [tool for tool in known if tool.status is ToolStatus.ACTIVE and tool.cases and tool.proved_on is None]
    return [
        *(CuratorStep(action=CuratorAction.RETIRE, item=tool.name, reason=tool.reason) for tool in degraded),
        *(CuratorStep(action=CuratorAction.TEST, item=tool.name, reason=_STALE) for tool in stale),
    ]


async def _curated_tools(tools: Tools, author: Author) -> list[CuratorStep]:
    stale = [due for due in _due_tools(tools) if due.action is CuratorAction.TEST]
    steps = [
        CuratorStep(action=CuratorAction.RETIRE, item=gone.name, reason=gone.reason, undo=gone.undo)
        for gone in await tools.curate(author)
    ]
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
