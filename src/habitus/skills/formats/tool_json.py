"""tool.json, the contract of a skill's code stage: parameters, permissions, regression cases, and the hash of the
code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from habitus.skills.formats.base import UnreadableEntryError
from habitus.skills.formats.foreign_values import dump_json, parse_storable_json_object, to_text

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}
NO_PERMISSIONS: Mapping[str, Any] = {"network": False, "read": [], "write": [], "env": []}


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContract:
    """The contract of a tool: its parameters, and what its code may do."""

    name: str
    description: str
    hash: str  # sha256 of scripts/tool.py
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict(NO_PARAMETERS))  # JSON Schema
    permissions: Mapping[str, Any] = field(default_factory=lambda: dict(NO_PERMISSIONS))
    cases: tuple[Mapping[str, Any], ...] = ()  # {"payload": …, "shape": …, "expected": …}
    extra: Mapping[str, Any] = field(default_factory=dict)


def hash_code(code: bytes) -> str:
    """Return the SHA-256 of a tool's code."""
    return hashlib.sha256(code).hexdigest()


def render_tool_json(tool: ToolContract) -> bytes:
    """Render a contract as tool.json."""
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


def parse_tool_json(content: bytes) -> ToolContract:
    """Parse tool.json, with defaults for missing fields; raise `UnreadableEntryError` if it is no contract at all."""
    values = parse_storable_json_object(content, "tool.json")
    parameters, permissions = values.pop("parameters", None), values.pop("permissions", None)
    cases = values.pop("cases", None)
    if not isinstance(parameters, (dict, type(None))) or not isinstance(permissions, (dict, type(None))):
        raise UnreadableEntryError("tool.json has parameters or permissions that are no object.")
    return ToolContract(
        name=to_text(values.pop("name", "")),
        description=to_text(values.pop("description", "")),
        parameters=dict(NO_PARAMETERS) if parameters is None else parameters,
        permissions={**NO_PERMISSIONS, **(permissions or {})},
        cases=tuple(case for case in cases if isinstance(case, dict)) if isinstance(cases, list) else (),
        hash=to_text(values.pop("hash", "")),
        extra=values,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseContributor:
    """One person as the source of recorded cases: by their conversations, and by payloads contributed outside of
    any.
    """

    conversations: Collection[str]
    payloads: Collection[str] = ()  # as `serialize_case_payload` returns them

    def has_contributed(self, case: Mapping[str, Any]) -> bool:
        """Whether this person recorded the case."""
        conversation = case.get("conversation")
        return conversation in self.conversations if conversation else serialize_case_payload(case) in self.payloads


def serialize_case_payload(case: Mapping[str, Any]) -> str:
    """Return the payload of a case as canonical text, which identifies it."""
    return json.dumps(case.get("payload"), sort_keys=True, ensure_ascii=False)


def read_recorded_cases(content: bytes) -> tuple[Mapping[str, Any], ...]:
    """Return the recorded cases; empty if the content is not a tool.json."""
    try:
        return parse_tool_json(content).cases
    except UnreadableEntryError:
        return ()


def remove_contributed_cases(content: bytes, recorder: CaseContributor) -> bytes:
    """Return the contract without the cases of one person."""
    tool = parse_tool_json(content)
    return render_tool_json(
        replace(tool, cases=tuple(case for case in tool.cases if not recorder.has_contributed(case)))
    )
