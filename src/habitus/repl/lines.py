"""What a turn's events look like: each is one line, made of nothing but the event."""

from __future__ import annotations

import json

from rich.text import Text

from habitus.agent.stream import Done, Noticed, Nudged, ToolFinished
from habitus.events import Outcome, OutcomeKind
from habitus.llm.model import Usage
from habitus.repl.plain import counted, one_line, shown_seconds

INDENT = "  "
_MARKS = {OutcomeKind.OK: ("✓", "green"), OutcomeKind.FAILED: ("✗", "red"), OutcomeKind.INFRA: ("!", "yellow")}
_TELLING = ("one_line_description", "name", "query", "code", "action")  # arguments that say what a call is about


def call_label(tool: str, arguments: str) -> Text:
    """`scratchpad  sum the columns`: the tool, and what the call is about."""
    return Text.assemble((one_line(tool, 40), "cyan"), "  ", (_about(arguments), ""))


def _about(arguments: str) -> str:
    try:
        given = json.loads(arguments)
    except ValueError:
        return one_line(arguments, 120)
    if not isinstance(given, dict):
        return one_line(arguments, 120)
    found = next((given[key] for key in _TELLING if isinstance(given.get(key), str) and given[key].strip()), "")
    return one_line(found or ", ".join(f"{key}={value}" for key, value in given.items()), 120)


def running(label: Text, seconds: float, progress: str) -> Text:
    """A call at work; a spinner stands before it."""
    parts: list[Text | tuple[str, str]] = [label, (f"  {shown_seconds(seconds)}", "dim")]
    if progress:
        parts.append((f"  {one_line(progress, 100)}", "dim"))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def finished(event: ToolFinished, label: Text) -> Text:
    mark, colour = _MARKS[event.outcome.kind]
    took = (f"  {shown_seconds(event.seconds)}", "dim")
    parts: list[str | Text | tuple[str, str]] = [INDENT, (mark, colour), " ", label, took]
    if not event.outcome.is_ok:
        parts.append((f"  {one_line(event.outcome.reason)}", colour))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def cancelled_call(label: Text) -> Text:
    return Text.assemble(INDENT, ("–", "dim"), " ", label, ("  cancelled", "dim"), no_wrap=True, overflow="ellipsis")


def nudge(event: Nudged) -> Text:
    """What was said to the model, not by the person."""
    return Text.assemble(INDENT, ("↪ nudge ", "magenta"), (one_line(event.text, 400), "dim"))


def notice(event: Noticed) -> Text:
    return Text.assemble(INDENT, ("! ", "yellow"), (one_line(event.text, 400), "yellow"))


def done(event: Done) -> Text:
    """The last line of a turn: how it ended if not well, what it took, and what waits."""
    parts = [*([_ending(event.outcome)] if not event.outcome.is_ok else []), *_spent(event.usage)]
    parts.append(shown_seconds(event.seconds))
    if event.waiting:
        parts.append(waiting(event.waiting))
    return Text(f"{INDENT}{' · '.join(parts)}", style="dim")


def waiting(count: int) -> str:
    return f"{counted(count, 'change')} {'waits' if count == 1 else 'wait'}: /review"


def _ending(outcome: Outcome) -> str:
    return f"{outcome.kind.value}: {one_line(outcome.reason)}"


def _spent(usage: Usage) -> list[str]:
    spent = []
    if usage.input_tokens or usage.output_tokens:
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        spent.append(f"{usage.input_tokens:,}{cached} → {usage.output_tokens:,} tokens")
    if usage.cost is not None:
        spent.append(f"${usage.cost:.4f}" if usage.cost < 0.1 else f"${usage.cost:.2f}")
    return spent
