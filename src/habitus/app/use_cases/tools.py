"""Tools, the skills of tested code: create, list, show, run, test, remove and restore them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from habitus.access import Access
from habitus.app.conversations import running_code
from habitus.app.conversations.running_code import ToolDetails
from habitus.app.home import Home
from habitus.app.use_cases.declaration import (
    after_option,
    argument,
    json_argument,
    json_option,
    limit_option,
    option,
    paginate_items,
    text_option,
    use_case,
)
from habitus.plain_data import INLINE
from habitus.sandbox.model import Permissions, ToolRunResult
from habitus.tools.model import CodeTool, RegressionReport, RetiredTool, ToolCreationResult

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_EXAMPLE: Mapping[str, Any] = {"text": "one two"}


@dataclass(frozen=True, kw_only=True)
class CreateToolRequest:
    name: str = argument("The name: lower-case letters, digits and hyphens.")
    description: str = option("One sentence: what it does.", "-d", default=MISSING)
    code: str = text_option("The Python file ('-' reads standard input).", default=MISSING)
    payload: Any = json_option("JSON it must work on, or a file with it.", "-p", default={})
    schema: Any = json_option("JSON Schema of its parameters, or a file with it.", "-s", default=_NO_PARAMETERS)
    network: bool = option("Let it use the network.", default=False)
    read: tuple[Path, ...] = option("Let it read this file or folder.", default=())
    write: tuple[Path, ...] = option("Let it read and change this folder.", default=())
    env: tuple[str, ...] = option("Let it see this variable.", default=())
    needs: tuple[str, ...] = option("A package it needs, e.g. 'pandas>=2'.", default=())
    drop_cases: bool = option("Skip the cases of the tool it replaces.", default=False)

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
    example=CreateToolRequest(name="count-words", description="Counts words.", code="", payload=_EXAMPLE),
    undo="undo",
)
def create_tool(home: Home, request: CreateToolRequest) -> ToolCreationResult:
    """Create a tool: its code runs in the sandbox on the payload, and is stored if it works."""
    making = running_code.call_with_tools(
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
class ListToolsRequest:
    limit: int | None = limit_option(None, rest_default=100)
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class ToolPage:
    tools: Sequence[CodeTool]
    retired: Sequence[RetiredTool]
    next: str | None
    total: int


@use_case("tools list", route="GET /tools", access=Access.OPEN_READING, example=ListToolsRequest())
def list_tools(home: Home, request: ListToolsRequest) -> ToolPage:
    """List tools with their status, and retired ones with the command that restores them."""
    page = paginate_items("tools", home.tools.all(), lambda tool: tool.name, limit=request.limit, after=request.after)
    return ToolPage(tools=page.items, retired=home.tools.list_retired(), next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class ToolRequest:
    name: str = argument("A tool.", completes="skills")


@use_case(
    "tools show", route="GET /skills/{name}/tool", access=Access.OPEN_READING, example=ToolRequest(name="count-words")
)
def show_tool(home: Home, request: ToolRequest) -> ToolDetails:
    """Show one tool: its parameters, permissions, results so far, and its code."""
    return running_code.get_tool_details(home, request.name)


@dataclass(frozen=True, kw_only=True)
class RunToolRequest:
    name: str = argument("A tool.", completes="skills")
    payload: dict[str, Any] = json_argument("JSON, a file with it, or '-' for standard input.")


@use_case(
    "tools run",
    route="POST /skills/{name}/run",
    access=Access.ADMIN,
    example=RunToolRequest(name="count-words", payload=dict(_EXAMPLE)),
)
def run_tool(home: Home, request: RunToolRequest) -> ToolRunResult:
    """Call a tool and print its output; this counts as a use. Exit code 1 if it fails."""
    return running_code.run_tool(home, request.name, request.payload)


@dataclass(frozen=True, kw_only=True)
class RunToolCasesRequest:
    names: tuple[str, ...] = argument("Tools; default is all.", default=(), completes="skills")


@dataclass(frozen=True, kw_only=True)
class ToolTestReport:
    name: str
    report: RegressionReport = field(metadata=INLINE)


@dataclass(frozen=True, kw_only=True)
class RunToolCasesResult:
    tested: Sequence[ToolTestReport]

    @property
    def is_failed(self) -> bool:
        """Whether a test case failed."""
        return not all(one.report.passed for one in self.tested)


@use_case(
    "tools test",
    route="POST /skills/{names}/test",
    access=Access.ADMIN,
    example=RunToolCasesRequest(names=("count-words",)),
)
def run_tool_cases(home: Home, request: RunToolCasesRequest) -> RunToolCasesResult:
    """Run the stored test cases again. Exit code 1 if one fails."""
    return run_tool_cases_with_progress(home, request, lambda name: None)


def run_tool_cases_with_progress(
    home: Home, request: RunToolCasesRequest, on_start: Callable[[str], None]
) -> RunToolCasesResult:
    """Run the stored test cases, and call `on_start` with each tool's name before its cases run."""
    names = [home.tools.get(name).name for name in request.names or [tool.name for tool in home.tools.all()]]
    reports = running_code.run_tool_cases(home, names, on_start)
    return RunToolCasesResult(tested=[ToolTestReport(name=name, report=report) for name, report in reports.items()])


@use_case("tools remove", access=Access.ADMIN, example=ToolRequest(name="count-words"), undo="tools restore")
def remove_tool(home: Home, request: ToolRequest) -> RetiredTool:
    """Retire a tool; a skill that consists of nothing else is archived."""
    return home.tools.retire(request.name, home.build_author())


@dataclass(frozen=True, kw_only=True)
class RestoreToolResult:
    tool: CodeTool = field(metadata=INLINE)
    undo: tuple[str, ...]


@use_case("tools restore", access=Access.ADMIN, example=ToolRequest(name="count-words"), undo="tools remove")
def restore_tool(home: Home, request: ToolRequest) -> RestoreToolResult:
    """Restore a removed or retired tool as it was."""
    tool = home.tools.restore(request.name, home.build_author())
    return RestoreToolResult(tool=tool, undo=("tools", "remove", f"{tool.name}@{tool.layer}"))
