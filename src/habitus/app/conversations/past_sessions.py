"""Past sessions of a user (or of all users, for admins), found by a prefix of their id; and their turns in detail."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from habitus.agent.history import decode_journal_message
from habitus.agent.stream import get_most_descriptive_argument
from habitus.agent.user_input import list_attached_file_names
from habitus.app.home import resolve_user_filter
from habitus.errors import NotFound, did_you_mean
from habitus.events import ToolCall, ToolCallRecord, get_text_detail
from habitus.journal.journal import Journal
from habitus.journal.model import SelectedSkill, SessionSummary, SkillPlacementKind, Turn, TurnOutcome
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.llm.model import AssistantMessage, PersonMessage, TextContent, ToolResultMessage
from habitus.settings import Settings

_USED_PLACES = (SkillPlacementKind.EAGER, SkillPlacementKind.STICKY, SkillPlacementKind.LOADED)
# Sessions searched for an id.
_MAX_SEARCHED = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class PastSession:
    session: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnToolCallDetails:
    """A tool call with its purpose and result; the result is None if the call never returned, or is not recorded."""

    tool: str
    about: str
    result: str | None
    failed: bool
    # Seconds from the start of the turn, and those that it took; None if unknown.
    offset_s: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnDetails:
    """A turn as people read it: reply, outcome, skills used and offered, steps, and nudges."""

    turn: Turn
    # File names.
    attached: tuple[str, ...]
    reply: str
    outcome: TurnOutcome | None
    used: tuple[SelectedSkill, ...]
    others: tuple[SelectedSkill, ...]
    steps: tuple[TurnToolCallDetails, ...]
    # What the agent was told while it worked.
    nudges: tuple[str, ...]


def list_past_sessions(
    settings: Settings, journal: Journal, limit: int, *, all_users: bool = False
) -> list[SessionSummary]:
    """Return the latest sessions, most recent first."""
    return journal.list_sessions(limit=limit, user=resolve_user_filter(settings, all_users))


def get_latest_or_matching_session(
    settings: Settings, journal: Journal, id_prefix: str | None = None, *, all_users: bool = False
) -> PastSession:
    """Return the latest session, or the one whose id starts with this text."""
    id = _resolve_session_id_prefix(settings, journal, id_prefix, all_users)
    return PastSession(
        session=id, turns=tuple(journal.list_session_turns(id, user=resolve_user_filter(settings, all_users)))
    )


def _resolve_session_id_prefix(settings: Settings, journal: Journal, id_prefix: str | None, all_users: bool) -> str:
    """Return the full id. Raises `NotFound` if no session, or more than one, matches."""
    known = list_past_sessions(settings, journal, 1 if id_prefix is None else _MAX_SEARCHED, all_users=all_users)
    ids = [session.id for session in known]
    if not ids:
        raise NotFound(
            "There are no sessions yet.", hint="One begins with a chat, or with the first request of a connected agent."
        )
    if id_prefix is None:
        return ids[0]
    found = [id for id in ids if id.startswith(id_prefix)]
    if id_prefix in ids or len(found) == 1:
        return id_prefix if id_prefix in ids else found[0]
    if found:
        raise NotFound(
            f"'{id_prefix}' begins {len(found)} sessions.", hint=f"Write more of it: {', '.join(found[:3])}."
        )
    near = did_you_mean(id_prefix, ids) or "See 'habitus sessions list'."
    raise NotFound(f"There is no session '{id_prefix}'.", hint=near)


def build_turn_details(turn: Turn) -> TurnDetails:
    """Return a turn with its messages unpacked for reading."""
    said = [message for kept in turn.messages if (message := decode_journal_message(kept)) is not None]
    answers = [message for message in said if isinstance(message, AssistantMessage)]
    calls = [call for answer in answers for call in answer.calls]
    returned = {message.call: message for message in said if isinstance(message, ToolResultMessage)}
    # The first message is the request; later ones are nudges.
    asked = [message for message in said if isinstance(message, PersonMessage)]
    return TurnDetails(
        turn=turn,
        attached=list_attached_file_names(asked[0]) if asked else (),
        reply=next((answer.text for answer in reversed(answers) if answer.text), ""),
        outcome=get_deciding_or_heaviest_outcome(turn.outcomes),
        used=tuple(entry for entry in turn.selected if entry.place in _USED_PLACES),
        others=tuple(entry for entry in turn.selected if entry.place not in _USED_PLACES),
        steps=_list_tool_calls_of_turn(turn, [(call, returned.get(call.id)) for call in calls]),
        nudges=tuple(part.text for message in asked[1:] for part in message.parts if isinstance(part, TextContent)),
    )


def _list_tool_calls_of_turn(
    turn: Turn, calls: Sequence[tuple[ToolCall, ToolResultMessage | None]]
) -> tuple[TurnToolCallDetails, ...]:
    """Return the calls of a turn, from its messages or, if another program kept those, from its events."""
    seen = ToolCallRecord.list_from_events(turn.events)
    if not calls:
        return tuple(
            TurnToolCallDetails(
                tool=one.name,
                about=one.arguments_summary,
                result=one.error or None,
                failed=one.success is False,
                **_measure_call_start_and_duration(turn, one),
            )
            for one in seen
            if one.call_event is not None
        )
    by_id = {get_text_detail(one.call_event, "id"): one for one in seen if one.call_event is not None}
    return tuple(
        TurnToolCallDetails(
            tool=call.name,
            about=get_most_descriptive_argument(call.arguments),
            result=None if came is None else came.content,
            failed=came is not None and came.failed,
            **_measure_call_start_and_duration(turn, by_id.get(call.id)),
        )
        for call, came in calls
    )


def _measure_call_start_and_duration(turn: Turn, call: ToolCallRecord | None) -> dict[str, float | None]:
    """Return when a call began, counted from the start of its turn, and how long it took, as far as that is known."""
    began = _parse_time(get_text_detail(call.call_event, "at")) if call is not None else None
    ended = _parse_time(get_text_detail(call.result_event, "at")) if call is not None else None
    return {
        "offset_s": None if began is None else max(0.0, (began - turn.started_on).total_seconds()),
        "seconds": None if began is None or ended is None else max(0.0, (ended - began).total_seconds()),
    }


def _parse_time(text: str) -> datetime | None:
    with suppress(ValueError):
        at = datetime.fromisoformat(text)
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return None
