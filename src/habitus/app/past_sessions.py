"""Past sessions of a user, or for an admin of everybody, found by the beginning of their id, with their turns."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.app.habitus import Habitus
from habitus.app.whose import whose
from habitus.errors import NotFound, did_you_mean
from habitus.journal.model import KeptSession, Turn

_KNOWN = 1000  # sessions that are looked through for an id


@dataclass(frozen=True, kw_only=True, slots=True)
class PastSession:
    session: str
    turns: tuple[Turn, ...]


def past_sessions(habitus: Habitus, limit: int, *, all_users: bool = False) -> list[KeptSession]:
    """The last conversations, the latest first."""
    return habitus.journal.sessions(limit=limit, user=whose(habitus, all_users))


def past_session(habitus: Habitus, wanted: str | None = None, *, all_users: bool = False) -> PastSession:
    """The last session, or the one whose id begins like this."""
    id = _resolved(habitus, wanted, all_users)
    return PastSession(session=id, turns=tuple(habitus.journal.turns_of(id, user=whose(habitus, all_users))))


def _resolved(habitus: Habitus, wanted: str | None, all_users: bool) -> str:
    known = past_sessions(habitus, 1 if wanted is None else _KNOWN, all_users=all_users)
    ids = [session.id for session in known]
    if not ids:
        raise NotFound("There are no sessions yet.", mend="Begin one: habitus chat.")
    if wanted is None:
        return ids[0]
    found = [id for id in ids if id.startswith(wanted)]
    if wanted in ids or len(found) == 1:
        return wanted if wanted in ids else found[0]
    if found:
        raise NotFound(f"'{wanted}' begins {len(found)} sessions.", mend=f"Write more of it: {', '.join(found[:3])}.")
    near = did_you_mean(wanted, ids) or "See 'habitus sessions list'."
    raise NotFound(f"There is no session '{wanted}'.", mend=near)
