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
    Done,
    Noticed,
    Nudged,
    Question,
    Said,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
    about,
    as_object,
    nobody,
)
from habitus.events import Outcome, OutcomeKind
from habitus.llm.model import Usage
from habitus.repl.commands import slash_command
from habitus.text import clean, count_of, short_line, shown_seconds

INDENT = "  "
# Formats the words of a command as a person types it.
Typed = Callable[..., str]
_MARKS = {OutcomeKind.OK: ("✓", "green"), OutcomeKind.FAILED: ("✗", "red"), OutcomeKind.INFRA: ("!", "yellow")}


def call_label(tool: str, arguments: str) -> Text:
    """Return a call's label, the tool and its purpose: `scratchpad  sum the columns`."""
    return Text.assemble((short_line(tool, 40), "cyan"), "  ", (short_line(about(arguments), 120), ""))


def running(label: Text, seconds: float, progress: str) -> Text:
    """Return the line of a running call; a spinner goes before it."""
    parts: list[Text | tuple[str, str]] = [label, (f"  {shown_seconds(seconds)}", "dim")]
    if progress:
        parts.append((f"  {short_line(progress, 100)}", "dim"))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def finished_line(event: ToolFinished, label: Text) -> Text:
    """Return the line of a finished call: mark, label, time and why it failed."""
    mark, colour = _MARKS[event.outcome.kind]
    took = (f"  {shown_seconds(event.seconds)}", "dim")
    parts: list[str | Text | tuple[str, str]] = [INDENT, (mark, colour), " ", label, took]
    if not event.outcome.is_ok:
        parts.append((f"  {short_line(event.outcome.reason)}", colour))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def undo(event: ToolFinished, arguments: str, typed: Typed = slash_command) -> Text | None:
    """Return a line with the undo command, or None if there is nothing to undo."""
    words = undoing(event, arguments)
    return Text(f"{INDENT}  Undo: {short_line(typed(*words))}", style="dim", overflow="fold") if words else None


def undoing(event: ToolFinished, arguments: str) -> tuple[str, ...]:
    """Return the command that undoes a tool's change; empty for a proposal, a failure or a read."""
    given, told = as_object(arguments), as_object(event.content)
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


def made_lines(event: ToolFinished) -> list[Text]:
    """Return a line per file that a call created for the person."""
    return [Text(f"{INDENT}  open: {short_line(path, 400)}", style="green", overflow="fold") for path in event.made]


def cancelled_call(label: Text) -> Text:
    return Text.assemble(INDENT, ("–", "dim"), " ", label, ("  cancelled", "dim"), no_wrap=True, overflow="ellipsis")


def nudge(event: Nudged) -> Text:
    """Return the line of a nudge."""
    return Text.assemble(INDENT, ("↪ nudge ", "magenta"), (short_line(event.text, 400), "dim"))


def notice(event: Noticed) -> Text:
    return Text.assemble(INDENT, ("! ", "yellow"), (short_line(event.text, 400), "yellow"))


def done_lines(event: Done, told: Collection[str] = (), typed: Typed = slash_command) -> list[Text]:
    """Return the last lines of a turn: its failure, if any, then its cost and the pending changes.

    Reasons in `shown_reasons` already stand above and are not repeated.
    """
    parts = [*spent(event.usage), shown_seconds(event.seconds)]
    if event.waiting:
        parts.append(f"{waiting(event.waiting)}: {typed('review', 'list')}")
    taken = Text(f"{INDENT}{' · '.join(parts)}", style="dim")
    return [_ending(event.outcome, told), taken] if event.outcome.kind is OutcomeKind.FAILED else [taken]


def waiting(count: int) -> str:
    return f"{count_of(count, 'change')} {'waits' if count == 1 else 'wait'}"


def _ending(outcome: Outcome, told: Collection[str]) -> Text:
    mark, colour = _MARKS[outcome.kind]
    said = next((reason for reason in told if reason and outcome.reason.endswith(reason)), "")
    reason = short_line(outcome.reason.removesuffix(said).rstrip(": ") or "see above")
    line = Text.assemble(INDENT, (f"{mark} {outcome.kind.value}: ", colour), (reason, "dim"))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def spent(usage: Usage) -> list[str]:
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
class CommandReport:
    """The result of a command: rendered for people, typed data for programs."""

    type: str
    shown: RenderableType
    data: Mapping[str, object] = field(default_factory=dict)


