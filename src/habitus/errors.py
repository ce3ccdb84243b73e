"""Every error that Habitus raises on purpose.

    HabitusError
    ├── UserError            one line for the person: what, which value, how to fix it
    │   ├── NotFound         a name that names nothing
    │   ├── Invalid          a value that breaks a rule; nothing was changed
    │   │   ├── Misused      values that can't be given together, or not without another
    │   │   └── NoModel      nothing says which model answers
    │   ├── Stale            somebody else changed it first
    │   ├── NotInstalled     a package that is absent or too old; an ImportError, too
    │   ├── Refused          a rule of the house forbids it (read-only layer, paused, untrusted)
    │   └── StorageFailed    the disk or the database did not do it
    │       └── DatabaseAway a server that can't be reached now; later it may be
    └── ToolFailed           one line for the model: what went wrong in the tool it called

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


class Misused(Invalid):
    pass


class NoModel(Invalid):
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


class DatabaseAway(StorageFailed):
    pass


class ToolFailed(HabitusError):
    pass


def no_version(name: str, number: int | None, known: Iterable[int] = ()) -> NotFound:
    """Return the error for a version that a skill or lesson never had."""
    has = ", ".join(map(str, known))
    return NotFound(f"'{name}' has no version {number}.", hint=f"It has: {has}." if has else "See its history.")


def did_you_mean(wanted: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return `Did you mean 'csv-summary'?`, or an empty text if no known name is close."""
    near = difflib.get_close_matches(wanted, list(known), n=1, cutoff=cutoff)
    return f"Did you mean '{near[0]}'?" if near else ""
