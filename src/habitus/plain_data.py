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

# Metadata of a dataclass field. A class may also name properties in `IN_JSON`, which are then written as fields are.
INLINE = {"json": "inline"}  # its keys stand among those of the record; a later field of the same name wins
INTERNAL = {"json": "internal"}  # left out


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
    if (keys := json_keys(kind)) is not None:  # type: ignore[arg-type]  # every class has a hash
        told: dict[str, Any] = {}
        for name, is_inline in keys:
            value = plain(getattr(data, name), shaped=shaped)
            told.update(value if is_inline else {name: value})
        return told
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
def json_keys(kind: type) -> tuple[tuple[str, bool], ...] | None:
    """Attributes of a dataclass that its JSON has, and whether each is written inline; None of another type."""
    if not is_dataclass(kind):
        return None
    ways = {field.name: field.metadata.get("json", "") for field in fields(kind)} | dict.fromkeys(_properties(kind), "")
    return tuple((name, way == "inline") for name, way in ways.items() if way != "internal")


def _properties(kind: type) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(kind, "IN_JSON", ())
    return found


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
