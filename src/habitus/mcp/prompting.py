"""Prompts that a person picks in their own agent, whose model does the drafting; no key is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import mcp_types as types

from habitus.errors import Invalid
from habitus.text import clean_to_one_line

if TYPE_CHECKING:
    from habitus.app.review.inbox import ReviewInboxItem

_MAX_SHOWN = 50

PROMPTS = [
    types.Prompt(
        name="save_skill",
        title="Save a skill",
        description="Save the solution that was just found as a skill.",
        arguments=[types.PromptArgument(name="hint", description="What it should be about.", required=False)],
    ),
    types.Prompt(
        name="learn_from_session",
        title="Learn from this session",
        description="Draw lessons and better skills from the failures and successes so far.",
    ),
    types.Prompt(
        name="improve_skill",
        title="Improve a skill",
        description="Improve a skill based on failures in practice; the change is tested before it is used.",
        arguments=[types.PromptArgument(name="name", description="Which skill.", required=True)],
    ),
    types.Prompt(
        name="draft_tasks",
        title="Draft tasks",
        description="Draft tasks that examine a skill; they do nothing until you approve them.",
        arguments=[types.PromptArgument(name="name", description="Which skill.", required=True)],
    ),
    types.Prompt(name="review", title="Review", description="Go through the changes pending review."),
]

SKILL_FILE_TEMPLATE = types.ResourceTemplate(
    name="skill-file", title="A file of a skill", uri_template="skill://{name}/{+path}"
)


def get_completion_target(params: types.CompleteRequestParams) -> tuple[str, str]:
    """Return the argument to complete, of a prompt or a resource template, and the skill it is about."""
    ref, argument = params.ref, params.argument.name
    if isinstance(ref, types.PromptReference):
        blanks = {one.name for each in PROMPTS if each.name == ref.name for one in each.arguments or ()}
        about = f"prompt '{ref.name}'"
    else:
        blanks = {"name", "path"} if ref.uri == SKILL_FILE_TEMPLATE.uri_template else set()
        about = f"resource template '{ref.uri}'"
    if argument not in blanks:
        known = f"It has: {', '.join(sorted(blanks))}." if blanks else "See prompts/list and resources/templates/list."
        raise Invalid(f"There is no {about} with an argument '{argument}'.", hint=known)
    given = params.context.arguments if params.context is not None else None
    return argument, (given or {}).get("name", "")


def read_prompt_text(name: str) -> str:
    """Return a prompt text stored as Markdown beside this module."""
    return files("habitus.mcp").joinpath("prompts", f"{name}.md").read_text("utf-8").strip()


def render_prompt(
    name: str,
    arguments: Mapping[str, str],
    pending: Sequence[ReviewInboxItem],
    describe_skill: Callable[[str, str], str],
) -> types.GetPromptResult:
    """Return a prompt with its arguments filled in; `describe_skill` returns what a prompt tells of a skill."""
    known = {one.name: one for one in PROMPTS}
    if name not in known:
        raise Invalid(f"There is no prompt '{name}'.", hint=f"There are: {', '.join(known)}.")
    text = read_prompt_text(name)
    if name == "review":
        text += f"\n\n{_format_pending_items(pending)}"
    if told := describe_skill(name, arguments.get("name", "")):
        text += f"\n\n{told}"
    if hint := clean_to_one_line(arguments.get("hint", "")).strip():
        text += f"\n\nIt should be about: {hint}"
    said = types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.GetPromptResult(description=known[name].description, messages=[said])


def _format_pending_items(pending: Sequence[ReviewInboxItem]) -> str:
    if not pending:
        return "Nothing is pending review. Say so."
    shown = [
        f"- {item.id}: {item.action} {clean_to_one_line(item.title)}{_format_pending_reasons(item)}"
        for item in pending[:_MAX_SHOWN]
    ]
    more = len(pending) - len(shown)
    return "\n".join([*shown, *([f"… and {more} more: habitus review list"] if more else [])])


def _format_pending_reasons(item: ReviewInboxItem) -> str:
    return f" ({clean_to_one_line('; '.join(item.reasons))})" if item.reasons else ""
