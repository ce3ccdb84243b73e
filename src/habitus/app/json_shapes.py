"""The result of a use case as JSON: the same shape on the command line and over HTTP."""

from __future__ import annotations

from typing import Any

from habitus.plain_data import plain


def result(done: object) -> Any:
    """The result of a use case as JSON, the same on every surface: a type with an `as_json` of its own gives that."""
    return plain(done, shaped=True)
