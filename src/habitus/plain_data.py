"""Converts dataclasses, dates, enums and paths to plain JSON values, and measures nesting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})

# Field metadata of dataclasses. A class may also list properties in `IN_JSON`, which are written like fields.
# The field's keys are merged into the record; a later field of the same name wins.
INLINE = {"json": "inline"}
# Left out of the JSON.
INTERNAL = {"json": "internal"}


def convert_to_plain_json(data: object, *, shaped: bool = False) -> Any:
    """Convert a value to plain JSON data; with `shaped`, objects with an `as_json` method use that."""
    kind = type(data)
    if kind in _PLAIN_TYPES:
        # The fast path: most values are scalars.
        return data
    if shaped and (form := getattr(data, "as_json", None)) is not None:
        return form()
    if isinstance(data, Enum):
        return data.value
    if (keys := list_dataclass_json_attributes(kind)) is not None:  # type: ignore[arg-type]  # every class has a hash
        told: dict[str, Any] = {}
        for name, is_inline in keys:
            value = convert_to_plain_json(getattr(data, name), shaped=shaped)
            told.update(value if is_inline else {name: value})
        return told
    if isinstance(data, Mapping):
        return {
            str(convert_to_plain_json(key)): convert_to_plain_json(value, shaped=shaped) for key, value in data.items()
        }
    if isinstance(data, (set, frozenset)):
        return sorted(convert_to_plain_json(item, shaped=shaped) for item in data)
    if isinstance(data, (list, tuple)):
        return [convert_to_plain_json(item, shaped=shaped) for item in data]
    if isinstance(data, date):
        return data.isoformat()
    return str(data) if isinstance(data, Path) else data


@cache
def list_dataclass_json_attributes(kind: type) -> tuple[tuple[str, bool], ...] | None:
    """Return the attributes in a dataclass's JSON and whether each is inline; None for other types."""
    if not is_dataclass(kind):
        return None
    ways = {field.name: field.metadata.get("json", "") for field in fields(kind)} | dict.fromkeys(
        _list_json_properties(kind), ""
    )
    return tuple((name, way == "inline") for name, way in ways.items() if way != "internal")


def _list_json_properties(kind: type) -> tuple[str, ...]:
    found: tuple[str, ...] = getattr(kind, "IN_JSON", ())
    return found


# Deeper nesting is rejected.
MAX_DEPTH = 50


def measure_nesting_depth(value: object) -> int:
    """Return the nesting depth of a value: 0 for a text, 1 for a list of texts."""
    found, level = 0, [value]
    while level := [child for item in level for child in _list_children(item)]:
        found += 1
    return found


def _list_children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
