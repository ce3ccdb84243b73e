"""tool.json, the contract of a skill's code stage: parameters, permissions, regression cases, and the code's hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from habitus.skills.formats.base import CantTake
from habitus.skills.formats.foreign_values import dump_json, load_object, text

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
NO_PERMISSIONS: Mapping[str, Any] = {"network": False, "read": [], "write": [], "env": []}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContract:
    """The contract of a tool: its parameters, and what the code may do."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorder:
    """Somebody whose calls tools keep: by their conversations, and by payloads they brought outside of any."""

    conversations: Collection[str]
    payloads: Collection[str] = ()  # as `payload_text` writes them

    def has_made(self, case: Mapping[str, Any]) -> bool:
        conversation = case.get("conversation")
        return conversation in self.conversations if conversation else payload_text(case) in self.payloads


def payload_text(case: Mapping[str, Any]) -> str:
    """The text that a case is known by."""
    return json.dumps(case.get("payload"), sort_keys=True, ensure_ascii=False)


def cases_in(content: bytes) -> tuple[Mapping[str, Any], ...]:
    """The kept cases; none in what is not a tool.json at all."""
    try:
        return parse(content).cases
    except CantTake:
        return ()


def without_cases(content: bytes, recorder: Recorder) -> bytes:
    """The same without the cases that somebody made."""
    tool = parse(content)
    return render(replace(tool, cases=tuple(case for case in tool.cases if not recorder.has_made(case))))
