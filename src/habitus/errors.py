"""Every error that Habitus raises on purpose.

    HabitusError
    ├── UserError                   one line for the person: message and hint
    │   ├── NotFound                no such name
    │   ├── Invalid                 a value breaks a rule; nothing was changed
    │   │   ├── InvalidOptions  values that exclude or require one another
    │   │   └── NoModelSet          no setting names a model
    │   ├── Stale                   another change came first
    │   ├── NotInstalled            a package is missing or too old; also an ImportError
    │   ├── Refused                 forbidden here (read-only layer, paused, untrusted)
    │   └── StorageFailed           the disk or the database failed
    │       └── DatabaseUnavailable the database server can't be reached; retry later
    └── ToolFailed                  one line for the model: what went wrong in the tool it called

Anything else that escapes is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HabitusError(Exception):
    """The root of every error that Habitus raises on purpose."""


class UserError(HabitusError):
    """Says what, which value and what to do, in one line."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} {hint}".strip())


class NotFound(UserError):
    pass


class Invalid(UserError):
    pass


class InvalidOptions(Invalid):
    pass


class NoModelSet(Invalid):
    """No model is configured; `agent` names an installed program that could be the model, `title` is its display
    name.
    """

    def __init__(self, *, hint: str, agent: str = "", title: str = "") -> None:
        self.agent, self.title = agent, title
        super().__init__("No model is set.", hint=hint)


class Stale(UserError):
    pass


class NotInstalled(UserError, ImportError):
    pass


class Refused(UserError):
    pass


class StorageFailed(UserError):
    pass


class DatabaseUnavailable(StorageFailed):
    pass


class ToolFailed(HabitusError):
    pass


def build_unknown_version_error(name: str, number: int | None, known_versions: Iterable[int] = ()) -> NotFound:
    """Return the error for a version that a skill or lesson never had."""
    has = ", ".join(map(str, known_versions))
    return NotFound(f"'{name}' has no version {number}.", hint=f"It has: {has}." if has else "See its history.")


def did_you_mean(name: str, known_names: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return `Did you mean 'csv-summary'?`, or an empty text if no known name is close."""
    near = difflib.get_close_matches(name, list(known_names), n=1, cutoff=cutoff)
    return f"Did you mean '{near[0]}'?" if near else ""
