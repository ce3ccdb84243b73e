"""Builds the tools of every session, and those for hosts that run their own loop: outcome and explanation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import Field

from habitus.access import Access
from habitus.agent.choosing.placement_explanation import explain_skill_placement
from habitus.agent.library.supporting_files import SupportingFileReaderAndPlacer
from habitus.agent.library.view import LibraryView
from habitus.agent.tools.code_tools import build_scratchpad_tool, build_tool_making_tools
from habitus.agent.tools.memory_tools import build_memory_tools
from habitus.agent.tools.reading_skills import build_reading_tools
from habitus.agent.tools.registry import Tool, ToolArguments, ToolCallContext, ToolEffectReach, build_json_result
from habitus.agent.tools.stage_tools import SkillStageAdvisor
from habitus.agent.tools.writing_skills import SkillChangeSubmitter, build_writing_tools
from habitus.agent.user_memory import UserProjectMemory
from habitus.errors import ToolFailed
from habitus.events import OK, ToolResult, build_failed_outcome
from habitus.sandbox.scratchpads import CellObserver, SessionScratchpads
from habitus.skills import names
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.text import clean_to_one_line
from habitus.tools.service import ToolService


def build_standard_tools(
    changes: SkillChangeSubmitter,
    *,
    files: SupportingFileReaderAndPlacer,
    ladder: SkillStageAdvisor,
    finder: SkillFinder,
    pads: SessionScratchpads,
    cell_observers: Sequence[CellObserver] = (),
    tools: ToolService,
    memory: UserProjectMemory,
    readable: Sequence[Path] = (),
    is_hosted: bool = False,
) -> list[Tool]:
    """Build the built-in tools of a conversation, with the turn tools if the loop is not ours."""
    view = changes.view
    return [
        build_scratchpad_tool(
            pads, cell_observers, [note.text for note in memory.scratchpad_description_lessons], readable
        ),
        *build_reading_tools(view, files, ladder, finder),
        *build_writing_tools(changes),
        *build_memory_tools(memory, conversation=view.conversation, ask=changes.ask),
        *build_tool_making_tools(tools, changes),
        *(build_tools_about_the_turn(view, finder) if is_hosted else ()),
    ]


def build_tools_about_the_turn(view: LibraryView, finder: SkillFinder) -> list[Tool]:
    """Build the tools about the turn itself."""
    return [build_report_outcome_tool(), build_selection_explanation_tool(view, finder)]


class ReportOutcomeArguments(ToolArguments):
    """Say at the end of a task whether it worked, so that skills are judged by results. Be honest: a failure that is
    told improves the skill."""

    ok: bool = Field(description="Whether what was asked is done, and checked.")
    reason: str | None = Field(default=None, description="What went wrong, in a sentence; needed when it did not.")


def build_report_outcome_tool() -> Tool:
    """Build the tool with which the model reports the outcome of a task."""

    def run(given: ReportOutcomeArguments, running: ToolCallContext) -> ToolResult:
        reason = clean_to_one_line(given.reason or "").strip()
        if not given.ok and not reason:
            raise ToolFailed("Say in 'reason' what went wrong.")
        running.report(OK if given.ok else build_failed_outcome(running.redactor.redact(reason).text[:500]))
        return build_json_result({"recorded": "ok" if given.ok else "failed", "weight": "weak: the model's own word"})

    return Tool(arguments=ReportOutcomeArguments, run=run, is_default=True, is_repeatable=True, access=Access.REVIEWER)


# Skills left out that are named.
_MOST_NAMED = 20


class WhyArguments(ToolArguments):
    """Explain which skills were chosen or left out, and for what reason. Use it when the user asks, or when a skill
    you expected can't be found."""

    name: str | None = Field(default=None, description="One skill; without it, what was chosen in this turn.")
    task: str | None = Field(default=None, description="The request, to see how relevant the skill is to it.")


def build_selection_explanation_tool(view: LibraryView, finder: SkillFinder) -> Tool:
    """Build the tool that explains the selection of skills."""

    def run(given: WhyArguments, running: ToolCallContext) -> ToolResult:
        lines = (
            _explain_skill_selection_of_turn(view)
            if given.name is None
            else _explain_placement_of_one_skill(view, finder, given.name, given.task or view.request)
        )
        return ToolResult(content="\n".join(lines))

    return Tool(
        arguments=WhyArguments,
        run=run,
        access=Access.VIEWER,
        is_parallel=True,
        reach=ToolEffectReach.NOTHING,
        is_default=True,
    )


def _explain_skill_selection_of_turn(view: LibraryView) -> list[str]:
    chosen = view.selection
    left_out = [
        f"{name} ({reason})" for name in chosen.left_out if (reason := view.explain_why_skill_is_unavailable(name))
    ]
    more = f" and {len(left_out) - _MOST_NAMED} more" if len(left_out) > _MOST_NAMED else ""
    parts = {
        "Asked for": view.request,
        "By a rule": "; ".join(f"{choice.name} ({choice.reason})" for choice in chosen.eager),
        "Loaded in this turn": ", ".join(view.loaded),
        "Left out": "; ".join(left_out[:_MOST_NAMED]) + more,
    }
    said = [f"{label}: {text}" for label, text in parts.items() if text]
    return [
        *said,
        f"{len(view.list_loadable_skill_names())} skills can be found with search_skills and loaded with recall_skill.",
    ]


def _explain_placement_of_one_skill(view: LibraryView, finder: SkillFinder, wanted: str, asked: str) -> list[str]:
    name, may_load = names.canonicalize_name(wanted), view.list_loadable_skill_names()
    if view.is_skill_only_pending(name):
        return [f"'{name}' was written in this conversation and needs review. It can be recalled here meanwhile."]
    if name not in may_load and not view.explain_why_skill_is_unavailable(name):
        near = names.find_closest_name(wanted, may_load)
        hint = f"Did you mean '{near}'?" if near else "search_skills finds what there is."
        raise ToolFailed(f"There is no skill '{wanted}'. {hint}")
    seen, eligible = view.snapshot, view.selection.list_eligible_names()
    results = finder.search(asked, k=len(eligible) or 1, among=eligible, at=seen) if asked.strip() else None
    found = explain_skill_placement(seen.by_name[name], view.selection, view.menu, results)
    return replace(found, compared=view.describe_compared_version(name)).sentences
