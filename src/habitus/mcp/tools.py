"""Tools and their results as MCP has them: schemas, annotations, and every text within its limit."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from habitus.agent.tools.profiles import READ_ONLY, in_profile
from habitus.agent.tools.registry import Reach, Tool
from habitus.app.operation.people import Role
from habitus.events import ToolResult
from habitus.mcp.scope import Scope
from habitus.skills.names import BUILT_IN_TOOLS

TEXT_BYTES = 2000  # of one description; clients cut longer ones, or leave the tool out

_ALWAYS_LOADED = frozenset({"search_skills", "recall_skill"})  # where a client keeps the other tools back
_NOT_OVER_MCP = frozenset({"edit_system_prompt"})  # whose prompt it edits is not the client's
_DECIDING = frozenset({"report_outcome"})  # what a reviewer does beside looking
_TAKES_AWAY = frozenset({"delete_skill", "disable_skill", "manage_skills", "scratchpad"})
_SAME_WHEN_REPEATED = frozenset({"report_outcome", "enable_skill", "disable_skill", "memorize"})


def is_offered(tool: Tool, scope: Scope) -> bool:
    """Whether a client of this scope has the tool."""
    return in_scope(tool.name, scope) and (_changes_nothing(tool) or may_change(tool.name, scope))


def in_scope(name: str, scope: Scope) -> bool:
    """By its name alone; the code of skills is in every scope."""
    return name not in _NOT_OVER_MCP and in_profile(name, scope.profile)


def may_change(name: str, scope: Scope) -> bool:
    """Whether a tool of this name may change something; of what is read-only for an admin, skills' code is not part."""
    role = Role.ADMIN if scope.person is None else scope.person.role
    if role is Role.ADMIN:
        return not scope.read_only or name not in BUILT_IN_TOOLS
    return not scope.read_only and role is Role.REVIEWER and name in _DECIDING


def _changes_nothing(tool: Tool) -> bool:
    return tool.name in READ_ONLY if tool.name in BUILT_IN_TOOLS else tool.reach is Reach.NOTHING


def as_tool(tool: Tool) -> types.Tool:
    always: Any = {"anthropic/alwaysLoad": True} if tool.name in _ALWAYS_LOADED else None
    return types.Tool(
        name=tool.name,
        description=within(tool.description),
        input_schema={"type": "object", **tool.parameters},
        output_schema=None if tool.returns is None else dict(tool.returns),
        annotations=_annotations(tool),
        _meta=always,
    )


def _annotations(tool: Tool) -> types.ToolAnnotations:
    """What a client may rely on when it asks the person; of code and recipes, what the person has granted them."""
    name = tool.name
    if name not in BUILT_IN_TOOLS:
        return types.ToolAnnotations(
            read_only_hint=tool.reach is Reach.NOTHING,
            destructive_hint=tool.reach is not Reach.NOTHING,
            open_world_hint=tool.reach is Reach.NETWORK,
        )
    if name in READ_ONLY:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=name in _TAKES_AWAY,
        idempotent_hint=name in _SAME_WHEN_REPEATED,
        open_world_hint=False,
    )


def as_result(result: ToolResult, declared: types.Tool | None = None) -> types.CallToolResult:
    """What is one JSON object is handed over as such, too, and so is whatever a tool returns that declared one."""
    structured = _structured(result.content)
    if structured is None and declared is not None and declared.output_schema is not None:
        structured = {"result": result.content}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.content)],
        structured_content=structured,
        is_error=not result.outcome.is_ok,
    )


def refusal(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=f"Error: {text}")], is_error=True)


def _structured(content: str) -> dict[str, Any] | None:
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
