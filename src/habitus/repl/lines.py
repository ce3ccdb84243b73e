"""Formats the events of a turn as lines, and writes them without a terminal as plain text or JSON Lines."""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from rich.console import Console, RenderableType
from rich.text import Text

from habitus.agent.stream import (
    Consent,
    ConsentQuestion,
    NoticeEvent,
    NudgeEvent,
    ReplyDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    TurnResult,
    answer_consent_with_later,
    get_most_descriptive_argument,
    parse_json_object_or_empty,
)
from habitus.events import Outcome, OutcomeKind
from habitus.llm.model import TokenUsage
from habitus.repl.commands import convert_cli_words_to_slash_command
from habitus.text import format_quantity, format_seconds, shorten_to_line, strip_control_characters

INDENT = "  "
# Formats the words of a command as a person types it.
CommandFormatter = Callable[..., str]
_OUTCOME_MARKS = {OutcomeKind.OK: ("✓", "green"), OutcomeKind.FAILED: ("✗", "red"), OutcomeKind.INFRA: ("!", "yellow")}


def format_call_label(tool: str, arguments: str) -> Text:
    """Return a call's label, the tool and its purpose: `scratchpad  sum the columns`."""
    return Text.assemble(
        (shorten_to_line(tool, 40), "cyan"), "  ", (shorten_to_line(get_most_descriptive_argument(arguments), 120), "")
    )


def format_running_call(label: Text, seconds: float, progress: str) -> Text:
    """Return the line of a running call; a spinner goes before it."""
    parts: list[Text | tuple[str, str]] = [label, (f"  {format_seconds(seconds)}", "dim")]
    if progress:
        parts.append((f"  {shorten_to_line(progress, 100)}", "dim"))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def format_finished_call(event: ToolFinished, label: Text) -> Text:
    """Return the line of a finished call: mark, label, time and why it failed."""
    mark, colour = _OUTCOME_MARKS[event.outcome.kind]
    took = (f"  {format_seconds(event.seconds)}", "dim")
    parts: list[str | Text | tuple[str, str]] = [INDENT, (mark, colour), " ", label, took]
    if not event.outcome.is_ok:
        parts.append((f"  {shorten_to_line(event.outcome.reason)}", colour))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def format_undo_line(
    event: ToolFinished, arguments: str, format_command: CommandFormatter = convert_cli_words_to_slash_command
) -> Text | None:
    """Return a line with the undo command, or None if there is nothing to undo."""
    words = get_undo_command_of_tool_call(event, arguments)
    return (
        Text(f"{INDENT}  Undo: {shorten_to_line(format_command(*words))}", style="dim", overflow="fold")
        if words
        else None
    )


def get_undo_command_of_tool_call(event: ToolFinished, arguments: str) -> tuple[str, ...]:
    """Return the command that undoes a tool's change; empty for a proposal, a failure or a read."""
    given, told = parse_json_object_or_empty(arguments), parse_json_object_or_empty(event.content)
    name, version = told.get("name") or given.get("name"), told.get("version")
    if not event.outcome.is_ok or not isinstance(name, str) or "proposal" in told:
        return ()
    match event.tool:
        case "create_skill":
            return ("undo", f"{name}:{version or 1}")
        case "update_skill" if isinstance(version, int) and version > 1:
            return ("undo", f"{name}:{version}")
        case "delete_skill" if told.get("deleted"):
            return ("skills", "restore", name)
        case "enable_skill":
            return ("skills", "disable", name)
        case "disable_skill":
            return ("skills", "enable", name)
        case _:
            return ()


def format_created_files(event: ToolFinished) -> list[Text]:
    """Return a line per file that a call created for the person."""
    return [
        Text(f"{INDENT}  open: {shorten_to_line(path, 400)}", style="green", overflow="fold") for path in event.made
    ]


def format_cancelled_call(label: Text) -> Text:
    return Text.assemble(INDENT, ("–", "dim"), " ", label, ("  cancelled", "dim"), no_wrap=True, overflow="ellipsis")


