"""Turns of the journal and of transcripts as mining sees them: calls, skills they used, and what a person is told."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from habitus.agent.history import unpack
from habitus.events import EventKind, OutcomeKind
from habitus.journal.journal import effective
from habitus.journal.model import Place, Turn
from habitus.learning.remedies import calls
from habitus.learning.transcripts.study import Studied
from habitus.llm.model import Answered, Returned
from habitus.recipes.observed import ObservedCall, ObservedTurn
from habitus.skills import names
from habitus.text import one_line

ASIDE = names.BUILT_IN_TOOLS - {"scratchpad"}  # they look at skills or keep them; the work is done by others
_SAID_ALOUD = ("one_line_description", "estimated_execution_time_seconds")  # what a call says of itself
_SHOWN_REQUESTS, _LONGEST_REQUEST = 3, 100


def observe_turn(turn: Turn, *, without: Collection[str] = ()) -> ObservedTurn:
    """A turn of the journal as mining looks at it, ours or another's; calls that only look at skills are left out."""
    messages = [message for kept in turn.messages if (message := unpack(kept)) is not None]
    results = {message.call: message for message in messages if isinstance(message, Returned)}
    went_well = {
        str(event.detail.get("id"))
        for event in turn.events
        if event.kind is EventKind.TOOL_RESULT and event.detail.get("success") is True
    }
    done = []
    for call in (call for message in messages if isinstance(message, Answered) for call in message.calls):
        arguments = _arguments(call.arguments)
        if arguments is None or call.name in ASIDE or call.name in without:
            continue
        came = results.get(call.id)
        ok, result = (call.id in went_well, came.content) if came is not None else (False, "")
        done.append(ObservedCall(name=call.name, arguments=arguments, result=result, success=ok))
    judged = effective(turn.outcomes)
    is_good = judged is not None and judged.kind is OutcomeKind.OK
    return ObservedTurn(session=turn.session, turn=turn.id, calls=done, ok=is_good)


def observed_elsewhere(studied: Studied, now: datetime) -> tuple[Turn, ObservedTurn]:
    """A turn of another agent's transcript: as the journal would have it, and as mining looks at it."""
    turn, made = studied.turn, calls.calls(studied.turn.events, project=studied.project)
    done = [
        ObservedCall(
            name=call.name,
            arguments={"command": call.command} if call.command else call.whole,
            success=call.has_worked and not (call.command or call.summary).endswith(calls.CUT),
        )
        for call in made
    ]
    session, id = f"{studied.file.stem} {studied.transcript}", studied.trace
    asked = turn.said[0].words if turn.said else ""
    kept = Turn(id=id, session=session, request=asked, started_on=calls.moment(studied.began) or now)
    return kept, ObservedTurn(session=session, turn=id, calls=done, ok=bool(done) and done[-1].success is True)


def _arguments(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return {key: item for key, item in value.items() if key not in _SAID_ALOUD}


def chosen_skills(turn: Turn) -> set[str]:
    """The skills that a turn used because of what was asked."""
    return {
        one.name
        for one in turn.selected
        if one.place is Place.LOADED or (one.place is Place.EAGER and one.reason != "always_include")
    }


def when(turns: Sequence[Turn]) -> str:
    """How often and when, for a person to judge by."""
    days: list[datetime] = sorted(turn.started_on for turn in turns)
    first, last = (f"{day:%Y-%m-%d}" for day in (days[0], days[-1]))
    sessions = len({turn.session for turn in turns})
    span = f"on {first}" if first == last else f"from {first} to {last}"
    return f"done in {len(turns)} turns of {sessions} sessions, {span}"


def describe_use(turns: Sequence[Turn]) -> str:
    """When to use it, in the words it was asked for."""
    said = dict.fromkeys(quote_request(turn) for turn in reversed(turns) if turn.request.strip())
    return f"Requests such as {'; '.join(list(said)[:_SHOWN_REQUESTS])}." if said else ""


def quote_request(turn: Turn) -> str:
    text = one_line(turn.request)
    return f"“{text if len(text) <= _LONGEST_REQUEST else text[: _LONGEST_REQUEST - 1] + '…'}”"
