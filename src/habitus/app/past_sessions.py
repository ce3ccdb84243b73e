"""Past sessions, found by the beginning of their id, with their turns."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.errors import NotFound, did_you_mean
from habitus.journal.journal import Journal
from habitus.journal.model import Turn

_KNOWN = 1000  # sessions that are looked through for an id


@dataclass(frozen=True, kw_only=True, slots=True)
class PastSession:
    session: str
    turns: tuple[Turn, ...]


def past_session(journal: Journal, wanted: str | None = None) -> PastSession:
    """The last session, or the one whose id begins like this."""
    id = _resolved(journal, wanted)
    return PastSession(session=id, turns=tuple(journal.turns_of(id)))


def _resolved(journal: Journal, wanted: str | None) -> str:
    ids = [session.id for session in journal.sessions(limit=1 if wanted is None else _KNOWN)]
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
