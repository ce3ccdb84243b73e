"""Tools, the skills of tested code: create, list, show, run, test, remove and restore them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from habitus.access import Access
from habitus.app.conversations import running_code
from habitus.app.home import Home
from habitus.app.use_cases.declaration import (
    PageCursor,
    RestPageLimit,
    argument,
    json_argument,
    json_option,
    option,
    paginate_items,
    text_option,
    use_case,
)
from habitus.errors import Refused
from habitus.events import OutcomeKind
from habitus.plain_data import INLINE
from habitus.sandbox.model import Permissions, ToolRunResult
from habitus.text import clean_to_one_line
from habitus.tools.model import CodeTool, RetiredTool, ToolCaseRerunReport, ToolCreationResult, ToolStatus

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_EXAMPLE = {"text": "one two"}
_NO_ARGUMENTS: dict[str, Any] = {}
ToolName = Annotated[str, argument("A tool.", completes="skills")]


@dataclass(frozen=True, kw_only=True)
class CreateToolRequest:
    name: Annotated[str, argument("The name: lower-case letters, digits and hyphens.")]
    description: Annotated[str, option("One sentence: what it does.", "-d")]
    code: Annotated[str, text_option("The Python file ('-' reads standard input).")]
    payload: Annotated[Any, json_option("JSON it must work on, or a file with it.", "-p")] = field(default_factory=dict)
    schema: Annotated[Any, json_option("JSON Schema of its parameters, or a file with it.", "-s")] = field(
        default_factory=lambda: _NO_PARAMETERS
    )
    network: Annotated[bool, option("Let it use the network.")] = False
    read: Annotated[tuple[Path, ...], option("Let it read this file or folder.")] = ()
    write: Annotated[tuple[Path, ...], option("Let it read and change this folder.")] = ()
    env: Annotated[tuple[str, ...], option("Let it see this variable.")] = ()
    needs: Annotated[tuple[str, ...], option("A package it needs, e.g. 'pandas>=2'.")] = ()
    drop_cases: Annotated[bool, option("Skip the cases of the tool it replaces.")] = False

    @property
    def permissions(self) -> Permissions:
        """Return what the tool may do, with absolute paths."""
        return Permissions(
            network=self.network,
            read=tuple(path.absolute() for path in self.read),
            write=tuple(path.absolute() for path in self.write),
            env=self.env,
        )


@use_case(
    "tools new",
    access=Access.OWNER,
    example={"name": "count-words", "description": "Counts words.", "code": "", "payload": _EXAMPLE},
    undo="undo",
)
def create_tool(home: Home, request: CreateToolRequest) -> ToolCreationResult:
    """Create a tool: its code runs in the sandbox on the payload, and is stored if it works."""
    making = running_code.open_tools_and_run_work(
        home,
        lambda tools: tools.create(
            request.name,
            request.description,
            request.schema,
            request.code,
            request.payload,
            home.build_author("new tool"),
            permissions=request.permissions,
            dependencies=request.needs,
            drop_cases=request.drop_cases,
        ),
    )
    return asyncio.run(making)


@dataclass(frozen=True, kw_only=True)
class ToolPage:
    tools: Sequence[CodeTool]
    retired: Sequence[RetiredTool]
    next: str | None
    total: int


@use_case("tools list", route="GET /tools", access=Access.OPEN_READING)
def list_tools(home: Home, limit: RestPageLimit = None, after: PageCursor = "") -> ToolPage:
    """List tools with their status, and retired ones with the command that restores them."""
    page = paginate_items("tools", home.tools.all(), lambda tool: tool.name, limit=limit, after=after)
    return ToolPage(tools=page.items, retired=home.tools.list_restorable_tools(), next=page.next, total=page.total)


@use_case("tools show", route="GET /skills/{name}/tool", access=Access.OPEN_READING, example={"name": "count-words"})
def show_tool(home: Home, name: ToolName) -> running_code.ToolDetails:
    """Show one tool: its parameters, permissions, results so far, and its code."""
    return running_code.get_tool_details(home, name)


@use_case(
    "tools run",
    route="POST /skills/{name}/run",
    access=Access.ADMIN,
    example={"name": "count-words", "payload": dict(_EXAMPLE)},
)
def run_tool(
    home: Home,
    name: ToolName,
    payload: Annotated[
        dict[str, Any], json_argument("JSON, a file with it, or '-' for standard input.")
    ] = _NO_ARGUMENTS,
) -> ToolRunResult:
    """Call a tool and print its output; this counts as a use. Exit code 1 if it fails."""
    result = running_code.run_tool(home, name, payload)
    if result.outcome.kind is OutcomeKind.FAILED and (tool := home.tools.get(name)).status is ToolStatus.DEGRADED:
        # Only here: it imports what mines the journal, which takes a noticeable time.
        from habitus.app.learning import repairing

        failed = repairing.FailedToolInput(payload=payload, error=clean_to_one_line(result.outcome.reason))
        inputs = [*repairing.collect_failed_inputs(home, tool), failed]
        with suppress(Refused):
            asyncio.run(repairing.propose_tool_repair(home, tool, inputs))
    return result


@dataclass(frozen=True, kw_only=True)
class ToolTestReport:
    name: str
    report: ToolCaseRerunReport = field(metadata=INLINE)


@dataclass(frozen=True, kw_only=True)
class RunToolCasesResult:
    tested: Sequence[ToolTestReport]

    @property
    def is_failed(self) -> bool:
        """Whether a test case failed."""
        return not all(one.report.passed for one in self.tested)


@use_case("tools test", route="POST /skills/{names}/test", access=Access.ADMIN, example={"names": ("count-words",)})
def run_tool_cases(
    home: Home, names: Annotated[tuple[str, ...], argument("Tools; default is all.", completes="skills")] = ()
) -> RunToolCasesResult:
    """Run the stored test cases again. Exit code 1 if one fails."""
    return run_tool_cases_with_progress(home, names, lambda name: None)


def run_tool_cases_with_progress(
    home: Home, names: Sequence[str], on_start: Callable[[str], None]
) -> RunToolCasesResult:
    """Run the stored test cases, and call `on_start` with each tool's name before its cases run."""
    names = [home.tools.get(name).name for name in names or [tool.name for tool in home.tools.all()]]
    reports = running_code.run_tool_test_cases(home, names, on_start)
    return RunToolCasesResult(tested=[ToolTestReport(name=name, report=report) for name, report in reports.items()])


@use_case("tools remove", access=Access.ADMIN, example={"name": "count-words"}, undo="tools restore")
def remove_tool(home: Home, name: ToolName) -> RetiredTool:
    """Retire a tool; a skill that consists of nothing else is archived."""
    return home.tools.retire(name, home.build_author())


@dataclass(frozen=True, kw_only=True)
class RestoreToolResult:
    tool: CodeTool = field(metadata=INLINE)
    undo: tuple[str, ...]


@use_case("tools restore", access=Access.ADMIN, example={"name": "count-words"}, undo="tools remove")
def restore_tool(home: Home, name: ToolName) -> RestoreToolResult:
    """Restore a removed or retired tool as it was."""
    tool = home.tools.restore(name, home.build_author())
    return RestoreToolResult(tool=tool, undo=("tools", "remove", f"{tool.name}@{tool.layer}"))
