"""The code stages of skills as tools of their own, which a model calls by name."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from habitus.agent.background import in_thread
from habitus.agent.tools.registry import Reach, Running, Tool
from habitus.events import ToolResult
from habitus.evidence.model import Item, ItemKind
from habitus.sandbox.model import Permissions, ToolRun
from habitus.text import block, one_line
from habitus.tools.model import CodeTool

Run = Callable[[str, object], Awaitable[ToolRun]]
FallBack = Callable[[str, str], str]  # skill and tool → where to go on


def code_tools(tools: Iterable[CodeTool], run: Run, fall_back: FallBack) -> list[Tool]:
    return [_tool_for(tool, run, fall_back) for tool in tools]


def _tool_for(tool: CodeTool, run: Run, fall_back: FallBack) -> Tool:
    async def call(given: object, running: Running) -> ToolResult:
        done = await run(tool.name, given)
        below = "" if done.outcome.is_ok else await in_thread(partial(fall_back, tool.name, tool.callable_name))
        said = [f"[{done.notice}]" if done.notice else "", show_run(done), below]
        return ToolResult(content="\n\n".join(part for part in said if part), outcome=done.outcome)

    reach = _reach(tool.permissions)
    return Tool(
        name=tool.callable_name,
        description=describe_tool(tool),
        arguments=tool.parameters,
        run=call,
        is_parallel=True,
        version=tool.version,
        skill=tool.name,
        item=Item(kind=ItemKind.TOOL, name=tool.name, version=tool.version) if tool.version else None,
        reach=reach,
        takes_away=reach is not Reach.NOTHING,
        returns=tool.returns,
    )


def _reach(granted: Permissions) -> Reach:
    if granted.network:
        return Reach.NETWORK
    return Reach.HERE if granted.write else Reach.NOTHING


def describe_tool(tool: CodeTool) -> str:
    """What it does, how it is called, and how it is not."""
    name = tool.callable_name
    example = f" Example: {name}({json.dumps(tool.example, ensure_ascii=False)})." if tool.example is not None else ""
    return (
        f"{one_line(tool.description).rstrip('.')}. Call `{name}` directly with its arguments.{example} "
        f"Do not import it or run it in the scratchpad, and do not pass its name to another tool."
    )


def show_run(done: ToolRun) -> str:
    """What the tool printed; when it failed, why."""
    printed = block(done.stdout.strip())
    if done.outcome.is_ok:
        return printed
    parts = [f"Error: {one_line(done.outcome.reason)}", printed, block(done.stderr.strip())]
    return "\n\n".join(part for part in dict.fromkeys(parts) if part)
