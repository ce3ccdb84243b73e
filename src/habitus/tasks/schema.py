"""JSON Schema: whether the schema of a tool's parameters or result is safe, and whether a value fits it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from habitus.errors import ToolFailed
from habitus.sandbox.model import KIB, MIB

if TYPE_CHECKING:
    from jsonschema_rs import Validator

Json = Any
LONGEST_SCHEMA = 64 * KIB
LONGEST_PAYLOAD = 32 * MIB
DEEPEST = 100  # levels; the validator is native code, and unbounded nesting would crash this process
_WIDEST = 10_000  # subschemas after expanding references
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def validate_parameters_schema(given: Json) -> dict[str, Json]:
    """Return the schema of a tool's parameters, or raise `ToolFailed` with the problem."""
    schema = _decode_json_text(given, "The parameters")
    if not isinstance(schema, dict):
        raise ToolFailed('The parameters are not a JSON Schema object such as {"type": "object", "properties": {…}}.')
    if len(_dump_json(schema, "The parameters")) > LONGEST_SCHEMA:
        raise ToolFailed(f"The schema of the parameters is longer than {LONGEST_SCHEMA // KIB} KiB. Shorten it.")
    if is_nested_deeper(schema, DEEPEST):
        raise ToolFailed(f"The schema of the parameters is nested deeper than {DEEPEST} levels.")
    if schema.get("type", "object") != "object":
        raise ToolFailed(f"The parameters must be of type object, not {json.dumps(schema['type'])[:80]}.")
    _refuse_endless_schema_references(schema)
    _make_validator(_dump_json(schema, "The parameters"))
    return {"type": "object", **schema}


def validate_payload(schema: Mapping[str, Json], given: Json, what: str = "The payload") -> Json:
    """Return the payload, or raise `ToolFailed` with the first place where it does not fit."""
    payload = _decode_json_text(given, what)
    if is_nested_deeper(payload, DEEPEST):
        raise ToolFailed(f"{what} is nested deeper than {DEEPEST} levels.")
    size = len(_dump_json(payload, what))
    if size > LONGEST_PAYLOAD:
        raise ToolFailed(f"{what} has {size:,} bytes; {LONGEST_PAYLOAD // MIB} MiB is the most a tool takes.")
    for error in _make_validator(_dump_json(schema, "The parameters")).iter_errors(payload):
        where = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in error.instance_path)
        place = f" at '{where.lstrip('.')}'" if where else ""
        raise ToolFailed(f"{what} does not fit the parameters{place}: {_to_one_line(error.message)}.")
    return payload


def validate_result_schema(schema: Json) -> None:
    """Raise `ToolFailed` if the schema of a result can't be used."""
    if not isinstance(schema, dict) or is_nested_deeper(schema, DEEPEST):
        raise ToolFailed("It is not a JSON Schema object.")
    _refuse_endless_schema_references(schema)
    _make_validator(_dump_json(schema, "The shape"))


def fits_schema(schema: Mapping[str, Json], value: Json) -> bool:
    """Return whether a value fits a validated schema."""
    return not is_nested_deeper(value, DEEPEST) and _make_validator(_dump_json(schema, "The shape")).is_valid(value)


def is_nested_deeper(value: Json, levels: int) -> bool:
    """Return whether objects and lists are nested deeper than this, without recursion."""
    level = [value]
    for _ in range(levels + 1):
        level = [
            below
            for item in level
            if isinstance(item, (dict, list, tuple))
            for below in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


@lru_cache(maxsize=256)
def _make_validator(schema: str) -> Validator:
    import jsonschema_rs  # several MB of native code, needed only to make or call tools

    try:
        return jsonschema_rs.validator_for(
            # The linear-time engine, because a schema may come from a stranger.
            json.loads(schema),
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        place = "/".join(str(part) for part in getattr(error, "instance_path", ()))
        at = f" at '{place}'" if place else ""
        problem = getattr(error, "message", None) or str(error)
        if problem.endswith('is not a "regex"'):
            problem += ": look-around and back-references are not supported"
        raise ToolFailed(f"The parameters are not valid JSON Schema{at}: {_to_one_line(problem)}.") from None


def _refuse_endless_schema_references(schema: dict[str, Json]) -> None:
    """Reject circular or fanned-out references: expanded they would never end, or take the validator hours."""
    if _count_subschemas(schema, schema, {}, ()) > _WIDEST:
        raise ToolFailed("The references of the parameters' schema fan out too far. Write it with fewer.")


def _count_subschemas(node: Json, root: dict[str, Json], known: dict[str, int], above: tuple[str, ...]) -> int:
    if isinstance(node, list):
        return sum(_count_subschemas(below, root, known, above) for below in node)
    if not isinstance(node, dict):
        return 0
    total = 1
    for key, below in node.items():
        if key in _REFERENCES and isinstance(below, str):
            if below in above or key != "$ref":
                raise ToolFailed(f"The parameters' schema refers to itself ('{below[:80]}'). Write it out instead.")
            if below not in known:
                known[below] = _count_subschemas(_resolve_reference(root, below), root, known, (*above, below))
            total += known[below]
        else:
            total += _count_subschemas(below, root, known, above)
    return min(total, _WIDEST + 1)


def _resolve_reference(root: dict[str, Json], reference: str) -> Json:
    """Return the target of a reference within the document; the validator itself reports any other."""
    if reference == "#":
        return {"$ref": "#"}
    node: Json = root
    for part in reference.removeprefix("#/").split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or key not in node:
            return None
        node = node[key]
    return node


def _decode_json_text(given: Json, what: str) -> Json:
    """Decode JSON text: models often send an object as its text."""
    if not isinstance(given, str) or not given.lstrip().startswith("{"):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ToolFailed(f"{what} can't be read as JSON: {error}.") from None


def _dump_json(value: Json, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
    except (ValueError, TypeError, RecursionError) as error:
        raise ToolFailed(f"{what} can't be written as JSON: {_to_one_line(str(error))}.") from None


def _to_one_line(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= 300 else f"{line[:299]}…"
