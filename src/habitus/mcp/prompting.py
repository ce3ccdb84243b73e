"""Prompts that a person picks in their own agent: its model does the drafting, and no key is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import mcp_types as types

from habitus.errors import Invalid
from habitus.text import one_line

if TYPE_CHECKING:
    from habitus.app.review.inbox import InboxItem

_MOST_SHOWN = 50

PROMPTS = [
    types.Prompt(
        name="save_skill",
        title="Save a skill",
        description="Keep what was just worked out as a skill.",
        arguments=[types.PromptArgument(name="hint", description="What it should be about.", required=False)],
    ),
    types.Prompt(
        name="learn_from_session",
        title="Learn from this session",
        description="Draw lessons and better skills from what went wrong and right so far.",
    ),
    types.Prompt(
        name="improve_skill",
        title="Improve a skill",
        description="Change a skill by what went wrong in practice; the change is tried before it is used.",
        arguments=[types.PromptArgument(name="name", description="Which skill.", required=True)],
    ),
    types.Prompt(name="review", title="Review", description="Go through what waits for your decision."),
]


def text_of(name: str) -> str:
    """One of the texts that stand beside this file as Markdown."""
    return files("habitus.mcp").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def prompt(
    name: str, arguments: Mapping[str, str], waiting: Sequence[InboxItem], practice: Callable[[str], str]
) -> types.GetPromptResult:
    """`practice` tells what was practised with a skill."""
    known = {one.name: one for one in PROMPTS}
    if name not in known:
        raise Invalid(f"There is no prompt '{name}'.", mend=f"There are: {', '.join(known)}.")
    text = text_of(name)
    if name == "review":
        text += f"\n\n{_listed(waiting)}"
    if name == "improve_skill":
        text += f"\n\n{practice(arguments.get('name', ''))}"
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
