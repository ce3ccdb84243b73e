"""Values out of JSON that may hold anything: what is not of the kind that is asked for counts as empty."""

from __future__ import annotations

from collections.abc import Mapping


def string(value: object) -> str:
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def text_of(content: object) -> str:
    """A text, or the texts of the parts that a message is made of."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(string(part) or string(mapping(part).get("text")) for part in content)
    return ""
