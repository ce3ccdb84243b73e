"""Output of a command: tables and colours for a person, plain text for a pipe, JSON when asked."""

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
    """Make the standard streams take every text: a character they can't write comes out as its escape."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  # stays open to the end
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # stays open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(OneLine())


class OneLine(logging.Formatter):
    """A log line where nobody listens, as one line for the person; HABITUS_DEBUG adds where it happened."""

    def format(self, record: logging.LogRecord) -> str:
        if os.environ.get("HABITUS_DEBUG"):
            return clean(super().format(record))
        kind = record.exc_info[0] if record.exc_info else None
        why = f" ({kind.__name__}: {record.exc_info[1]})" if kind and record.exc_info else ""
        return "habitus: " + " ".join(clean(record.getMessage() + why).split())


class Lost(UserError):
    """Standard output takes nothing any more."""


def write(text: str) -> None:
    """Text as it is, and at once: whether it could be written is known before the command ends."""
    _write(lambda: sys.stdout.write(text))


def write_file(data: bytes, name: str) -> None:
    """A file as it is; on a terminal only what is text, so that no byte of it gives orders."""
    if sys.stdout.isatty():
        if b"\0" in data[:1024]:
            raise Invalid(f"{name} is not text ({len(data):,} bytes).", mend="Send it to a file: … > FILE")
        write(clean(data.decode("utf-8", "replace")))
    else:
        _write(lambda: sys.stdout.buffer.write(data))


def _write(send: Callable[[], object]) -> None:
    try:
        send()
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up()
        raise Lost(
            f"The output can't be written: {error.strerror}.", mend="The command may have done its work."
        ) from None


def give_up() -> None:
    """Nobody can read standard output any more: what waits to be written goes nowhere, without a complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


@contextmanager
def counting(*, is_quiet: bool = False, doing: str = "", what: str = "skills") -> Iterator[Callable[[int], None]]:
    """A counter on standard error, from its first call on; none where nobody would see it."""
    if is_quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    with ExitStack() as open_bar:
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
    write(json_text(data))


def json_text(data: object) -> str:
    return json.dumps(plain(data), ensure_ascii=not is_unicode(), indent=2) + "\n"


def is_unicode() -> bool:
    """Whether standard output takes every character."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: str = "", is_cut: bool = False) -> None:
    """A table; the column called `wide` gives way when the terminal is narrow, and a pipe gets whole lines.

    With `is_cut` a row is one line of the terminal, whatever its cells hold.
    """
    cells = [[" ".join(clean(str(cell)).split()) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, cells, wide, is_cut=is_cut)
        return
    lines = [list(columns), *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    write("".join(_pad_cells(line, widths) + "\n" for line in lines))


def _pad_cells(line: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


_LEAST_TEXT = 12  # columns for a text that gives way


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]], wide: str, *, is_cut: bool) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    screen = console()
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
    if sys.stdout.isatty():
        console().print(clean(text), style=style)
    else:
        write(clean(text) + "\n")


def say_facts(facts: Sequence[tuple[str, str]]) -> int:
    """Say a line for each label with a value, aligned; return how wide the labels are."""
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        if value:
            say(f"{label:<{width}}  {value}")
    return width


def who(author: Author) -> str:
    """Who made a change, and why."""
    actor = author.actor.value
    name = actor if author.name in ("", actor) or actor == "disk" else f"{actor} {author.name}"
    return f"{name}: {author.reason}" if author.reason else name


def explain(context: typer.Context) -> None:
    """The help of a command that was called without saying what to do."""
    write(context.get_help().rstrip() + "\n")


def say_done(
    context: typer.Context, as_json: bool, data: object, *lines: str, undo: Sequence[str] | None = None
) -> None:
    """Say the result of a command: as JSON, or in words, with the command that takes it back. That is empty where
    nothing was changed, and None of what can't be taken back."""
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
    """Say the findings of a command: as JSON, or as a table, or that there is nothing."""
    if as_json:
        print_json(data)
    else:
        rows_or(empty, columns, rows, wide=wide, is_cut=is_cut)


def rows_or(
    empty: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, wide: str = "", is_cut: bool = False
) -> None:
    """A table, or that there is nothing."""
    if rows:
        table(columns, rows, wide=wide, is_cut=is_cut)
    else:
        say(empty)


def say_more(count: int, total: int, next: str | None) -> None:
    """How to come to the rest of a list."""
    if next:
        say(f"{count} of {total}; the rest: --after {next}, or more at once with --limit.")


in_chat: ContextVar[Callable[..., str] | None] = ContextVar("in_chat", default=None)  # how a command is typed there
can_be_undone: ContextVar[Callable[[tuple[str, ...]], object]] = ContextVar("undo", default=lambda words: None)


def command(context: typer.Context, *words: str) -> str:
    """A command that can be run as it stands: on the command line, on the same home, or in the chat."""
    if (typed := in_chat.get()) is not None:
        return typed(*words)
    home = context.find_root().obj
    return shlex.join(["habitus", *(["--home", str(home)] if home else []), *words])


def complain(text: str) -> None:
    """A line on standard error."""
    sys.stderr.write(clean(text).rstrip() + "\n")


def tell_taken_out(found: Mapping[str, int]) -> None:
    """How many secrets of each kind were taken out of what was just shown."""
    if found:
        complain(f"Secrets taken out: {', '.join(f'{count} × {kind}' for kind, count in found.items())}.")
