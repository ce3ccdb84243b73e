"""Prints a command's output: tables and colours in a terminal, plain text in a pipe, JSON on request."""

from __future__ import annotations

import io
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.errors import Invalid, UserError
from habitus.plain_data import plain as plain
from habitus.text import clean as clean
from habitus.text import count_of as count_of

if TYPE_CHECKING:
    import typer
    from rich.console import Console

    from habitus.skills.model import Author

_STATE_COLOURS = {
    "ok": "green",
    "disabled": "dim",
    "gated": "yellow",
    "held": "yellow",
    "untrusted": "yellow",
    "broken": "red",
    "missing": "yellow",
}


def prepare() -> None:
    """Make the standard streams accept any text: characters they can't encode are escaped."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  # stays open to the end
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # A daemon or a service manager can start the process with closed streams.
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # stays open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:
        # Without a log handler Python prints warnings through lastResort, which would show a raw message.
        logging.lastResort.setFormatter(OneLine())


class OneLine(logging.Formatter):
    """Formats a log record as one line for a person; HABITUS_DEBUG adds the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        if os.environ.get("HABITUS_DEBUG"):
            return clean(super().format(record))
        kind = record.exc_info[0] if record.exc_info else None
        why = f" ({kind.__name__}: {record.exc_info[1]})" if kind and record.exc_info else ""
        return "habitus: " + " ".join(clean(record.getMessage() + why).split())


class Lost(UserError):
    """Standard output can't be written any more, for example because the disk is full."""


def write(text: str) -> None:
    """Write text to standard output unchanged and flush it, so a failure surfaces before the command ends."""
    _write(lambda: sys.stdout.write(text))


def write_file(data: bytes, name: str) -> None:
    """Write a file's content to standard output; on a terminal only text, without control sequences."""
    if sys.stdout.isatty():
        # A null byte in the first block is how git and grep recognise binary files.
        if b"\0" in data[:1024]:
            raise Invalid(f"{name} is not text ({len(data):,} bytes).", hint="Send it to a file: … > FILE")
        write(clean(data.decode("utf-8", "replace")))
    else:
        _write(lambda: sys.stdout.buffer.write(data))


def _write(send: Callable[[], object]) -> None:
    try:
        send()
        sys.stdout.flush()
    # A reader that closes early, such as `head`, is no error; the caller exits quietly.
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up()
        raise Lost(
            f"The output can't be written: {error.strerror}.", hint="The command may have done its work."
        ) from None


def give_up() -> None:
    """Point standard output at the null device, because flushing it on exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """Return a console that prints text literally: no markup, no emoji, no highlighting."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


@contextmanager
def counting(*, is_quiet: bool = False, doing: str = "", what: str = "skills") -> Iterator[Callable[[int], None]]:
    """Yield a function that shows a running count on standard error; it does nothing without a terminal."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    with ExitStack() as open_bar:
        # The bar appears with the first call: a command that finishes at once should not flash one.
        bar: list[Callable[[int], None]] = []

        def count(done: int) -> None:
            if not bar:
                bar.append(open_bar.enter_context(_bar(doing, what)))
            bar[0](done)

        yield count


@contextmanager
def _bar(doing: str, what: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(f"{{task.description}}{{task.completed}} {what}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing and f"{doing}: ", total=None)
        yield lambda done: bar.update(task, completed=done)


def print_json(data: object) -> None:
    """Print data as indented JSON."""
    write(json_text(data))


def json_text(data: object) -> str:
    """Return data as indented JSON, ASCII only if standard output is not UTF-8."""
    return json.dumps(plain(data), ensure_ascii=not is_unicode(), indent=2) + "\n"


def is_unicode() -> bool:
    """Return whether standard output can encode every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: str = "", is_cut: bool = False) -> None:
    """Print a table; the column named `wide` shrinks in a narrow terminal, a pipe gets whole lines.

    With `is_cut`, each row is cut to one line of the terminal.
    """
    # A newline or control character in a cell would break the table.
    cells = [[" ".join(clean(str(cell)).split()) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, cells, wide, is_cut=is_cut)
        return
    lines = [list(columns), *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    write("".join(_pad_cells(line, widths) + "\n" for line in lines))


def _pad_cells(line: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


# The fewest characters that the shrinking column keeps, however narrow the terminal.
_LEAST_TEXT = 12


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]], wide: str, *, is_cut: bool) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    screen = console()
    # Rich would shrink all columns; names and ids have to stay whole to be copied.
    kept = [max(map(cell_len, texts)) + 2 for texts in zip(columns, *rows, strict=True) if texts[0] != wide]
    room = max(screen.width - sum(kept), _LEAST_TEXT)
    for column in columns:
        if is_cut:
            drawn.add_column(column, overflow="ellipsis", no_wrap=True, max_width=room if column == wide else None)
        else:
            drawn.add_column(column, overflow="fold", ratio=1 if column == wide else None)
    for row in rows:
        drawn.add_row(*(Text(cell, style=_STATE_COLOURS.get(cell, "")) for cell in row))
    screen.print(drawn)


