"""Tools for code: the scratchpad, and tools that create, list, test, retire and restore other tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, assert_never

from pydantic import Field

from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.agent.library.sandbox_services import build_skill_services_for_sandbox
from habitus.agent.stream import Consent, ConsentQuestion
from habitus.agent.tools.registry import (
    Tool,
    ToolArguments,
    ToolCallContext,
    build_json_result,
    get_docstring_as_tool_description,
    rewrite_commands_as_notes_for_person,
)
from habitus.agent.tools.writing_skills import SkillChangeSubmitter
from habitus.errors import Refused, ToolFailed
from habitus.events import OK, AgentEvent, EventKind, Outcome, ToolResult, build_event, build_failed_outcome
from habitus.sandbox.child import HostServices
from habitus.sandbox.model import Cell
from habitus.sandbox.scratchpads import CellObserver, SessionScratchpads
from habitus.skills import names
from habitus.skills.model import Author
from habitus.text import clean_to_one_line, escape_lines_resembling_prompt_marks
from habitus.tools.model import CodeTool
from habitus.tools.service import ToolService


class ScratchpadArguments(ToolArguments):
    """Run Python in a scratchpad: variables, imports and files stay from cell to cell. Print what you want to see. Say
    in one_line_description what the cell should do. Report long work with progress('…')."""

    action: Literal["exec", "view", "dump", "reset", "remove", "install"] = Field(
        description="exec runs code; view shows the cells so far; dump gives them as one document; reset forgets the "
        "variables; remove forgets everything; install adds packages."
    )
    name: str = Field(default="main", description="Which scratchpad. Each is a separate process: stay with one.")
    code: str | None = Field(default=None, description="For exec: the Python code of one cell.")
    one_line_description: str | None = Field(default=None, description="For exec: what the cell should do, in a line.")
    estimated_execution_time_seconds: float | None = Field(
        default=None, ge=0, description="For exec: how long it should take, if more than some seconds."
    )
    packages: list[str] | None = Field(default=None, description="For install: the packages.")


def build_scratchpad_tool(
    pads: SessionScratchpads,
    observers: Sequence[CellObserver] = (),
    lessons: Sequence[str] = (),
    readable: Sequence[Path] = (),
) -> Tool:
    """Build the scratchpad tool.

    `lessons` from earlier cells and the `readable` folders of the person become part of the description, which is fixed
    for the session.
    """

    async def run(given: ScratchpadArguments, running: ToolCallContext) -> ToolResult:
        match given.action:
            case "exec":
                return await _run_scratchpad_cell(pads, observers, given, running)
            case "view":
                return ToolResult(content=_render_cell_outputs_for_model(pads.list_cells(given.name)))
            case "dump":
                return ToolResult(content=escape_lines_resembling_prompt_marks(pads.render_markdown(given.name)))
            case "reset":
                await pads.drop_variables_and_cells(given.name)
                running.observe(
                    _build_scratchpad_event_of_round(
                        EventKind.SCRATCHPAD_RESET, running, name=given.name, reason="asked"
                    )
                )
                return ToolResult(content=f"Scratchpad '{given.name}' is empty again.")
            case "remove":
                await pads.close_and_delete_scratchpad(given.name)
                return ToolResult(content=f"Scratchpad '{given.name}' was deleted.")
            case "install":
                if not given.packages:
                    raise ToolFailed("Name the packages to install in 'packages'.")
                return ToolResult(content=await pads.install_allowed_packages(given.name, given.packages))

    named = ", ".join(clean_to_one_line(str(path)) for path in readable)
    folders = f"\n\nCells may read, not write, what the person has in: {named}." if named else ""
    learned = (
        "\n".join(["\n\nWhat earlier cells taught:", *(f"- {clean_to_one_line(lesson)}" for lesson in lessons)])
        if lessons
        else ""
    )
    return Tool(
        description=get_docstring_as_tool_description(ScratchpadArguments) + folders + learned,
        arguments=ScratchpadArguments,
        run=run,
        access=Access.ADMIN,
        is_destructive=True,
    )


async def _run_scratchpad_cell(
    pads: SessionScratchpads, observers: Sequence[CellObserver], given: ScratchpadArguments, running: ToolCallContext
) -> ToolResult:
    code = given.code or ""
    # Some providers drop very long arguments silently.
    if not code.strip():
        running.observe(_build_scratchpad_event_of_round(EventKind.SCRATCHPAD_EMPTY_CODE, running, name=given.name))
        raise ToolFailed(
            "The cell is empty: the code did not arrive, which happens when it is very long. Send smaller cells."
        )
    described = given.one_line_description or ""
    running.observe(
        _build_scratchpad_event_of_round(
            EventKind.SCRATCHPAD_CALL, running, name=given.name, code_len=len(code), one_line_description=described
        )
    )
    cell = await pads.execute_code(
        given.name,
        code,
        description=described,
        estimated_s=given.estimated_execution_time_seconds,
        observers=observers,
        watch=_build_last_line_reporter(running),
    )
    running.observe(_build_cell_result_event(given.name, cell, running))
    return ToolResult(
        content=_render_cell_output_for_model(cell), outcome=_get_cell_outcome(cell), created_files=cell.made
    )


def _build_cell_result_event(name: str, cell: Cell, running: ToolCallContext) -> AgentEvent:
    if cell.stopped:
        return _build_scratchpad_event_of_round(
            EventKind.SCRATCHPAD_KILLED, running, name=name, reason=cell.error or ""
        )
    return _build_scratchpad_event_of_round(
        EventKind.SCRATCHPAD_RESULT,
        running,
        name=name,
        success=cell.error is None,
        stdout_len=len(cell.stdout),
        error=cell.error or "",
    )


def _get_cell_outcome(cell: Cell) -> Outcome:
    if cell.error is None or not cell.outcome.is_ok:
        return cell.outcome
    return build_failed_outcome(cell.error.strip().splitlines()[-1][:500])


def _build_scratchpad_event_of_round(kind: EventKind, running: ToolCallContext, **detail: object) -> AgentEvent:
    return build_event(kind, detail, round_idx=running.round_idx)


def _build_last_line_reporter(running: ToolCallContext) -> Callable[[str], None]:
    """Return a callback that reports the last line of the output as progress."""
    # A secret may be split between two pieces of output.
    stream = running.redactor.open_redacting_stream()

    def watch(text: str) -> None:
        lines = [line for line in stream.feed(text).splitlines() if line.strip()]
        if lines:
            running.progress(lines[-1][:200])

    return watch


def _render_cell_output_for_model(cell: Cell) -> str:
    parts = []
    if cell.stdout.strip():
        parts.append(escape_lines_resembling_prompt_marks(cell.stdout.rstrip()))
    if cell.stderr.strip():
        parts.append(f"[stderr]\n{escape_lines_resembling_prompt_marks(cell.stderr.rstrip())}")
    if cell.error:
        parts.append(f"[error]\n{escape_lines_resembling_prompt_marks(cell.error.rstrip())}")
    parts += [f"[progress] {clean_to_one_line(line)}" for line in cell.progress]
    parts += [f"[log] {clean_to_one_line(line)}" for line in cell.logs]
    parts += [f"[made] The person is shown {clean_to_one_line(path)}" for path in cell.made]
    return "\n\n".join(parts) or "(The cell ran and printed nothing.)"


def _render_cell_outputs_for_model(cells: Sequence[Cell]) -> str:
    if not cells:
        return "No cell has run."
    return "\n\n".join(
        f"# Cell {number}: {clean_to_one_line(cell.description)}\n{_render_cell_output_for_model(cell)}"
        for number, cell in enumerate(cells, 1)
    )


T = TypeVar("T")


def build_tool_making_tools(tools: ToolService, changes: SkillChangeSubmitter) -> list[Tool]:
    """Build the tools that create and manage tools."""
    return [build_create_tool_tool(tools, changes), build_code_tool_management_tool(tools, changes)]


class CreateToolArguments(ToolArguments):
    """Make a Python program a tool that you can call by name from now on. It is run in a sandbox with the test payload
    first and is refused, with the reason, if it fails or prints nothing."""

    name: str = Field(description="A short unique name in lowercase with hyphens or underscores.")
    description: str = Field(description="What it does and when to call it.")
    parameters_schema: dict[str, Any] = Field(description="JSON Schema (type object) of its arguments.")
    python_code: str = Field(
        description="A whole Python program: reads its arguments as JSON from sys.argv[1], prints its result."
    )
    test_payload: dict[str, Any] = Field(description="Arguments to test it with; they must satisfy the schema.")
    dependencies: list[str] | None = Field(default=None, description="Packages it needs beside the standard library.")


def build_create_tool_tool(tools: ToolService, changes: SkillChangeSubmitter) -> Tool:
    """Build the tool that creates a tool from code."""

    async def run(given: CreateToolArguments, running: ToolCallContext) -> ToolResult:
        is_coined = not await run_in_thread(lambda: changes.is_name_taken(names.canonicalize_name(given.name)))
        name = names.to_tool_name(names.canonicalize_and_check_name(given.name, is_coined=is_coined))
        running.progress("testing it in the sandbox")
        made = await tools.create(
            given.name,
            given.description,
            given.parameters_schema,
            given.python_code,
            given.test_payload,
            changes.build_agent_author("the agent wrote a tool"),
            dependencies=tuple(given.dependencies or ()),
            conversation=changes.conversation,
            services=build_skill_services_for_sandbox(changes.view),
        )
        await run_in_thread(changes.view.take_snapshot)
        told: dict[str, object] = {"name": name, "next": f"call {name} by its name"}
        if made.proposal is not None and not await _ask_person_to_approve_tool(
            changes, made.proposal, name, given.python_code
        ):
            told |= {"status": "proposed", "proposal": made.proposal}
        return build_json_result(told)

    return Tool(arguments=CreateToolArguments, run=run, access=Access.ADMIN, stores_arguments=True)


async def _ask_person_to_approve_tool(changes: SkillChangeSubmitter, proposal: int, name: str, code: str) -> bool:
    """Ask the person to approve the tested code now. False if they decide later; `Refused` if they say no."""
    answer = await changes.ask(ConsentQuestion(text=f"'{name}' passed its test. Keep it as a tool?", detail=code))
    match answer:
        case Consent.YES | Consent.ALWAYS:
            await run_in_thread(
                lambda: changes.retake_snapshot_after_change(changes.review.approve(proposal, changes.person))
            )
            return True
        case Consent.NO:
            await run_in_thread(lambda: _reject_proposal_as_already_reported(changes, proposal))
            raise Refused("The person does not want it as a tool.", hint="Go on without it.")
        case Consent.LATER:
            return False
        case never:
            assert_never(never)


def _reject_proposal_as_already_reported(changes: SkillChangeSubmitter, proposal: int) -> None:
    """Reject the proposal and note that the agent knows, since it hears of it at once."""
    changes.review.reject(proposal, changes.person, "rejected in the conversation")
    changes.review.mark_rejections_reported([proposal])


class ManageSkillsArguments(ToolArguments):
    """Look after the tools that were made from code: list them with their state, test one, retire one that no longer
    works, restore one."""

    action: Literal["list", "test", "retire", "restore"] = Field(
        description="list the tools; test one with its kept cases; retire one to the archive; restore one from there."
    )
    name: str | None = Field(default=None, description="Which tool; not for list.")


def build_code_tool_management_tool(tools: ToolService, changes: SkillChangeSubmitter) -> Tool:
    """Build the tool that lists, tests, retires and restores tools."""

    async def run(given: ManageSkillsArguments, running: ToolCallContext) -> ToolResult:
        if given.action == "list":
            there, left = await run_in_thread(tools.all), await run_in_thread(tools.list_restorable_tools)
            retired = [{"name": names.to_tool_name(t.name), "status": "retired", "reason": t.reason} for t in left]
            return build_json_result({"tools": [*map(_build_tool_status_fields, there), *retired]})
        if not given.name:
            raise ToolFailed(f"Say which tool to {given.action} in 'name'.")
        match given.action:
            case "test":
                return await _test_tool_with_kept_cases(
                    tools, given.name, build_skill_services_for_sandbox(changes.view)
                )
            case "retire":
                gone = await _change_tool_if_person_confirms(
                    changes, tools.retire, given.name, f"Retire the tool '{given.name}'?"
                )
                return build_json_result({"name": gone.name, "retired": True})
            case "restore":
                back = await _change_tool_if_person_confirms(
                    changes, tools.restore, given.name, f"Restore the tool '{given.name}'?"
                )
                return build_json_result({"name": back.name, "status": back.status.value})

    return Tool(arguments=ManageSkillsArguments, run=run, access=Access.ADMIN, is_destructive=True)


def _build_tool_status_fields(tool: CodeTool) -> dict[str, object]:
    reason = rewrite_commands_as_notes_for_person(tool.reason)
    return {"name": tool.callable_name, "status": tool.status.value, "reason": reason, "does": tool.description}


async def _test_tool_with_kept_cases(tools: ToolService, name: str, services: HostServices) -> ToolResult:
    report = await tools.test(name, services=services)
    outcome = (
        OK
        if report.passed
        else build_failed_outcome(f"{len(report.cases_counting_against_tool)} of {len(report.results)} cases failed")
    )
    return build_json_result({"name": name, "passed": report.passed, "cases": len(report.results)}, outcome)


async def _change_tool_if_person_confirms(
    changes: SkillChangeSubmitter, do: Callable[[str, Author], T], name: str, text: str
) -> T:
    if await changes.ask(ConsentQuestion(text=text)) is not Consent.YES:
        raise Refused("Only a person can do that, and none said yes.", hint="Say what you would change, and why.")
    return await run_in_thread(lambda: changes.retake_snapshot_after_change(do(name, changes.person)))
