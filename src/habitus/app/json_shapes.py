"""Tools, recipes, secrets and selections as JSON: the same shape on the command line and over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from habitus.plain_data import plain

if TYPE_CHECKING:
    from habitus.app.conversations.secrets import Overview
    from habitus.sandbox.credentials.grants import Call


def secrets(found: Overview, calls: Sequence[Call]) -> dict[str, Any]:
    told: dict[str, Any] = plain(found)
    return {**told, "calls": plain(calls)}


def result(done: object) -> Any:
    """The result of a use case as JSON, the same on every surface: a type with an `as_json` of its own gives that."""
    return plain(done, shaped=True)
