"""Draws a turn on a terminal: finished text scrolls up, the live part at the bottom is redrawn."""

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

# Ten frames a second look fluent and cost little.
_REFRESH_S = 0.1
# Lines of the terminal that the live part leaves free.
_KEPT_FREE = 4


@dataclass(kw_only=True, slots=True)
class _Running:
    """A tool call in progress."""

    label: Text
    arguments: str
    began: float
    progress: str = ""


@dataclass(kw_only=True, slots=True)
class TurnDisplay:
    """Draws the events of one turn; `is_paused` while a person is asked something."""

    console: Console
    typed: lines.Typed = slash_command
    clock: Callable[[], float] = time.monotonic
    is_held: bool = False
    _live: Live | None = None
    # The last block of the reply, still being written.
    _tail: str = ""
    # The length from which splitting off finished blocks is worth another parse.
    _look_at: int = 0
    # Whether a line or a block was printed last.
    _last: str = ""
    _calls: dict[str, _Running] = field(default_factory=dict)
    _spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))
    _began: float = 0.0
    # Reasons of failed calls that were already shown.
    _reasons: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def drawing(self) -> AsyncIterator[None]:
        """Redraw the live part periodically while the block runs."""
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
        """Leave the terminal to a question while the block runs."""
        self._flush()
        self._stop()
        self.is_held, began = True, self.clock()
        try:
            yield
        finally:
            self.is_held = False
            # The person's time to answer doesn't count as running time.
            took = self.clock() - began
            self._began += took
            for running in self._calls.values():
                running.began += took
            self._start()

    def show_cancelled(self) -> None:
        """Leave the cancelled turn on the screen as far as it came."""
        self._flush()
        for running in self._calls.values():
            self._print(lines.cancelled_call(running.label))
        self._calls.clear()
        self._print(Text(f"{lines.INDENT}Cancelled.", style="yellow"))

    def show(self, event: TurnEvent) -> None:
        """Draw one event."""
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
                # Padding also indents the lines of a long notice that wraps.
                self._print(Padding(said, (0, 0, 0, len(lines.INDENT)), expand=False))
            case Done():
                self._flush()
                for line in lines.done_lines(event, self._reasons, self.typed):
                    self._print(line)
            case never:
                assert_never(never)

    def _add_text(self, text: str) -> None:
        """Add text and print the blocks that are finished."""
        self._tail += clean(text)
        # A block can only end at a line's end; a long one is parsed less often, which keeps the work linear.
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
        # Inside a group, a text keeps its no-wrap setting.
        self.console.print(Group(*self._gap("line"), line))
        self._last = "line"

    def _gap(self, before: str) -> list[Text]:
        """Return a blank line unless two lines follow each other."""
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
        """Return the live part: the unfinished block and the running calls, or a thinking spinner."""
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


# Parsing more than this ten times a second would be visible.
_MOST_DRAWN = 10_000


def _end(text: str) -> str:
    """Return the last lines of a long block, with its opening fence if it is code."""
    if len(text) <= _MOST_DRAWN:
        return text
    first = text.partition("\n")[0]
    opening = f"{first}\n" if first.startswith(("```", "~~~")) else ""
    return opening + text[-_MOST_DRAWN:].partition("\n")[2]


# Longer lines of prose are hard to read.
WIDEST = 100
_PARSER = MarkdownIt().enable("strikethrough").enable("table")


class _Heading(Heading):
    """A heading that is bold and left-aligned, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = "bold underline" if self.tag == "h1" else "bold"
        self.text.stylize(style)
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """A code block that is indented, in the terminal's own colours."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme="ansi_dark", word_wrap=True, padding=(0, 2), background_color="default"
        )


class _Markdown(Markdown):
    """Markdown with plain headings and indented code."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }


class MarkdownBlock:
    """Markdown that renders itself when printed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield draw_markdown(self._text, console)


def split(text: str) -> tuple[str, str]:
    """Return the finished blocks and the one still being written."""
    *finished, last = _blocks(text)
    return "".join(finished), last


def _blocks(text: str) -> list[str]:
    """Split a text at the start of each top-level block; returns at least one piece."""
    tokens = _PARSER.parse(text)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.map and token.nesting >= 0]
    lines = text.split("\n")
    edges = [0, *starts[1:], len(lines)]
    pieces = ["\n".join(lines[a:b]) + "\n" for a, b in itertools.pairwise(edges)]
    return [*pieces[:-1], pieces[-1][:-1]]


def draw_markdown(text: str, console: Console, most: int | None = None) -> Text:
    """Return Markdown as terminal text with a blank line between blocks, cut to the last `max_lines`."""
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
