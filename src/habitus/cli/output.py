"""What the command line prints: tables and colours for a person, plain text for a pipe, JSON when asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer
    from rich.console import Console

_STATE_COLOURS = {
    "ok": "green",
    "disabled": "dim",
    "gated": "yellow",
    "held": "yellow",
    "untrusted": "yellow",
    "broken": "red",
    "missing": "yellow",
}


def console() -> Console:
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    # A pipe gets whole lines: nothing is cut or wrapped to the width of a terminal that isn't there.
    return Console(width=None if is_terminal else 10_000, highlight=False, soft_wrap=not is_terminal, markup=False)


def print_json(data: object) -> None:
    sys.stdout.write(json.dumps(plain(data), ensure_ascii=False, indent=2) + "\n")


def plain(data: object) -> Any:
    """Dataclasses, dates, enums and paths as JSON values."""
    if isinstance(data, Enum):
        return data.value
    if is_dataclass(data) and not isinstance(data, type):
        return {field.name: plain(getattr(data, field.name)) for field in fields(data)}
    if isinstance(data, Mapping):
        return {str(plain(key)): plain(value) for key, value in data.items()}
    if isinstance(data, (set, frozenset)):
        return sorted(plain(item) for item in data)
    if isinstance(data, (list, tuple)):
        return [plain(item) for item in data]
    if isinstance(data, datetime):
        return data.isoformat()
    return str(data) if isinstance(data, Path) else data


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, wide: str = "") -> None:
    """A table; the column called `wide` gives way when the terminal is narrow."""
    from rich.table import Table
    from rich.text import Text

    screen = console()
    drawn = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        drawn.add_column(column, no_wrap=not screen.is_terminal, overflow="fold", ratio=1 if column == wide else None)
    for row in rows:
        drawn.add_row(*(Text(clean(str(cell)), style=_STATE_COLOURS.get(str(cell), "")) for cell in row))
    screen.print(drawn)


def say(text: str = "", style: str = "") -> None:
    console().print(clean(text), style=style)


def explain(context: typer.Context) -> None:
    """The help of a command that was called without saying what to do."""
    sys.stdout.write(context.get_help().rstrip() + "\n")


def undo(command: str) -> None:
    """Every change that was made says how to take it back."""
    say(f"Undo: {command}", style="dim")


def complain(text: str) -> None:
    """A line on standard error."""
    sys.stderr.write(clean(text).rstrip() + "\n")


def clean(text: str) -> str:
    """Text without the control characters that could drive a terminal."""
    return "".join(char for char in text if char in "\n\t" or char.isprintable() or char == "\u200d")
