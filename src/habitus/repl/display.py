"""A turn as it happens, on a terminal: what is finished scrolls up; what still moves is drawn anew at the bottom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import assert_never

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from habitus.agent.stream import Done, Noticed, Nudged, Said, ToolFinished, ToolProgress, ToolStarted, TurnEvent
from habitus.repl import lines, markdown
from habitus.repl.plain import clean, shown_seconds

_REFRESH_S = 0.1
_KEPT_FREE = 4  # lines of the terminal that the moving part leaves alone


@dataclass(kw_only=True, slots=True)
class _Running:
    label: Text
    began: float
    progress: str = ""


@dataclass(kw_only=True, slots=True)
class TurnDisplay:
    """Draws the events of one turn. `is_held` while somebody is asked something."""

    console: Console
    clock: Callable[[], float] = time.monotonic
    is_held: bool = False
    _live: Live | None = None
    _tail: str = ""  # of the answer: the block that is still being written
    _has_said: bool = False
    _calls: dict[str, _Running] = field(default_factory=dict)
    _spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))
    _began: float = 0.0

    @asynccontextmanager
    async def drawing(self) -> AsyncIterator[None]:
        self._began = self.clock()
        self._start()
        ticking = asyncio.create_task(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self._settle()
            self._stop()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Leave the terminal to somebody else for a moment."""
        self._flush()
        self._stop()
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False
            self._start()

    def show(self, event: TurnEvent) -> None:
        match event:
            case Said(text=text):
                self._said(text)
            case ToolStarted(call=call, tool=tool, arguments=arguments):
                self._flush()
                self._calls[call] = _Running(label=lines.call_label(tool, arguments), began=self.clock())
            case ToolProgress(call=call, text=text):
                if call in self._calls:
                    self._calls[call].progress = text
            case ToolFinished(call=call):
                running = self._calls.pop(call, None)
                label = running.label if running else lines.call_label(event.tool, "")
                self._print(lines.finished(event, label))
            case Nudged():
                self._print(lines.nudge(event))
            case Noticed():
                self._flush()
                self._print(lines.notice(event))
            case Done():
                self._flush()
                self._print(lines.done(event))
            case never:
                assert_never(never)

    def _said(self, text: str) -> None:
        """Blocks that can't change any more leave the moving part; a line's end is the earliest they can."""
        self._tail += clean(text)
        if "\n" in text:
            finished, self._tail = markdown.split(self._tail)
            self._print_markdown(finished)

    def _flush(self) -> None:
        finished, self._tail = self._tail, ""
        self._print_markdown(finished)
        self._has_said = False

    def _settle(self) -> None:
        """What was interrupted stays as far as it came."""
        self._flush()
        for running in self._calls.values():
            self._print(lines.cancelled_call(running.label))
        self._calls.clear()

    def _print_markdown(self, text: str) -> None:
        if not text.strip():
            return
        if self._has_said:
            self._print(Text())
        self._has_said = True
        self.console.print(markdown.rendered(text), width=min(self.console.width, markdown.WIDEST))

    def _print(self, line: Text) -> None:
        self.console.print(line)

    # The part that moves

    def _start(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self.console,
                get_renderable=self._moving,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                vertical_overflow="crop",
            )
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            if self._live is not None:
                self._live.refresh()

    def _moving(self) -> RenderableType:
        now = self.clock()
        calls = [
            self._spun(lines.running(running.label, now - running.began, running.progress))
            for running in self._calls.values()
        ]
        if self._tail.strip():
            room = max(self.console.height - _KEPT_FREE - len(calls), 3)
            gap = [Text()] if self._has_said else []
            return Group(*gap, markdown.last_lines(self._tail, self.console, room), *calls)
        if not calls and not self.is_held:
            calls = [self._spun(Text(f"thinking  {shown_seconds(now - self._began)}", style="dim"))]
        return Group(*calls)

    def _spun(self, line: Text) -> Text:
        frame = self._spinner.render(self.console.get_time())
        assert isinstance(frame, Text)
        return Text.assemble(lines.INDENT, frame, " ", line, no_wrap=True, overflow="ellipsis")
