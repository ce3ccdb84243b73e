"""Markdown on a terminal: how it looks, and how it is shown while it is still being written."""

from __future__ import annotations

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
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


def rendered(text: str) -> Markdown:
    """Somebody's Markdown: no control characters, and links with their addresses in view."""
    return _Markdown(clean(text), code_theme="ansi_dark", hyperlinks=False)


def split(text: str) -> tuple[str, str]:
    """The blocks that can't change any more, and the one that is still being written."""
    starts = [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.map and token.nesting >= 0]
    if len(starts) < 2:
        return "", text
    lines = text.splitlines(keepends=True)
    return "".join(lines[: starts[-1]]), "".join(lines[starts[-1] :])


def last_lines(text: str, console: Console, most: int) -> Text:
    """The end of a rendered text, as much as there is room for."""
    options = console.options.update(width=min(console.width, WIDEST), height=None)
    lines = console.render_lines(rendered(text), options, pad=False)
    shown = Text("\n").join(Text.assemble(*((part.text, part.style or "") for part in line)) for line in lines[-most:])
    shown.no_wrap = True
    return shown
