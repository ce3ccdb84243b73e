"""Plain values: dataclasses, dates, enums and paths as what JSON knows, and how far values are nested."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})


def plain(data: object, *, shaped: bool = False) -> Any:
    """Return the fields of a dataclass and the items of a collection as plain values; where `shaped`, a type that has
    an `as_json` of its own gives that instead of its fields."""
    kind = type(data)
    if kind in _AS_THEY_ARE:
        return data  # most of what there is
    if shaped and (form := getattr(data, "as_json", None)) is not None:
        return form()
    if isinstance(data, Enum):
        return data.value
    if (names := _field_names(kind)) is not None:  # type: ignore[arg-type]  # every class has a hash
        return {name: plain(getattr(data, name), shaped=shaped) for name in names}
    if isinstance(data, Mapping):
        return {str(plain(key)): plain(value, shaped=shaped) for key, value in data.items()}
    if isinstance(data, (set, frozenset)):
        return sorted(plain(item, shaped=shaped) for item in data)
    if isinstance(data, (list, tuple)):
        return [plain(item, shaped=shaped) for item in data]
    if isinstance(data, date):
        return data.isoformat()
    return str(data) if isinstance(data, Path) else data


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    """Of a dataclass; None of another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


MAX_DEPTH = 50  # how far values may be nested


def height(value: object) -> int:
    """How far a value is nested: 0 for a text, 1 for a list of texts."""
    found, level = 0, [value]
    while level := [child for item in level for child in _children(item)]:
        found += 1
    return found


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
