"""A chat without a terminal: the answers as plain text, or every event as one line of JSON. Nobody is asked."""

from __future__ import annotations

import asyncio
import io
import json
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
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
    nobody,
)
from habitus.events import OutcomeKind
from habitus.repl import lines
from habitus.repl.lines import CommandReport
from habitus.repl.plain_text import clean

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
    """An event as data; `type` says which."""
    return {"type": _TYPES[type(event)], **asdict(event)}


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonPipe:
    """JSON Lines. `write` takes a text that ends its line."""

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

    def complain(self, message: str, mend: str = "") -> None:
        self.put({"type": "error", "error": message, "mend": mend})

    async def ask(self, question: Question) -> Consent:
        return await nobody(question)

    @contextmanager
    def waiting(self, for_what: str, cancel: Callable[[], object]) -> Iterator[None]:
        yield


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPipe:
    """The answer to `write`; what happens beside it to `remark`, a line at a time."""

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
                    labels[event.call] = lines.call_label(event.tool, event.arguments).plain
                elif isinstance(event, ToolFinished):
                    told.append(event.outcome.reason)
                self._remark(event, labels, told)
                done = event if isinstance(event, Done) else done
        return done

    def _remark(self, event: TurnEvent, labels: dict[str, str], told: Collection[str]) -> None:
        match event:
            case ToolFinished(call=call):
                for line in (lines.finished_line(event, Text(labels.get(call, event.tool))), *lines.made_lines(event)):
                    self.remark(line.plain)
            case Nudged():
                self.remark(lines.nudge(event).plain)
            case Noticed():
                self.remark(lines.notice(event).plain)
            case Done() if event.outcome.kind is OutcomeKind.FAILED:
                self.remark(lines.done_lines(event, told)[0].plain)
            case _:
                pass

    def tell(self, report: CommandReport) -> None:
        self.write(_plain(report, width=100) + "\n")

    def note(self, report: CommandReport) -> None:
        self.remark(_plain(report, width=1000))

    def complain(self, message: str, mend: str = "") -> None:
        self.remark(f"{message} {mend}".strip())

    async def ask(self, question: Question) -> Consent:
        return await nobody(question)

    @contextmanager
    def waiting(self, for_what: str, cancel: Callable[[], object]) -> Iterator[None]:
        yield


def _plain(report: CommandReport, *, width: int) -> str:
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    console.print(report.shown)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


async def typed_lines(descriptor: int = 0) -> AsyncIterator[str]:
    """The lines of standard input as they come. They are read beside the loop, where learning may go on."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        with suppress(RuntimeError):  # the chat has ended
            with suppress(OSError), os.fdopen(os.dup(descriptor), encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    loop.call_soon_threadsafe(queue.put_nowait, line)
            loop.call_soon_threadsafe(queue.put_nowait, None)

    threading.Thread(target=read, daemon=True, name="habitus-stdin").start()
    while (line := await queue.get()) is not None:
        yield line