class Surface(Protocol):
    """Where a chat takes place: a terminal, plain text or JSON Lines."""

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked."""
        ...

    async def show_turn(self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]) -> Done | None:
        """Show a turn to its end; return None if it was cancelled."""
        ...

    def tell(self, report: CommandReport) -> None: ...

    def note(self, report: CommandReport) -> None:
        """Show something unasked, beside the replies."""
        ...

    def complain(self, message: str, hint: str = "") -> None:
        """Show an error; the chat continues."""
        ...

    async def ask(self, question: Question) -> Consent: ...

    def waiting(self, for_what: str, cancel: Callable[[], object]) -> AbstractContextManager[None]:
        """Show what is being waited for, while the person can cancel it."""
        ...


_TYPES: dict[type[TurnEvent], str] = {
    Said: "text",
    ToolStarted: "tool_started",
    ToolProgress: "tool_progress",
    ToolFinished: "tool_finished",
    Nudged: "nudge",
    Noticed: "notice",
    Done: "done",
}


def event_json(event: TurnEvent) -> dict[str, Any]:
    """Return an event as JSON with its `type`."""
    return {"type": _TYPES[type(event)], **asdict(event)}


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonPipe:
    """Writes every event as one line of JSON; `write` takes a complete line."""

    write: Callable[[str], None]
    is_ascii: bool = False

    def put(self, row: dict[str, Any]) -> None:
        self.write(json.dumps(row, ensure_ascii=self.is_ascii, default=str) + "\n")

    @property
    def can_ask(self) -> bool:
        return False

    async def show_turn(self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]) -> Done | None:
        done = None
        async with aclosing(events):
            async for event in events:
                self.put(event_json(event))
                done = event if isinstance(event, Done) else done
        return done

    def tell(self, report: CommandReport) -> None:
        self.put({"type": report.type, **report.data})

    note = tell

    def complain(self, message: str, hint: str = "") -> None:
        self.put({"type": "error", "error": message, "hint": hint})

    async def ask(self, question: Question) -> Consent:
        return await nobody(question)

    @contextmanager
    def waiting(self, for_what: str, cancel: Callable[[], object]) -> Iterator[None]:
        yield


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPipe:
    """Writes replies to `write` and everything else, line by line, to `write_remark`."""

    write: Callable[[str], None]
    remark: Callable[[str], None]

    @property
    def can_ask(self) -> bool:
        return False

    async def show_turn(self, events: AsyncGenerator[TurnEvent, None], cancel: Callable[[], object]) -> Done | None:
        done, labels, is_open = None, dict[str, str](), False
        told: list[str] = []
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Said):
                    self.write(clean(event.text))
                    is_open = not event.text.endswith("\n")
                    continue
                if is_open:
                    self.write("\n")
                    is_open = False
                if isinstance(event, ToolStarted):
                    labels[event.call] = call_label(event.tool, event.arguments).plain
                elif isinstance(event, ToolFinished):
                    told.append(event.outcome.reason)
                self._remark(event, labels, told)
                done = event if isinstance(event, Done) else done
        return done

    def _remark(self, event: TurnEvent, labels: dict[str, str], told: Collection[str]) -> None:
        match event:
            case ToolFinished(call=call):
                for line in (finished_line(event, Text(labels.get(call, event.tool))), *made_lines(event)):
                    self.remark(line.plain)
            case Nudged():
                self.remark(nudge(event).plain)
            case Noticed():
                self.remark(notice(event).plain)
            case Done() if event.outcome.kind is OutcomeKind.FAILED:
                self.remark(done_lines(event, told)[0].plain)
            case _:
                pass

    def tell(self, report: CommandReport) -> None:
        self.write(_plain(report, width=100) + "\n")

    def note(self, report: CommandReport) -> None:
        self.remark(_plain(report, width=1000))

    def complain(self, message: str, hint: str = "") -> None:
        self.remark(f"{message} {hint}".strip())

    async def ask(self, question: Question) -> Consent:
        return await nobody(question)

    @contextmanager
    def waiting(self, for_what: str, cancel: Callable[[], object]) -> Iterator[None]:
        yield


def _plain(report: CommandReport, *, width: int) -> str:
    """Return a report as plain text."""
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    console.print(report.shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


async def typed_lines() -> AsyncIterator[str]:
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
