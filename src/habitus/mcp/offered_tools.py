"""Which tools a client of MCP is offered, and how: schemas, annotations, results, every text within its limit.

The tools themselves are those of the agent, in `agent/tools`; `Tool.access` and its profiles say who has one here.
Resources and prompts are for everybody whom the server lets in.
"""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from habitus.access import Access
from habitus.agent.tools.registry import Reach, Tool
from habitus.events import ToolResult
from habitus.mcp.scope import Scope

TEXT_BYTES = 2000  # of one description; clients cut longer ones, or leave the tool out


def is_offered(tool: Tool, scope: Scope) -> bool:
    """Whether a client of this scope has the tool."""
    if tool.access is None or not tool.is_in(scope.profile) or _access(scope) < tool.access:
        return False
    return tool.reach is Reach.NOTHING or bool(tool.skill) or not scope.read_only


def is_admin(scope: Scope) -> bool:
    """Who may call the code of skills whatever it does, also by a name that is not listed."""
    return _access(scope) >= Access.ADMIN


def _access(scope: Scope) -> Access:
    return Access.OWNER if scope.person is None else scope.person.role.access


def as_tool(tool: Tool) -> types.Tool:
    always: Any = {"anthropic/alwaysLoad": True} if tool.is_pinned else None
    return types.Tool(
        name=tool.name,
        description=within(tool.description),
        input_schema={"type": "object", **tool.parameters},
        output_schema=None if tool.returns is None else dict(tool.returns),
        annotations=_annotations(tool),
        _meta=always,
    )


def _annotations(tool: Tool) -> types.ToolAnnotations:
    """Annotations a client may rely on when it asks the person; of code and recipes, what the person has granted
    them."""
    is_looking = tool.reach is Reach.NOTHING
    return types.ToolAnnotations(
        read_only_hint=is_looking,
        destructive_hint=None if is_looking else tool.takes_away,
        idempotent_hint=None if is_looking else tool.is_repeatable,
        open_world_hint=tool.reach is Reach.NETWORK,
    )


def only_looks(tool: types.Tool | None) -> bool:
    return tool is not None and tool.annotations is not None and tool.annotations.read_only_hint is True


def as_result(result: ToolResult, declared: types.Tool | None = None) -> types.CallToolResult:
    """What is one JSON object is handed over as such, too, and so is whatever a tool returns that declared one."""
    structured = _structured_content(result.content)
    if structured is None and declared is not None and declared.output_schema is not None:
        structured = {"result": result.content}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.content)],
        structured_content=structured,
        is_error=not result.outcome.is_ok,
    )


def refusal(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"Error: {text}")], is_error=True)


def _structured_content(content: str) -> dict[str, Any] | None:
    if not content.startswith("{"):
        return None
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def within(text: str, limit: int = TEXT_BYTES) -> str:
    """The text, cut where it has more bytes than a client takes."""
    written = text.encode()
    return text if len(written) <= limit else written[: limit - 3].decode("utf-8", "ignore") + "…"