def say(text: str = "", style: str = "") -> None:
    """Print a line, styled in a terminal."""
    if sys.stdout.isatty():
        console().print(clean(text), style=style)
    else:
        write(clean(text) + "\n")


def say_facts(facts: Sequence[tuple[str, str]]) -> int:
    """Print one aligned line per label that has a value, and return the width of the labels."""
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        if value:
            say(f"{label:<{width}}  {value}")
    return width


def who(author: Author) -> str:
    """Return who made a change and why, as text."""
    actor = author.actor.value
    name = actor if author.name in ("", actor) or actor == "disk" else f"{actor} {author.name}"
    return f"{name}: {author.reason}" if author.reason else name


def explain(context: typer.Context) -> None:
    """Print the help of a command that was called without a subcommand."""
    write(context.get_help().rstrip() + "\n")


def say_done(
    context: typer.Context, as_json: bool, data: object, *lines: str, undo: Sequence[str] | None = None
) -> None:
    """Print a command's result as JSON or as lines, with the command that undoes it.

    `undo` is empty if nothing was changed, and None if the change can't be undone.
    """
    if undo:
        can_be_undone.get()(tuple(undo))
    if as_json:
        print_json(data if undo is None else {**plain(data), "undo": list(undo)})
        return
    for line in lines:
        say(line)
    if undo:
        say(f"Undo: {command(context, *undo)}", style="dim")


def say_undo(context: typer.Context, *words: str) -> None:
    """Print the command that undoes the change and offer it to the chat's undo."""
    can_be_undone.get()(words)
    say(f"Undo: {command(context, *words)}", style="dim")


def say_list(
    as_json: bool,
    data: object,
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    wide: str = "",
    is_cut: bool = False,
    empty: str,
) -> None:
    """Print rows as JSON or as a table; print `empty` if there are none."""
    if as_json:
        print_json(data)
    else:
        rows_or(empty, columns, rows, wide=wide, is_cut=is_cut)


def rows_or(
    empty: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, wide: str = "", is_cut: bool = False
) -> None:
    """Print a table, or `empty` if there are no rows."""
    if rows:
        table(columns, rows, wide=wide, is_cut=is_cut)
    else:
        say(empty)


def say_more(count: int, total: int, next: str | None) -> None:
    """Print how to get the rest of a list, if there is more."""
    if next:
        say(f"{count} of {total}; the rest: --after {next}, or more at once with --limit.")


# Set in the chat: formats a command the way it is typed there.
in_chat: ContextVar[Callable[..., str] | None] = ContextVar("in_chat", default=None)
# Set in the chat: collects the undo command of each change for `/undo`.
can_be_undone: ContextVar[Callable[[tuple[str, ...]], object]] = ContextVar("undo", default=lambda words: None)


def command(context: typer.Context, *words: str) -> str:
    """Return a command line ready to paste: with the same `--home`, or as a slash command in the chat."""
    if (typed := in_chat.get()) is not None:
        return typed(*words)
    home = context.find_root().obj
    return shlex.join(["habitus", *(["--home", str(home)] if home else []), *words])


def complain(text: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(clean(text).rstrip() + "\n")


def tell_taken_out(found: Mapping[str, int]) -> None:
    """Print on standard error how many secrets of each kind were removed from the output."""
    if found:
        complain(f"Secrets taken out: {', '.join(f'{count} × {kind}' for kind, count in found.items())}.")
