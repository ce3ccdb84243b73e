"""Forms in which the providers' interfaces want a tool described."""

from __future__ import annotations

from typing import Any

from habitus.errors import Invalid
from habitus.llm.model import ToolSpec


def in_form(spec: ToolSpec, form: str) -> dict[str, Any]:
    match form:
        case "json":
            return {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
        case "anthropic":
            return {"name": spec.name, "description": spec.description, "input_schema": dict(spec.parameters)}
        case "openai":
            return {"type": "function", "function": in_form(spec, "json")}
    raise Invalid(f"There is no form '{form}' of a tool.", mend="There are: json, anthropic, openai.")
