"""tool.json, the contract of a skill's code stage: parameters, permissions, regression cases, and the code's hash."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from habitus.skills.formats.base import CantTake
from habitus.skills.formats.foreign_values import dump_json, load_object, text

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
NO_PERMISSIONS: Mapping[str, Any] = {"network": False, "read": [], "write": [], "env": []}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContract:
    """What the model may call, and what the code may do."""

    name: str
    description: str
    hash: str  # sha256 of scripts/tool.py
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict(NO_PARAMETERS))  # JSON Schema
    permissions: Mapping[str, Any] = field(default_factory=lambda: dict(NO_PERMISSIONS))
    cases: tuple[Mapping[str, Any], ...] = ()  # {"payload": …, "shape": …, "expected": …}
    extra: Mapping[str, Any] = field(default_factory=dict)


def hash_of(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()


def render(tool: ToolContract) -> bytes:
    return dump_json(
        {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "permissions": tool.permissions,
            "cases": list(tool.cases),
            "hash": tool.hash,
            **tool.extra,
        }
    )


def parse(content: bytes, file: str = "tool.json") -> ToolContract:
    """Raises `CantTake` for what is not a tool.json at all; a missing field has its default."""
    values = load_object(content, file)
    parameters, permissions = values.pop("parameters", None), values.pop("permissions", None)
    cases = values.pop("cases", None)
    if not isinstance(parameters, (dict, type(None))) or not isinstance(permissions, (dict, type(None))):
        raise CantTake(f"{file} has parameters or permissions that are no object.")
    return ToolContract(
        name=text(values.pop("name", "")),
        description=text(values.pop("description", "")),
        parameters=dict(NO_PARAMETERS) if parameters is None else parameters,
        permissions={**NO_PERMISSIONS, **(permissions or {})},
        cases=tuple(case for case in cases if isinstance(case, dict)) if isinstance(cases, list) else (),
        hash=text(values.pop("hash", "")),
        extra=values,
    )


def recorded_in(content: bytes, conversations: Collection[str]) -> int:
    """How many of its cases were recorded in these conversations."""
    try:
        return sum(case.get("conversation") in conversations for case in parse(content).cases)
    except CantTake:
        return 0


def without_recorded(content: bytes, conversations: Collection[str]) -> bytes:
    """The same without those."""
    tool = parse(content)
    kept = tuple(case for case in tool.cases if case.get("conversation") not in conversations)
    return render(replace(tool, cases=kept))
