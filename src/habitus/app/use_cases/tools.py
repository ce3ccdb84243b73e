"""Tools, the skills of tested code: create, list, show, run, test, remove and restore them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from habitus.access import Access
from habitus.app.conversations import running_code
from habitus.app.conversations.running_code import ShownTool
from habitus.app.home import Home
from habitus.app.use_cases.declaration import (
    after_option,
    argument,
    json_argument,
    json_option,
    limit_option,
    option,
    page_of,
    text_option,
    use_case,
)
from habitus.plain_data import INLINE
from habitus.sandbox.model import Permissions, ToolRun
from habitus.tools.model import CodeTool, Created, Regression, Retired

_NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
_EXAMPLE: Mapping[str, Any] = {"text": "one two"}


@dataclass(frozen=True, kw_only=True)
class NewTool:
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
    drop_cases: bool = option("It need not pass the cases of the tool it replaces.", default=False)

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
    example=NewTool(name="count-words", description="Counts words.", code="", payload=_EXAMPLE),
    undo="undo",
)
def new(home: Home, wanted: NewTool) -> Created:
    """Create a tool: its code runs in the sandbox on the payload, and is stored if it works."""
    making = running_code.with_tools(
        home,
        lambda tools: tools.create(
            wanted.name,
            wanted.description,
            wanted.schema,
            wanted.code,
            wanted.payload,
            home.person("new tool"),
            permissions=wanted.permissions,
            dependencies=wanted.needs,
            drop_cases=wanted.drop_cases,
        ),
    )
    return asyncio.run(making)


@dataclass(frozen=True, kw_only=True)
class ToolList:
    limit: int | None = limit_option(None, rest_default=100)
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class ToolPage:
    tools: Sequence[CodeTool]
    retired: Sequence[Retired]
    next: str | None
    total: int


@use_case("tools list", route="GET /tools", access=Access.OPEN_READING, example=ToolList())
def list_tools(home: Home, wanted: ToolList) -> ToolPage:
    """List tools with their status, and retired ones with the command that restores them."""
    page = page_of("tools", home.tools.all(), lambda tool: tool.name, limit=wanted.limit, after=wanted.after)
    return ToolPage(tools=page.items, retired=home.tools.list_retired(), next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class OneTool:
    name: str = argument("A tool.", completes="skills")


@use_case(
    "tools show", route="GET /skills/{name}/tool", access=Access.OPEN_READING, example=OneTool(name="count-words")
)
def show(home: Home, wanted: OneTool) -> ShownTool:
    """Show one tool: its parameters, permissions, results so far, and its code."""
    return running_code.show_tool(home, wanted.name)


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    name: str = argument("A tool.", completes="skills")
    payload: dict[str, Any] = json_argument("JSON, a file with it, or '-' for standard input.")


@use_case(
    "tools run",
    route="POST /skills/{name}/run",
    access=Access.ADMIN,
    example=ToolCall(name="count-words", payload=dict(_EXAMPLE)),
)
def run(home: Home, wanted: ToolCall) -> ToolRun:
    """Call a tool and print its output; this counts as a use. Exit code 1 if it fails."""
    return running_code.run_tool(home, wanted.name, wanted.payload)


@dataclass(frozen=True, kw_only=True)
class ToolNames:
    names: tuple[str, ...] = argument("Tools; all without.", default=(), completes="skills")


@dataclass(frozen=True, kw_only=True)
class ToolTestReport:
    name: str
    report: Regression = field(metadata=INLINE)


@dataclass(frozen=True, kw_only=True)
class ToolTestReports:
    tested: Sequence[ToolTestReport]

    @property
    def is_failed(self) -> bool:
        """Whether a test case failed."""
        return not all(one.report.passed for one in self.tested)


@use_case(
    "tools test", route="POST /skills/{names}/test", access=Access.ADMIN, example=ToolNames(names=("count-words",))
)
def run_cases(home: Home, wanted: ToolNames) -> ToolTestReports:
    """Run the stored test cases again. Exit code 1 if one fails."""
    return run_cases_of(home, wanted, lambda name: None)


def run_cases_of(home: Home, wanted: ToolNames, begin: Callable[[str], None]) -> ToolTestReports:
    """Run the stored test cases, and call `on_start` with each tool's name before its cases run."""
    names = [home.tools.get(name).name for name in wanted.names or [tool.name for tool in home.tools.all()]]
    reports = running_code.check_tools(home, names, begin)
    return ToolTestReports(tested=[ToolTestReport(name=name, report=report) for name, report in reports.items()])


@use_case("tools remove", access=Access.ADMIN, example=OneTool(name="count-words"), undo="tools restore")
def remove(home: Home, wanted: OneTool) -> Retired:
    """Retire a tool; a skill that consists of nothing else is archived."""
    return home.tools.retire(wanted.name, home.person())


@dataclass(frozen=True, kw_only=True)
class RestoredTool:
    tool: CodeTool = field(metadata=INLINE)
    undo: tuple[str, ...]


@use_case("tools restore", access=Access.ADMIN, example=OneTool(name="count-words"), undo="tools remove")
def restore(home: Home, wanted: OneTool) -> RestoredTool:
    """Restore a removed or retired tool as it was."""
    tool = home.tools.restore(wanted.name, home.person())
    return RestoredTool(tool=tool, undo=("tools", "remove", f"{tool.name}@{tool.layer}"))
