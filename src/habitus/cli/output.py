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
from habitus.plain_data import convert_to_plain_json as convert_to_plain_json
from habitus.text import format_quantity as format_quantity
from habitus.text import strip_control_characters as strip_control_characters

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


def make_standard_streams_accept_any_text() -> None:
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
        logging.lastResort.setFormatter(OneLineLogFormatter())


class OneLineLogFormatter(logging.Formatter):
    """Formats a log record as one line for a person; HABITUS_DEBUG adds the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        if os.environ.get("HABITUS_DEBUG"):
            return strip_control_characters(super().format(record))
        kind = record.exc_info[0] if record.exc_info else None
        why = f" ({kind.__name__}: {record.exc_info[1]})" if kind and record.exc_info else ""
        return "habitus: " + " ".join(strip_control_characters(record.getMessage() + why).split())


class OutputWriteError(UserError):
    """Standard output can't be written any more, for example because the disk is full."""


def write_stdout(text: str) -> None:
    """Write text to standard output unchanged and flush it, so a failure surfaces before the command ends."""
    _write_and_flush(lambda: sys.stdout.write(text))


def print_file_content(data: bytes, name: str) -> None:
    """Write a file's content to standard output; on a terminal only text, without control sequences."""
    if sys.stdout.isatty():
        # A null byte in the first block is how git and grep recognise binary files.
        if b"\0" in data[:1024]:
            raise Invalid(f"{name} is not text ({len(data):,} bytes).", hint="Send it to a file: … > FILE")
        write_stdout(strip_control_characters(data.decode("utf-8", "replace")))
    else:
        _write_and_flush(lambda: sys.stdout.buffer.write(data))


def _write_and_flush(send: Callable[[], object]) -> None:
    try:
        send()
        sys.stdout.flush()
    # A reader that closes early, such as `head`, is no error; the caller exits quietly.
    except BrokenPipeError:
        raise
    except OSError as error:
        redirect_stdout_to_null_device()
        raise OutputWriteError(
            f"Can't write the output: {error.strerror}.", hint="The command may have done its work."
        ) from None


def redirect_stdout_to_null_device() -> None:
    """Point standard output at the null device, because flushing it on exit would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_literal_text_console() -> Console:
    """Return a console that prints text literally: no markup, no emoji, no highlighting."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


@contextmanager
def show_progress_counter(
    *, is_quiet: bool = False, label: str = "", unit: str = "skills"
) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows a running count on standard error; it does nothing without a terminal."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    with ExitStack() as open_bar:
        # The bar appears with the first call: a command that finishes at once should not flash one.
        bar: list[Callable[[int], None]] = []

        def count(done: int) -> None:
            if not bar:
                bar.append(open_bar.enter_context(_open_progress_bar(label, unit)))
            bar[0](done)

        yield count


