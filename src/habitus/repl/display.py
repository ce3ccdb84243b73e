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

from habitus.agent import stream
from habitus.repl import lines
from habitus.repl.commands import convert_cli_words_to_slash_command
from habitus.text import format_seconds, strip_control_characters

# Ten frames a second look fluent and cost little.
_REFRESH_S = 0.1
# Lines of the terminal that the live part leaves free.
_RESERVED_LINES = 4


@dataclass(kw_only=True, slots=True)
class _RunningCallState:
    """A tool call in progress."""

    label: Text
    arguments: str
    began: float
    progress: str = ""


@dataclass(kw_only=True, slots=True)
class TurnDisplay:
    """Draws the events of one turn; `is_paused` while a person is asked something."""

    console: Console
    format_command: lines.CommandFormatter = convert_cli_words_to_slash_command
    clock: Callable[[], float] = time.monotonic
    is_paused: bool = False
    _live: Live | None = None
    # The last block of the reply, still being written.
    _tail: str = ""
    # The length from which splitting off finished blocks is worth another parse.
    _look_at: int = 0
    # Whether a line or a block was printed last.
    _last: str = ""
    _calls: dict[str, _RunningCallState] = field(default_factory=dict)
    _spinner: Spinner = field(default_factory=lambda: Spinner("dots", style="cyan"))
    _began: float = 0.0
    # Reasons of failed calls that were already shown.
    _reasons: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def draw_live(self) -> AsyncIterator[None]:
        """Redraw the live part periodically while the block runs."""
        self._began = self.clock()
        self._start_live()
        ticking = asyncio.create_task(self._refresh_periodically())
        try:
            yield
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking
            self._print_unfinished_text()
            self._stop_live()

    @contextmanager
    def pause_drawing(self) -> Iterator[None]:
        """Leave the terminal to a question while the block runs."""
        self._print_unfinished_text()
        self._stop_live()
        self.is_paused, began = True, self.clock()
        try:
            yield
        finally:
            self.is_paused = False
            # The person's time to answer doesn't count as running time.
            took = self.clock() - began
            self._began += took
            for running in self._calls.values():
                running.began += took
            self._start_live()

    def show_cancelled(self) -> None:
        """Leave the cancelled turn on the screen as far as it came."""
        self._print_unfinished_text()
        for running in self._calls.values():
            self._print_line(lines.format_cancelled_call(running.label))
        self._calls.clear()
        self._print_line(Text(f"{lines.INDENT}Cancelled.", style="yellow"))

    def show_event(self, event: stream.TurnEvent) -> None:
        """Draw one event."""
        match event:
            case stream.ReplyDelta(text=text):
                self._add_reply_text_and_print_blocks(text)
            case stream.ToolStarted(call=call, tool=tool, arguments=arguments):
                self._print_unfinished_text()
                label = lines.format_call_label(tool, arguments)
                self._calls[call] = _RunningCallState(label=label, arguments=arguments, began=self.clock())
            case stream.ToolProgress(call=call, text=text):
                if call in self._calls:
                    self._calls[call].progress = text
            case stream.ToolFinished(call=call):
                running = self._calls.pop(call)
                self._reasons.append(event.outcome.reason)
                self._print_line(lines.format_finished_call(event, running.label))
                for line in lines.format_created_files(event):
                    self._print_line(line)
                if (undo := lines.format_undo_line(event, running.arguments, self.format_command)) is not None:
                    self._print_line(undo)
            case stream.NudgeEvent():
                self._print_line(lines.format_nudge(event))
            case stream.NoticeEvent():
                self._print_unfinished_text()
                said = lines.format_notice(event)[len(lines.INDENT) :]
                # Padding also indents the lines of a long notice that wraps.
                self._print_line(Padding(said, (0, 0, 0, len(lines.INDENT)), expand=False))
            case stream.TurnResult():
                self._print_unfinished_text()
                for line in lines.format_last_lines_of_turn(event, self._reasons, self.format_command):
                    self._print_line(line)
            case never:
                assert_never(never)

    def _add_reply_text_and_print_blocks(self, text: str) -> None:
        """Add text and print the blocks that are finished."""
        self._tail += strip_control_characters(text)
        # A block can only end at a line's end; a long one is parsed less often, which keeps the work linear.
        if "\n" in text and len(self._tail) >= self._look_at:
            finished, self._tail = split_finished_markdown_blocks(self._tail)
            self._look_at = len(self._tail) + len(self._tail) // 20
            self._print_markdown(finished)

    def _print_unfinished_text(self) -> None:
        finished, self._tail, self._look_at = self._tail, "", 0
        self._print_markdown(finished)

    def _print_markdown(self, text: str) -> None:
        if text.strip():
            self.console.print(
                *self._make_separating_blank_line("block"), render_markdown_text(text, self.console), sep="\n"
            )
            self._last = "block"

    def _print_line(self, line: RenderableType) -> None:
        # Inside a group, a text keeps its no-wrap setting.
        self.console.print(Group(*self._make_separating_blank_line("line"), line))
        self._last = "line"

    def _make_separating_blank_line(self, before: str) -> list[Text]:
        """Return a blank line unless two lines follow each other."""
        return [] if self._last == before == "line" else [Text()]

    # The part that moves

    def _start_live(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self.console,
                get_renderable=self._render_live_part,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                vertical_overflow="crop",
            )
            self._live.start()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    async def _refresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            if self._live is not None:
                self._live.refresh()

    def _render_live_part(self) -> RenderableType:
        """Return the live part: the unfinished block and the running calls, or a thinking spinner."""
        now = self.clock()
        calls = [
            self._render_spinner_line(lines.format_running_call(running.label, now - running.began, running.progress))
            for running in self._calls.values()
        ]
        if self._tail.strip():
            room = max(self.console.height - _RESERVED_LINES - len(calls), 3)
            return Group(Text(), render_markdown_text(_cut_to_last_lines(self._tail), self.console, room), *calls)
        if not calls and not self.is_paused:
            calls = [self._render_spinner_line(Text(f"thinking  {format_seconds(now - self._began)}", style="dim"))]
        return Group(*self._make_separating_blank_line("line"), *calls)

    def _render_spinner_line(self, line: Text) -> Text:
        frame = self._spinner.render(self.console.get_time())
        assert isinstance(frame, Text)
        return Text.assemble(lines.INDENT, frame, " ", line, no_wrap=True, overflow="ellipsis")


