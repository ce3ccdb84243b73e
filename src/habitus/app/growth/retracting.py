"""Retracting: withdraw from memory all that one turn or one session taught."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from habitus.app.whose import memory_of, whose
from habitus.errors import Invalid, NotFound
from habitus.memory.model import Engram

if TYPE_CHECKING:
    from habitus.app.home import Home


@dataclass(frozen=True, kw_only=True, slots=True)
class Retracted:
    """The lessons that were withdrawn; `undo` follows `habitus`."""

    lessons: tuple[Engram, ...]
    undo: tuple[str, ...]


def retract(home: Home, *, turn: str = "", session: str = "", all_users: bool = False) -> Retracted:
    """They are in the archive, and are not learned again by themselves."""
    if bool(turn) is bool(session):
        raise Invalid("Say which conversation taught it.", mend="Give --turn ID or --session ID.")
    # What was learned before lessons knew their session is found by the turns that the journal still has.
    kept = home.journal.turns_of(session, user=whose(home.settings, all_users)) if session else []
    memory = memory_of(home, all_users)
    found = memory.taught_by({turn} if turn else {one.id for one in kept}, session=session)
    where = f"turn {turn}" if turn else f"session {session}"
    if not found:
        raise NotFound(f"Nothing that is remembered comes from {where}.", mend="See 'habitus sessions list'.")
    by = home.settings.signature
    gone = tuple(memory.remove(engram.id, by=by, why=f"withdrawn with {where}") for engram in found)
    return Retracted(lessons=gone, undo=("lessons", "restore", *(engram.id for engram in gone)))
