"""Builds the tools of every session, and those for hosts that run their own loop: outcome and explanation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from habitus.access import Access
from habitus.agent.choosing import SessionMemory, explain
from habitus.agent.library_view import OtherFiles, View
from habitus.agent.tools.code_tools import making_tools, scratchpad
from habitus.agent.tools.memory_tools import memory_tools
from habitus.agent.tools.reading_skills import reading_tools
from habitus.agent.tools.registry import Arguments, Reach, Running, Tool, json_result
from habitus.agent.tools.stage_tools import Ladder
from habitus.agent.tools.writing_skills import Changes, writing_tools
from habitus.errors import ToolFailed
from habitus.events import OK, ToolResult, failure
from habitus.sandbox.scratchpads import CellObserver, Scratchpads
from habitus.skills import names
from habitus.skills.choosing.finding import Finder
from habitus.text import one_line
from habitus.tools.tools import Tools


def standard_tools(
    changes: Changes,
    *,
    files: OtherFiles,
    ladder: Ladder,
    finder: Finder,
    pads: Scratchpads,
    cell_observers: Sequence[CellObserver] = (),
    tools: Tools,
    memory: SessionMemory,
    readable: Sequence[Path] = (),
    is_hosted: bool = False,
) -> list[Tool]:
    """Build the built-in tools of a conversation, with the turn tools if the loop is not ours."""
    view = changes.view
    return [
        scratchpad(pads, cell_observers, [note.text for note in memory.in_scratchpad], readable),
        *reading_tools(view, files, ladder, finder),
        *writing_tools(changes),
        *memory_tools(memory, conversation=view.conversation, ask=changes.ask),
        *making_tools(tools, changes),
        *(turn_tools(view, finder) if is_hosted else ()),
    ]


def turn_tools(view: View, finder: Finder) -> list[Tool]:
    """Build the tools about the turn itself."""
    return [report_outcome(), why(view, finder)]


class ReportOutcome(Arguments):
    """Say at the end of a task whether it worked, so that skills are judged by results. Be honest: a failure that is
    told improves the skill."""

    ok: bool = Field(description="Whether what was asked is done, and checked.")
    reason: str | None = Field(default=None, description="What went wrong, in a sentence; needed when it did not.")


def report_outcome() -> Tool:
    """Build the tool with which the model reports the outcome of a task."""

    def run(given: ReportOutcome, running: Running) -> ToolResult:
        reason = one_line(given.reason or "").strip()
        if not given.ok and not reason:
            raise ToolFailed("Say in 'reason' what went wrong.")
        running.report(OK if given.ok else failure(running.redactor.redact(reason).text[:500]))
        return json_result({"recorded": "ok" if given.ok else "failed", "weight": "weak: the model's own word"})

    return Tool(arguments=ReportOutcome, run=run, is_default=True, is_repeatable=True, access=Access.REVIEWER)


# Skills left out that are named.
_MOST_NAMED = 20


class Why(Arguments):
    """Explain which skills were chosen or left out, and for what reason. Use it when the user asks, or when a skill
    you expected can't be found."""

    name: str | None = Field(default=None, description="One skill; without it, what was chosen in this turn.")
    task: str | None = Field(default=None, description="What is to be done, to see how well the skill fits it.")


def why(view: View, finder: Finder) -> Tool:
    """Build the tool that explains the selection of skills."""

    def run(given: Why, running: Running) -> ToolResult:
        lines = (
            _choice_lines(view) if given.name is None else _one(view, finder, given.name, given.task or view.request)
        )
        return ToolResult(content="\n".join(lines))

    return Tool(arguments=Why, run=run, access=Access.VIEWER, is_parallel=True, reach=Reach.NOTHING, is_default=True)


def _choice_lines(view: View) -> list[str]:
    chosen = view.selection
    left_out = [f"{name} ({reason})" for name in chosen.left_out if (reason := view.why_not(name))]
    more = f" and {len(left_out) - _MOST_NAMED} more" if len(left_out) > _MOST_NAMED else ""
    parts = {
        "Asked for": view.request,
        "By a rule": "; ".join(f"{choice.name} ({choice.reason})" for choice in chosen.eager),
        "Loaded in this turn": ", ".join(view.loaded),
        "Left out": "; ".join(left_out[:_MOST_NAMED]) + more,
    }
    said = [f"{label}: {text}" for label, text in parts.items() if text]
    return [*said, f"{len(view.may_load())} skills can be found with search_skills and loaded with recall_skill."]


def _one(view: View, finder: Finder, wanted: str, asked: str) -> list[str]:
    name, may_load = names.canonical(wanted), view.may_load()
    if view.only_waits(name):
        return [f"'{name}' was written in this conversation and waits for a person. It can be recalled here meanwhile."]
    if name not in may_load and not view.why_not(name):
        near = names.closest_match(wanted, may_load)
        hint = f"Did you mean '{near}'?" if near else "search_skills finds what there is."
        raise ToolFailed(f"There is no skill '{wanted}'. {hint}")
    seen, eligible = view.snapshot, view.selection.eligible()
    results = finder.search(asked, k=len(eligible) or 1, among=eligible, at=seen) if asked.strip() else None
    return explain(seen.by_name[name], view.selection, view.menu, results).sentences
