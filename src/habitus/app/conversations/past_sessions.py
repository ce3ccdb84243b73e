"""Past sessions of a user (or of all users, for admins), found by a prefix of their id; and their turns in detail."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.agent.history import unpack
from habitus.agent.stream import about
from habitus.agent.user_input import names_in
from habitus.app.home import whose
from habitus.errors import NotFound, did_you_mean
from habitus.events import ToolCall
from habitus.journal.journal import Journal, effective
from habitus.journal.model import KeptSession, Place, Selected, Turn, TurnOutcome
from habitus.llm.model import Answered, Asked, Returned, Text
from habitus.settings import Settings

_USED = (Place.EAGER, Place.STICKY, Place.LOADED)
# Sessions searched for an id.
_KNOWN = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class PastSession:
    session: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownStep:
    """A tool call with its purpose and result; the result is None if the call never returned."""

    tool: str
    about: str
    result: str | None
    failed: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownTurn:
    """A turn as people read it: reply, outcome, skills used and offered, steps, and nudges."""

    turn: Turn
    # File names.
    attached: tuple[str, ...]
    reply: str
    outcome: TurnOutcome | None
    used: tuple[Selected, ...]
    others: tuple[Selected, ...]
    steps: tuple[ShownStep, ...]
    # What the agent was told while it worked.
    nudges: tuple[str, ...]


def past_sessions(settings: Settings, journal: Journal, limit: int, *, all_users: bool = False) -> list[KeptSession]:
    """Return the latest sessions, most recent first."""
    return journal.sessions(limit=limit, user=whose(settings, all_users))


def past_session(
    settings: Settings, journal: Journal, wanted: str | None = None, *, all_users: bool = False
) -> PastSession:
    """Return the latest session, or the one whose id starts with this text."""
    id = _resolve_session(settings, journal, wanted, all_users)
    return PastSession(session=id, turns=tuple(journal.turns_of(id, user=whose(settings, all_users))))


def _resolve_session(settings: Settings, journal: Journal, wanted: str | None, all_users: bool) -> str:
    """Return the full id. Raises `NotFound` if no session, or more than one, matches."""
    known = past_sessions(settings, journal, 1 if wanted is None else _KNOWN, all_users=all_users)
    ids = [session.id for session in known]
    if not ids:
        raise NotFound("There are no sessions yet.", hint="Begin one: habitus chat.")
    if wanted is None:
        return ids[0]
    found = [id for id in ids if id.startswith(wanted)]
    if wanted in ids or len(found) == 1:
        return wanted if wanted in ids else found[0]
    if found:
        raise NotFound(f"'{wanted}' begins {len(found)} sessions.", hint=f"Write more of it: {', '.join(found[:3])}.")
    near = did_you_mean(wanted, ids) or "See 'habitus sessions list'."
    raise NotFound(f"There is no session '{wanted}'.", hint=near)


def shown_turn(turn: Turn) -> ShownTurn:
    """Return a turn with its messages unpacked for reading."""
    said = [message for kept in turn.messages if (message := unpack(kept)) is not None]
    answers = [message for message in said if isinstance(message, Answered)]
    returned = {message.call: message for message in said if isinstance(message, Returned)}
    # The first message is the request; later ones are nudges.
    asked = [message for message in said if isinstance(message, Asked)]
    return ShownTurn(
        turn=turn,
        attached=names_in(asked[0]) if asked else (),
        reply=next((answer.text for answer in reversed(answers) if answer.text), ""),
        outcome=effective(turn.outcomes),
        used=tuple(entry for entry in turn.selected if entry.place in _USED),
        others=tuple(entry for entry in turn.selected if entry.place not in _USED),
        steps=tuple(_step(call, returned.get(call.id)) for answer in answers for call in answer.calls),
        nudges=tuple(part.text for message in asked[1:] for part in message.parts if isinstance(part, Text)),
    )


def _step(call: ToolCall, came: Returned | None) -> ShownStep:
    result = None if came is None else came.content
    return ShownStep(
        tool=call.name, about=about(call.arguments), result=result, failed=came is not None and came.failed
    )