# Parsing more than this ten times a second would be visible.
_MAX_LIVE_CHARS = 10_000


def _cut_to_last_lines(text: str) -> str:
    """Return the last lines of a long block, with its opening fence if it is code."""
    if len(text) <= _MAX_LIVE_CHARS:
        return text
    first = text.partition("\n")[0]
    opening = f"{first}\n" if first.startswith(("```", "~~~")) else ""
    return opening + text[-_MAX_LIVE_CHARS:].partition("\n")[2]


# Longer lines of prose are hard to read.
MAX_PROSE_WIDTH = 100
_PARSER = MarkdownIt().enable("strikethrough").enable("table")


class _PlainHeading(Heading):
    """A heading that is bold and left-aligned, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = "bold underline" if self.tag == "h1" else "bold"
        self.text.stylize(style)
        self.text.justify = "left"
        yield self.text


class _IndentedCodeBlock(CodeBlock):
    """A code block that is indented, in the terminal's own colours."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(
            code, self.lexer_name, theme="ansi_dark", word_wrap=True, padding=(0, 2), background_color="default"
        )


class _TerminalMarkdown(Markdown):
    """Markdown with plain headings and indented code."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
        "fence": _IndentedCodeBlock,
        "code_block": _IndentedCodeBlock,
    }


class MarkdownRenderable:
    """Markdown that renders itself when printed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield render_markdown_text(self._text, console)


def split_finished_markdown_blocks(text: str) -> tuple[str, str]:
    """Return the finished blocks and the one still being written."""
    *finished, last = _split_markdown_blocks(text)
    return "".join(finished), last


def _split_markdown_blocks(text: str) -> list[str]:
    """Split a text at the start of each top-level block; returns at least one piece."""
    tokens = _PARSER.parse(text)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.map and token.nesting >= 0]
    lines = text.split("\n")
    edges = [0, *starts[1:], len(lines)]
    pieces = ["\n".join(lines[a:b]) + "\n" for a, b in itertools.pairwise(edges)]
    return [*pieces[:-1], pieces[-1][:-1]]


def render_markdown_text(text: str, console: Console, max_lines: int | None = None) -> Text:
    """Return Markdown as terminal text with a blank line between blocks, cut to the last `max_lines`."""
    blocks = [
        lines
        for block in _split_markdown_blocks(strip_control_characters(text))
        if (lines := _render_markdown_block(block, console))
    ]
    lines = [line for block in blocks for line in (*block, Text())][:-1]
    shown = Text("\n").join(lines[-max_lines:] if max_lines else lines)
    shown.no_wrap = True
    return shown


def _render_markdown_block(text: str, console: Console) -> list[Text]:
    options = console.options.update(width=min(console.width, MAX_PROSE_WIDTH), height=None)
    # Links show their addresses: what a word leads to is not for a model to hide.
    source = _TerminalMarkdown(text, code_theme="ansi_dark", hyperlinks=False)
    lines = [_join_segments_into_text(segments) for segments in console.render_lines(source, options, pad=False)]
    filled = [at for at, line in enumerate(lines) if line.plain]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def _join_segments_into_text(segments: Iterable[Segment]) -> Text:
    line = Text.assemble(*((part.text, part.style or "") for part in segments), end="")
    line.rstrip()
    return line
