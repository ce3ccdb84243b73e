"""Markdown on a terminal: how it looks, and how it is shown while it is still being written."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

from habitus.repl.plain import clean

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
