"""Which tools an MCP client is offered, with their schemas, annotations and results.

The tools are those of the agent, in `agent/tools`; `Tool.access` and the profiles decide who gets one. Resources and
prompts are for everybody who may connect.
"""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from habitus.access import Access
from habitus.agent.tools.registry import Tool, ToolEffectReach
from habitus.events import ToolResult
from habitus.mcp.server_options import McpServerOptions

# Clients truncate longer descriptions or drop the tool.
MAX_TEXT_BYTES = 2000


def is_tool_offered(tool: Tool, scope: McpServerOptions) -> bool:
    """Return whether a client with these options gets the tool."""
    if tool.access is None or not tool.is_in_profile(scope.profile) or _get_client_access(scope) < tool.access:
        return False
    return tool.reach is ToolEffectReach.NOTHING or bool(tool.skill) or not scope.read_only


def is_client_allowed_unlisted_code(scope: McpServerOptions) -> bool:
    """Return whether the client may call any code of skills, also by a name that is not listed."""
    return _get_client_access(scope) >= Access.ADMIN


def _get_client_access(scope: McpServerOptions) -> Access:
    return Access.OWNER if scope.person is None else scope.person.role.access


def make_mcp_tool(tool: Tool) -> types.Tool:
    """Return a tool as MCP describes it."""
    always: Any = {"anthropic/alwaysLoad": True} if tool.is_pinned else None
    return types.Tool(
        name=tool.name,
        description=truncate_text_to_client_limit(tool.description),
        input_schema={"type": "object", **tool.parameters},
        output_schema=None if tool.returns is None else dict(tool.returns),
        annotations=_make_tool_annotations(tool),
        _meta=always,
    )


def _make_tool_annotations(tool: Tool) -> types.ToolAnnotations:
    """Return hints for the client's own consent dialog; for code and recipes, according to their grants."""
    is_looking = tool.reach is ToolEffectReach.NOTHING
    return types.ToolAnnotations(
        read_only_hint=is_looking,
        destructive_hint=None if is_looking else tool.is_destructive,
        idempotent_hint=None if is_looking else tool.is_repeatable,
        open_world_hint=tool.reach is ToolEffectReach.NETWORK,
    )


def is_read_only_tool(tool: types.Tool | None) -> bool:
    """Return whether a listed tool is marked as read-only."""
    return tool is not None and tool.annotations is not None and tool.annotations.read_only_hint is True


def make_tool_result(result: ToolResult, declared: types.Tool | None = None) -> types.CallToolResult:
    """Return a tool's result for MCP, also as structured content if it is a JSON object or a schema was declared."""
    structured = _parse_structured_content(result.content)
    if structured is None and declared is not None and declared.output_schema is not None:
        # A client may reject a result without structured content if a schema was declared.
        structured = {"result": result.content}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.content)],
        structured_content=structured,
        is_error=not result.outcome.is_ok,
    )


def make_error_result(text: str) -> types.CallToolResult:
    """Return an error as tool result, which the model can read."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"Error: {text}")], is_error=True)


def _parse_structured_content(content: str) -> dict[str, Any] | None:
    """Return the content as a JSON object, or None if it is none."""
    if not content.startswith("{"):
        return None
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def truncate_text_to_client_limit(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """Return a text cut to the number of bytes that clients accept."""
    written = text.encode()
    return text if len(written) <= limit else written[: limit - 3].decode("utf-8", "ignore") + "…"
