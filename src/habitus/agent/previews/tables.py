"""Tables as previews: the columns with their types and the first rows, of CSV, JSON and sheets alike."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from habitus.text import one_line

_MOST_COLUMNS, _LONGEST_CELL, _LONGEST_ROW, _SHOWN_ROWS = 40, 60, 300, 5
LOOKED_AT = 200  # rows whose values say what type a column has
_TYPES = {
    "integer": re.compile(r"[+-]?\d{1,18}"),
    "number": re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    "number with a decimal comma": re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+"),
    "date": re.compile(r"\d{4}-\d\d-\d\d|\d{4}/\d\d/\d\d|\d\d?[./]\d\d?[./]\d{4}"),
    "time": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*|\d\d?:\d\d(:\d\d)?"),
    "boolean": re.compile(r"true|false|yes|no", re.IGNORECASE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """What is known of a table from its first rows; `rows` are texts, the header is not among them."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def describe(self) -> list[str]:
        listed = [f"{name} ({kind})" for name, kind in zip(self.columns, self.types, strict=True)]
        return [f"{len(listed):,} columns: {up_to(listed)}"]

    def first_rows(self, rows: int = _SHOWN_ROWS) -> list[str]:
        shown = [_short(" | ".join(row), _LONGEST_ROW) for row in self.rows[:rows]]
        return ["First rows:", *shown] if shown else []


def table(header: Iterable[object], rows: Iterable[Sequence[object]]) -> Table:
    """The first of the rows as a table; short rows are filled up, what is beyond the header is left out."""
    columns = tuple(_cell(name) or f"column {number}" for number, name in enumerate(header, 1))
    kept = [[_cell(value) for value in row[: len(columns)]] for row in islice(rows, LOOKED_AT)]
    full = [(*row, *[""] * (len(columns) - len(row))) for row in kept]
    types = tuple(_type([row[index] for row in full]) for index in range(len(columns)))
    return Table(columns=columns, types=types, rows=tuple(full))


def csv_table(text: str, *, delimiter: str) -> Table | None:
    """The table at the beginning of a file, whose last line may be cut off and is not in `text`."""
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        rows = [row for row in islice(reader, LOOKED_AT + 1) if row]
    except csv.Error:
        return None
    return table(rows[0], rows[1:]) if rows else None


def delimiter_of(text: str, *, is_tabbed: bool) -> str:
    """By the first line that tells: the sign that stands in it most often."""
    if is_tabbed:
        return "\t"
    first = next((line for line in text.splitlines() if line.strip()), "")
    return max(",;\t|", key=first.count)


def json_table(values: Sequence[object]) -> Table | None:
    """Objects as rows, with a column for every key in the order they come."""
    objects = [value for value in islice(values, LOOKED_AT) if isinstance(value, dict)]
    if not objects:
        return None
    columns = list(dict.fromkeys(str(key) for value in objects for key in value))
    found = table(columns, [[_json(value.get(key)) for key in columns] for value in objects])
    types = tuple(_json_type([value.get(key) for value in objects]) for key in columns)
    return Table(columns=found.columns, types=types, rows=found.rows)


def json_type(value: object) -> str:
    match value:
        case dict():
            return f"object of {len(value):,}"
        case list():
            return f"list of {len(value):,}"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case None:
            return "null"
        case _:
            return "text"


def _json_type(values: Iterable[object]) -> str:
    found = {json_type(value).partition(" ")[0] for value in values if value is not None}
    return " or ".join(sorted(found)) or "empty"


def _json(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _type(values: Iterable[str]) -> str:
    given = [value for value in values if value]
    if not given:
        return "empty"
    return next((name for name, shape in _TYPES.items() if all(map(shape.fullmatch, given))), "text")


def _cell(value: object) -> str:
    return _short(one_line("" if value is None else str(value)[: _LONGEST_CELL * 4]), _LONGEST_CELL)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def up_to(items: Sequence[str]) -> str:
    """A list of columns that ends where it would be too long."""
    more = [f"… {len(items) - _MOST_COLUMNS:,} more"] if len(items) > _MOST_COLUMNS else []
    return ", ".join([*items[:_MOST_COLUMNS], *more])
