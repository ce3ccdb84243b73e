"""Text that can be kept and sent: halves of characters, which no database, file or provider takes, are replaced."""

from __future__ import annotations

import re
from typing import Any

_HALVES = re.compile("[\ud800-\udfff]")
MARK = "\N{REPLACEMENT CHARACTER}"


def encodable(text: str) -> str:
    """The same text, unless something in it can't be written as UTF-8."""
    return text if text.isascii() else _HALVES.sub(MARK, text)


def encodable_value(value: Any) -> Any:
    """A JSON value with every text in it encodable; the escapes of JSON can spell what UTF-8 can't."""
    match value:
        case str():
            return encodable(value)
        case dict():
            return {encodable_value(key): encodable_value(item) for key, item in value.items()}
        case list():
            return [encodable_value(item) for item in value]
        case _:
            return value
