"""Tools and their results as MCP has them: schemas, annotations, and every text within its limit."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types

from habitus.agent.tools.profiles import READ_ONLY, in_profile
from habitus.events import ToolResult
from habitus.llm.model import ToolSpec
from habitus.mcp.scope import Scope
from habitus.skills.names import BUILT_IN_TOOLS

TEXT_BYTES = 2000  # of one description; clients cut longer ones, or leave the tool out

_ALWAYS_LOADED = frozenset({"search_skills", "recall_skill"})  # where a client keeps the other tools back
_NOT_OVER_MCP = frozenset({"edit_system_prompt"})  # whose prompt it edits is not the client's
_TAKES_AWAY = frozenset({"delete_skill", "disable_skill", "manage_skills", "scratchpad"})
_SAME_WHEN_REPEATED = frozenset({"report_outcome", "enable_skill", "disable_skill", "memorize"})


def is_offered(name: str, scope: Scope) -> bool:
    """Whether a client of this scope has the tool; the code of skills is everybody's."""
    if name in _NOT_OVER_MCP or (scope.read_only and name in BUILT_IN_TOOLS - READ_ONLY):
        return False
    return in_profile(name, scope.profile)


def as_tool(spec: ToolSpec) -> types.Tool:
    always: Any = {"anthropic/alwaysLoad": True} if spec.name in _ALWAYS_LOADED else None
    return types.Tool(
        name=spec.name,
        description=within(spec.description),
        input_schema={"type": "object", **spec.parameters},
        annotations=_annotations(spec.name),
        _meta=always,
    )


def _annotations(name: str) -> types.ToolAnnotations | None:
    """What a client may rely on when it asks the person; nothing is said of code that others wrote."""
    if name not in BUILT_IN_TOOLS:
        return None
    if name in READ_ONLY:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=name in _TAKES_AWAY,
        idempotent_hint=name in _SAME_WHEN_REPEATED,
        open_world_hint=False,
    )


def as_result(result: ToolResult) -> types.CallToolResult:
    """What is one JSON object is handed over as such, too."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.content)],
        structured_content=_structured(result.content),
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