def format_nudge(event: NudgeEvent) -> Text:
    """Return the line of a nudge."""
    return Text.assemble(INDENT, ("↪ nudge ", "magenta"), (shorten_to_line(event.text, 400), "dim"))


def format_notice(event: NoticeEvent) -> Text:
    return Text.assemble(INDENT, ("! ", "yellow"), (shorten_to_line(event.text, 400), "yellow"))


def format_last_lines_of_turn(
    event: TurnResult,
    shown_reasons: Collection[str] = (),
    format_command: CommandFormatter = convert_cli_words_to_slash_command,
) -> list[Text]:
    """Return the last lines of a turn: its failure, if any, then its cost and the pending changes.

    Reasons in `shown_reasons` already stand above and are not repeated.
    """
    parts = [*format_tokens_and_cost(event.usage), format_seconds(event.seconds)]
    if event.pending:
        parts.append(f"{format_pending_count(event.pending)}: {format_command('review', 'list')}")
    taken = Text(f"{INDENT}{' · '.join(parts)}", style="dim")
    return (
        [_format_failure(event.outcome, shown_reasons), taken] if event.outcome.kind is OutcomeKind.FAILED else [taken]
    )


def format_pending_count(count: int) -> str:
    return f"{format_quantity(count, 'change')} pending review"


def _format_failure(outcome: Outcome, shown_reasons: Collection[str]) -> Text:
    mark, colour = _OUTCOME_MARKS[outcome.kind]
    said = next((reason for reason in shown_reasons if reason and outcome.reason.endswith(reason)), "")
    reason = shorten_to_line(outcome.reason.removesuffix(said).rstrip(": ") or "see above")
    line = Text.assemble(INDENT, (f"{mark} {outcome.kind.value}: ", colour), (reason, "dim"))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def format_tokens_and_cost(usage: TokenUsage) -> list[str]:
    """Return tokens and cost as short texts; empty if nothing was spent."""
    parts = []
    if usage.input_tokens or usage.output_tokens:
        cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
        parts.append(f"{usage.input_tokens:,}{cached} → {usage.output_tokens:,} tokens")
    if usage.cost is not None:
        # A turn often costs less than a cent.
        parts.append(f"${usage.cost:.4f}" if usage.cost < 0.1 else f"${usage.cost:.2f}")
    return parts


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOutput:
    """The result of a command: rendered for people, typed data for programs."""

    type: str
    shown: RenderableType
    data: Mapping[str, object] = field(default_factory=dict)


