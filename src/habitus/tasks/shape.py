"""The shape of what a tool printed: which keys and types, not which values. Written as JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Mapping

from habitus.tasks import schema
from habitus.tasks.schema import Json

_DEEPEST, _MOST_KEYS = 4, 40


def result_of(printed: str) -> Json:
    """JSON by its value, anything else as text."""
    text = printed.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if schema.is_deeper(value, schema.DEEPEST) else value


def shape_of(printed: str) -> dict[str, Json]:
    """JSON has the shape of its value, anything else is text."""
    return _shape(result_of(printed), 0)


def has_shape(shape: Mapping[str, Json], printed: str) -> bool:
    return schema.fits(shape, result_of(printed)) or schema.fits(shape, printed)


def _shape(value: Json, depth: int) -> dict[str, Json]:
    match value:
        case bool():
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            kinds = [_shape(item, depth + 1) for item in value[:20]] if depth < _DEEPEST else []
            is_uniform = bool(kinds) and all(kind == kinds[0] for kind in kinds)
            return {"type": "array", "items": kinds[0]} if is_uniform else {"type": "array"}
        case dict() if depth < _DEEPEST and len(value) <= _MOST_KEYS:
            below = {key: _shape(item, depth + 1) for key, item in value.items()}
            return {"type": "object", "properties": below, "required": sorted(below)}
        case dict():
            return {"type": "object"}
        case _:
            return {}  # null today may be anything tomorrow
