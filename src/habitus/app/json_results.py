"""The result of a use case as JSON, with the same shape on the command line and over HTTP."""

from __future__ import annotations

from typing import Any

from habitus.plain_data import to_plain


def serialize_result(result: object) -> Any:
    """Return a result as JSON data; a type with an `as_json` method defines its own shape."""
    return to_plain(result, shaped=True)