class ChatSurface(Protocol):
    """Where a chat takes place: a terminal, plain text or JSON Lines."""

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked."""
        ...

    async def show_turn(
        self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]
    ) -> TurnResult | None:
        """Show a turn to its end; return None if it was cancelled."""
        ...

    def show_report(self, report: CommandOutput) -> None: ...

    def show_unasked_report(self, report: CommandOutput) -> None:
        """Show something unasked, beside the replies."""
        ...

    def show_error(self, message: str, hint: str = "") -> None:
        """Show an error; the chat continues."""
        ...

    async def ask(self, question: ConsentQuestion) -> Consent: ...

    def show_waiting_indicator(self, activity: str, cancel: Callable[[], object]) -> AbstractContextManager[None]:
        """Show what is being waited for, while the person can cancel it."""
        ...


_EVENT_TYPES: dict[type[TurnEvent], str] = {
    ReplyDelta: "text",
    ToolStarted: "tool_started",
    ToolProgress: "tool_progress",
    ToolFinished: "tool_finished",
    NudgeEvent: "nudge",
    NoticeEvent: "notice",
    TurnResult: "done",
}


def event_to_json(event: TurnEvent) -> dict[str, Any]:
    """Return an event as JSON with its `type`."""
    return {"type": _EVENT_TYPES[type(event)], **asdict(event)}


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonLinesSurface:
    """Writes every event as one line of JSON; `write` takes a complete line."""

    write: Callable[[str], None]
    is_ascii: bool = False

    def write_json_line(self, row: dict[str, Any]) -> None:
        self.write(json.dumps(row, ensure_ascii=self.is_ascii, default=str) + "\n")

    @property
    def can_ask(self) -> bool:
        return False

    async def show_turn(
        self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]
    ) -> TurnResult | None:
        done = None
        async with aclosing(events):
            async for event in events:
                self.write_json_line(event_to_json(event))
                done = event if isinstance(event, TurnResult) else done
        return done

    def show_report(self, report: CommandOutput) -> None:
        self.write_json_line({"type": report.type, **report.data})

    show_unasked_report = show_report

    def show_error(self, message: str, hint: str = "") -> None:
        self.write_json_line({"type": "error", "error": message, "hint": hint})

    async def ask(self, question: ConsentQuestion) -> Consent:
        return await answer_consent_with_later(question)

    @contextmanager
    def show_waiting_indicator(self, activity: str, cancel: Callable[[], object]) -> Iterator[None]:
        yield


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainTextSurface:
    """Writes replies to `write` and everything else, line by line, to `write_remark`."""

    write: Callable[[str], None]
    write_remark: Callable[[str], None]

    @property
    def can_ask(self) -> bool:
        return False

    async def show_turn(
        self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]
    ) -> TurnResult | None:
        done, labels, is_open = None, dict[str, str](), False
        told: list[str] = []
        async with aclosing(events):
            async for event in events:
                if isinstance(event, ReplyDelta):
                    self.write(strip_control_characters(event.text))
                    is_open = not event.text.endswith("\n")
                    continue
                if is_open:
                    self.write("\n")
                    is_open = False
                if isinstance(event, ToolStarted):
                    labels[event.call] = format_call_label(event.tool, event.arguments).plain
                elif isinstance(event, ToolFinished):
                    told.append(event.outcome.reason)
                self._write_event_as_text(event, labels, told)
                done = event if isinstance(event, TurnResult) else done
        return done

    def _write_event_as_text(self, event: TurnEvent, labels: dict[str, str], shown_reasons: Collection[str]) -> None:
        match event:
            case ToolFinished(call=call):
                for line in (
                    format_finished_call(event, Text(labels.get(call, event.tool))),
                    *format_created_files(event),
                ):
                    self.write_remark(line.plain)
            case NudgeEvent():
                self.write_remark(format_nudge(event).plain)
            case NoticeEvent():
                self.write_remark(format_notice(event).plain)
            case TurnResult() if event.outcome.kind is OutcomeKind.FAILED:
                self.write_remark(format_last_lines_of_turn(event, shown_reasons)[0].plain)
            case _:
                pass

    def show_report(self, report: CommandOutput) -> None:
        self.write(_render_plain_text(report, width=100) + "\n")

    def show_unasked_report(self, report: CommandOutput) -> None:
        self.write_remark(_render_plain_text(report, width=1000))

    def show_error(self, message: str, hint: str = "") -> None:
        self.write_remark(f"{message} {hint}".strip())

    async def ask(self, question: ConsentQuestion) -> Consent:
        return await answer_consent_with_later(question)

    @contextmanager
    def show_waiting_indicator(self, activity: str, cancel: Callable[[], object]) -> Iterator[None]:
        yield


def _render_plain_text(report: CommandOutput, *, width: int) -> str:
    """Return a report as plain text."""
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    console.print(report.shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


async def read_stdin_lines() -> AsyncIterator[str]:
    """Yield the lines of standard input; a thread reads them, because learning continues on the event loop."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        # The event loop is closed because the chat has ended.
        with suppress(RuntimeError):
            with suppress(OSError), os.fdopen(os.dup(0), encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    loop.call_soon_threadsafe(queue.put_nowait, line)
            loop.call_soon_threadsafe(queue.put_nowait, None)

    threading.Thread(target=read, daemon=True, name="habitus-stdin").start()
    while (line := await queue.get()) is not None:
        yield line