@contextmanager
def _open_progress_bar(label: str, unit: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(f"{{task.description}}{{task.completed}} {unit}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(label and f"{label}: ", total=None)
        yield lambda done: bar.update(task, completed=done)


def print_json(data: object) -> None:
    """Print data as indented JSON."""
    write_stdout(format_json(data))


def format_json(data: object) -> str:
    """Return data as indented JSON, ASCII only if standard output is not UTF-8."""
    return json.dumps(convert_to_plain_json(data), ensure_ascii=not is_unicode_output(), indent=2) + "\n"


def is_unicode_output() -> bool:
    """Return whether standard output can encode every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: str = "", is_cut: bool = False
) -> None:
    """Print a table; the column named `wide` shrinks in a narrow terminal, a pipe gets whole lines.

    With `is_cut`, each row is cut to one line of the terminal.
    """
    # A newline or control character in a cell would break the table.
    cells = [[" ".join(strip_control_characters(str(cell)).split()) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw_table(columns, cells, wide, is_cut=is_cut)
        return
    lines = [list(columns), *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    write_stdout("".join(_pad_cells(line, widths) + "\n" for line in lines))


def _pad_cells(line: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


# The fewest characters that the shrinking column keeps, however narrow the terminal.
_MIN_WIDE_COLUMN = 12


def _draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]], wide: str, *, is_cut: bool) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    screen = make_literal_text_console()
    # Rich would shrink all columns; names and ids have to stay whole to be copied.
    kept = [max(map(cell_len, texts)) + 2 for texts in zip(columns, *rows, strict=True) if texts[0] != wide]
    room = max(screen.width - sum(kept), _MIN_WIDE_COLUMN)
    for column in columns:
        if is_cut:
            drawn.add_column(column, overflow="ellipsis", no_wrap=True, max_width=room if column == wide else None)
        else:
            drawn.add_column(column, overflow="fold", ratio=1 if column == wide else None)
    for row in rows:
        drawn.add_row(*(Text(cell, style=_STATE_COLOURS.get(cell, "")) for cell in row))
    screen.print(drawn)


def print_line(text: str = "", style: str = "") -> None:
    """Print a line, styled in a terminal."""
    if sys.stdout.isatty():
        make_literal_text_console().print(strip_control_characters(text), style=style)
    else:
        write_stdout(strip_control_characters(text) + "\n")


def print_labelled_values(facts: Sequence[tuple[str, str]]) -> int:
    """Print one aligned line per label that has a value, and return the width of the labels."""
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        if value:
            print_line(f"{label:<{width}}  {value}")
    return width


def format_author_and_reason(author: Author) -> str:
    """Return who made a change and why, as text."""
    actor = author.actor.value
    name = actor if author.name in ("", actor) or actor == "disk" else f"{actor} {author.name}"
    return f"{name}: {author.reason}" if author.reason else name


def print_help(context: typer.Context) -> None:
    """Print the help of a command that was called without a subcommand."""
    write_stdout(context.get_help().rstrip() + "\n")


def print_command_result(
    context: typer.Context, as_json: bool, data: object, *lines: str, undo: Sequence[str] | None = None
) -> None:
    """Print a command's result as JSON or as lines, with the command that undoes it.

    `undo` is empty if nothing was changed, and None if the change can't be undone.
    """
    if undo:
        undo_listener.get()(tuple(undo))
    if as_json:
        print_json(data if undo is None else {**convert_to_plain_json(data), "undo": list(undo)})
        return
    for line in lines:
        print_line(line)
    if undo:
        print_line(f"Undo: {format_command(context, *undo)}", style="dim")


def print_and_register_undo_command(context: typer.Context, *words: str) -> None:
    """Print the command that undoes the change and offer it to the chat's undo."""
    undo_listener.get()(words)
    print_line(f"Undo: {format_command(context, *words)}", style="dim")


def print_json_or_table(
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
        print_table_or_message(empty, columns, rows, wide=wide, is_cut=is_cut)


def print_table_or_message(
    empty: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, wide: str = "", is_cut: bool = False
) -> None:
    """Print a table, or `empty` if there are no rows."""
    if rows:
        print_table(columns, rows, wide=wide, is_cut=is_cut)
    else:
        print_line(empty)


def print_paging_hint(count: int, total: int, next: str | None) -> None:
    """Print how to get the rest of a list, if there is more."""
    if next:
        print_line(f"{count} of {total} shown. Next page: --after {next}; larger pages: --limit.")


# Set in the chat: formats a command the way it is typed there.
chat_command_formatter: ContextVar[Callable[..., str] | None] = ContextVar("in_chat", default=None)
# Set in the chat: collects the undo command of each change for `/undo`.
undo_listener: ContextVar[Callable[[tuple[str, ...]], object]] = ContextVar("undo", default=lambda words: None)


def format_command(context: typer.Context, *words: str) -> str:
    """Return a command line ready to paste: with the same `--home`, or as a slash command in the chat."""
    if (typed := chat_command_formatter.get()) is not None:
        return typed(*words)
    home = context.find_root().obj
    return shlex.join(["habitus", *(["--home", str(home)] if home else []), *words])


def print_line_to_stderr(text: str) -> None:
    """Print a line on standard error."""
    sys.stderr.write(strip_control_characters(text).rstrip() + "\n")


def print_redacted_secret_counts(found: Mapping[str, int]) -> None:
    """Print on standard error how many secrets of each kind were removed from the output."""
    if found:
        print_line_to_stderr(f"Secrets removed: {', '.join(f'{count} × {kind}' for kind, count in found.items())}.")
