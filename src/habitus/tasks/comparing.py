"""Comparing results: where two differ within a tolerance, which fields stay the same from run to run, and whether
enough different ones are known to tell a right program from a wrong one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from habitus.redact import MARKER
from habitus.tasks import schema
from habitus.tasks.checks import Equals
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


LONGEST_RESULT = 16 * 1024  # characters of a result that is kept
LEAST = 3  # different inputs whose results differ: with fewer, a constant or half a program could pass
_TOLERANCE = 1e-9  # of numbers, relative: another order of the same sum is no other result
_WHOLE = "the whole result"


def difference(expected: Equals, printed: str) -> str:
    """The first field in which a result is another than expected, in words; nothing where it is the same."""
    now = _at(result_of(printed), expected.path)
    wrong = [path for path in differing(expected.value, now) if not _is_within(path, expected.apart)]
    if not wrong:
        return ""
    had, has = (short(_at(value, wrong[0]), 80) for value in (expected.value, now))
    where = ".".join(part for part in (expected.path, wrong[0]) if part)
    return f"{where or _WHOLE} is {has}, and should be {had}"


def lasting(expected: Equals) -> Equals | None:
    """As it is kept: what has changed since it was recorded will change again."""
    return leave_out(replace(expected, moved=()), expected.moved)


def leave_out(expected: Equals, fields: Iterable[str]) -> Equals | None:
    """The same without these fields; none where nothing remains to compare."""
    apart = tuple(sorted({*expected.apart, *fields}))
    is_comparable = "" not in apart and bool(_leaves(expected.value, apart))
    return replace(expected, apart=apart) if is_comparable else None


def expect(
    printed: Sequence[str], *, before: Iterable[str] = (), redacted: Callable[[str], str] = str
) -> Equals | None:
    """What runs on the same input agree on; `before` are earlier results that may have been overtaken since.

    None where it is too long to keep, or nothing in it stays the same.
    """
    first = redacted(printed[0].strip())
    if len(first) > LONGEST_RESULT:
        return None
    value = result_of(first)
    unsteady = {path for other in printed[1:] for path in differing(result_of(printed[0]), result_of(other))}
    secret = {path for path, leaf in _leaves(value, ()) if isinstance(leaf, str) and MARKER.search(leaf)}
    moved = {path for old in before for path in differing(result_of(old), value)} - unsteady
    return leave_out(Equals(value=value, moved=tuple(sorted(moved))), unsteady | secret)


def is_enough(expected: Collection[Equals]) -> bool:
    """Whether these results, each of another input, tell a right program from one that only looks so."""
    compared = (_leaves(one.value, one.apart) for one in expected)
    return len({json.dumps(leaves, sort_keys=True, ensure_ascii=False) for leaves in compared}) >= LEAST


def differing(one: Json, other: Json, path: str = "") -> list[str]:
    """The fields in which two results differ; the whole has the empty path."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys((*one, *other))
        return [
            found
            for key in keys
            for found in (
                differing(one[key], other[key], _below(path, key))
                if key in one and key in other
                else [_below(path, key)]
            )
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for at, (a, b) in pairs for found in differing(a, b, _below(path, str(at)))]
    return [] if _is_same(one, other) else [path]


def _is_same(one: Json, other: Json) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float) and float in (type(one), type(other)):
        try:
            return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-12) or (one != one and other != other)
        except OverflowError:
            return False
    return type(one) is type(other) and bool(one == other)


def _below(path: str, key: str) -> str:
    step = key.replace("\\", "\\\\").replace(".", "\\.")
    return f"{path}.{step}" if path else step


def _is_within(path: str, apart: Collection[str]) -> bool:
    return any(not one or path == one or path.startswith(f"{one}.") for one in apart)


def _leaves(value: Json, apart: Collection[str], path: str = "") -> list[tuple[str, Json]]:
    """Every field that has no fields itself, but for those apart."""
    if path and _is_within(path, apart):
        return []
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, apart, _below(path, key))]
    if isinstance(value, list) and value:
        return [leaf for at, item in enumerate(value) for leaf in _leaves(item, apart, _below(path, str(at)))]
    return [(path, value)]


def _at(value: Json, path: str) -> Json:
    """What stands at a path; "nothing" where there is no such field."""
    return dict(_nodes(value)).get(path, "nothing")


def _nodes(value: Json, path: str = "") -> list[tuple[str, Json]]:
    below: list[tuple[str, Json]] = []
    if isinstance(value, dict):
        below = [node for key, item in value.items() for node in _nodes(item, _below(path, key))]
    elif isinstance(value, list):
        below = [node for at, item in enumerate(value) for node in _nodes(item, _below(path, str(at)))]
    return [(path, value), *below]


def short(value: Json, most: int = 120) -> str:
    """A value in one line, for a message or a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
