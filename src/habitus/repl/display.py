"""A turn as it happens, on a terminal: what is finished scrolls up; what still moves is drawn anew at the bottom."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import ClassVar, assert_never

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.spinner import Spinner
from rich.syntax import Syntax
from rich.text import Text

from habitus.agent.stream import Done, Noticed, Nudged, Said, ToolFinished, ToolProgress, ToolStarted, TurnEvent
from habitus.repl import lines
from habitus.repl.commands import slash_command
from habitus.text import clean, shown_seconds

_REFRESH_S = 0.1
_KEPT_FREE = 4  # lines of the terminal that the moving part leaves alone


@dataclass(kw_only=True, slots=True)
class _Running:
    label: Text
    arguments: str
    began: float
    progress: str = ""


@dataclass(kw_only=True, slots=True)
class TurnDisplay:
    """Draws the events of one turn. `is_held` while somebody is asked something."""

    console: Console
    typed: lines.Typed = slash_command
    clock: Callable[[], float] = time.monotonic
    is_held: bool = False
    _live: Live | None = None
    _tail: str = ""  # of the answer: the block that is still being written
    _look_at: int = 0  # how long it has to be to be worth a look for finished blocks
    _last: str = ""  # whether a line or a block of text was printed last
    _calls: dict[str, _Running] = field(default_factory=dict)
    _spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))
    _began: float = 0.0
    _reasons: list[str] = field(default_factory=list)  # why calls failed, as far as it was told

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
            self._flush()
            self._stop()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Leave the terminal to somebody else for a moment."""
        self._flush()
        self._stop()
        self.is_held, began = True, self.clock()
        try:
            yield
        finally:
            self.is_held = False
            took = self.clock() - began  # a person's time, and nobody else's
            self._began += took
            for running in self._calls.values():
                running.began += took
            self._start()

    def show_cancelled(self) -> None:
        """Leave the interrupted turn on the screen as far as it came."""
        self._flush()
        for running in self._calls.values():
            self._print(lines.cancelled_call(running.label))
        self._calls.clear()
        self._print(Text(f"{lines.INDENT}Cancelled.", style="yellow"))

    def show(self, event: TurnEvent) -> None:
        match event:
            case Said(text=text):
                self._add_text(text)
            case ToolStarted(call=call, tool=tool, arguments=arguments):
                self._flush()
                label = lines.call_label(tool, arguments)
                self._calls[call] = _Running(label=label, arguments=arguments, began=self.clock())
            case ToolProgress(call=call, text=text):
                if call in self._calls:
                    self._calls[call].progress = text
            case ToolFinished(call=call):
                running = self._calls.pop(call)
                self._reasons.append(event.outcome.reason)
                self._print(lines.finished_line(event, running.label))
                for line in lines.made_lines(event):
                    self._print(line)
                if (undo := lines.undo(event, running.arguments, self.typed)) is not None:
                    self._print(undo)
            case Nudged():
                self._print(lines.nudge(event))
            case Noticed():
                self._flush()
                said = lines.notice(event)[len(lines.INDENT) :]
                self._print(Padding(said, (0, 0, 0, len(lines.INDENT)), expand=False))  # also where it goes on
            case Done():
                self._flush()
                for line in lines.done_lines(event, self._reasons, self.typed):
                    self._print(line)
            case never:
                assert_never(never)

    def _add_text(self, text: str) -> None:
        """Blocks that can't change any more leave the moving part; a line's end is the earliest they can.
        A long block is looked at less often, so that the work grows with the text and no faster."""
        self._tail += clean(text)
        if "\n" in text and len(self._tail) >= self._look_at:
            finished, self._tail = split(self._tail)
            self._look_at = len(self._tail) + len(self._tail) // 20
            self._print_markdown(finished)

    def _flush(self) -> None:
        finished, self._tail, self._look_at = self._tail, "", 0
        self._print_markdown(finished)

    def _print_markdown(self, text: str) -> None:
        if text.strip():
            self.console.print(*self._gap("block"), draw_markdown(text, self.console), sep="\n")
            self._last = "block"

    def _print(self, line: RenderableType) -> None:
        self.console.print(Group(*self._gap("line"), line))  # a text alone would forget that it must not wrap
        self._last = "line"

    def _gap(self, before: str) -> list[Text]:
        """Blocks stand apart; lines only from blocks."""
        return [] if self._last == before == "line" else [Text()]

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
            return Group(Text(), draw_markdown(_end(self._tail), self.console, room), *calls)
        if not calls and not self.is_held:
            calls = [self._spun(Text(f"thinking  {shown_seconds(now - self._began)}", style="dim"))]
        return Group(*self._gap("line"), *calls)

    def _spun(self, line: Text) -> Text:
        frame = self._spinner.render(self.console.get_time())
        assert isinstance(frame, Text)
        return Text.assemble(lines.INDENT, frame, " ", line, no_wrap=True, overflow="ellipsis")


_MOST_DRAWN = 10_000  # characters of the moving part


def _end(text: str) -> str:
    """The last lines of a long block; code stays code."""
    if len(text) <= _MOST_DRAWN:
        return text
    first = text.partition("\n")[0]
    opening = f"{first}\n" if first.startswith(("```", "~~~")) else ""
    return opening + text[-_MOST_DRAWN:].partition("\n")[2]


WIDEST = 100  # columns of prose; longer lines are hard to read
_PARSER = MarkdownIt().enable("strikethrough").enable("table")


class _Heading(Heading):
    """Left, bold, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = "bold underline" if self.tag == "h1" else "bold"
        self.text.stylize(style)
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Indented, in the terminal's own colours."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme="ansi_dark", word_wrap=True, padding=(0, 2), background_color="default"
        )


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }


class MarkdownBlock:
    """Markdown that draws itself wherever it is printed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield draw_markdown(self._text, console)


def split(text: str) -> tuple[str, str]:
    """The blocks that can't change any more, and the one that is still being written."""
    *finished, last = _blocks(text)
    return "".join(finished), last


def _blocks(text: str) -> list[str]:
    """A text cut where its paragraphs, lists, tables and the like begin; one piece at least."""
    tokens = _PARSER.parse(text)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.map and token.nesting >= 0]
    lines = text.split("\n")
    edges = [0, *starts[1:], len(lines)]
    pieces = ["\n".join(lines[a:b]) + "\n" for a, b in itertools.pairwise(edges)]
    return [*pieces[:-1], pieces[-1][:-1]]


def draw_markdown(text: str, console: Console, most: int | None = None) -> Text:
    """A text as it stands on the screen, one blank line between its blocks; of a long one the last `most` lines."""
    blocks = [lines for block in _blocks(clean(text)) if (lines := _drawn_block(block, console))]
    lines = [line for block in blocks for line in (*block, Text())][:-1]
    shown = Text("\n").join(lines[-most:] if most else lines)
    shown.no_wrap = True
    return shown


def _drawn_block(text: str, console: Console) -> list[Text]:
    options = console.options.update(width=min(console.width, WIDEST), height=None)
    # Links show their addresses: what a word leads to is not for a model to hide.
    source = _Markdown(text, code_theme="ansi_dark", hyperlinks=False)
    lines = [_line(segments) for segments in console.render_lines(source, options, pad=False)]
    filled = [at for at, line in enumerate(lines) if line.plain]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _line(segments: Iterable[Segment]) -> Text:
    line = Text.assemble(*((part.text, part.style or "") for part in segments), end="")
    line.rstrip()
    return line
