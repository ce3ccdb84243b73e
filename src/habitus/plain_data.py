"""Plain values: dataclasses, dates, enums and paths as what JSON knows, and how far values are nested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

_NO_FORMS: Mapping[type, Callable[[Any], Any]] = {}
_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})


def plain(data: object, forms: Mapping[type, Callable[[Any], Any]] = _NO_FORMS) -> Any:
    """`forms` are types that have a form of their own."""
    kind = type(data)
    if kind in _AS_THEY_ARE:
        return data  # most of what there is
    if kind in forms:
        return forms[kind](data)
    if isinstance(data, Enum):
        return data.value
    if (names := _field_names(kind)) is not None:  # type: ignore[arg-type]  # every class has a hash
        return {name: plain(getattr(data, name), forms) for name in names}
    if isinstance(data, Mapping):
        return {str(plain(key)): plain(value, forms) for key, value in data.items()}
    if isinstance(data, (set, frozenset)):
        return sorted(plain(item, forms) for item in data)
    if isinstance(data, (list, tuple)):
        return [plain(item, forms) for item in data]
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
