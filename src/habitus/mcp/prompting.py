"""Prompts that a person picks in their own agent: its model does the drafting, and no key is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mcp_types as types

from habitus.app.review.inbox import InboxItem
from habitus.errors import Invalid
from habitus.mcp.server import PROMPTS, text_of
from habitus.text import one_line

_MOST_SHOWN = 50


def prompt(name: str, arguments: Mapping[str, str], waiting: Sequence[InboxItem]) -> types.GetPromptResult:
    known = {one.name: one for one in PROMPTS}
    if name not in known:
        raise Invalid(f"There is no prompt '{name}'.", mend=f"There are: {', '.join(known)}.")
    text = text_of(name)
    if name == "review":
        text += f"\n\n{_listed(waiting)}"
    if hint := one_line(arguments.get("hint", "")).strip():
        text += f"\n\nIt should be about: {hint}"
    said = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=known[name].description, messages=[said])


def _listed(waiting: Sequence[InboxItem]) -> str:
    if not waiting:
        return "Nothing waits. Say so."
    shown = [f"- {item.id}: {item.action} {one_line(item.what)}{_because(item)}" for item in waiting[:_MOST_SHOWN]]
    more = len(waiting) - len(shown)
    return "\n".join([*shown, *([f"… and {more} more: habitus review list"] if more else [])])


def _because(item: InboxItem) -> str:
    return f" ({one_line('; '.join(item.reasons))})" if item.reasons else ""
