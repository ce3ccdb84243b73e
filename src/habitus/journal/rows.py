"""Turns out of their rows. What a newer Habitus on the same database may have written besides is passed over, and so is
what is damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from habitus.events import Event, EventKind, OutcomeKind
from habitus.journal.model import Message, Place, Selected, Turn, TurnOutcome


def row_of_selected(selected: Selected) -> dict[str, Any]:
    return {
        "name": selected.name,
        "layer": selected.layer,
        "version": selected.version,
        "place": selected.place.value,
        "reason": selected.reason,
    }


_EVENT_KINDS, _PLACES, _OUTCOME_KINDS = (
    frozenset(kind.value for kind in kinds) for kinds in (EventKind, Place, OutcomeKind)
)


def _value(packed: str) -> Any:
    try:
        return json.loads(packed)
    except (ValueError, RecursionError):
        return None


def object_of(packed: str) -> dict[str, Any]:
    value = _value(packed)
    return value if isinstance(value, dict) else {}


def turn_of(row: Mapping[Any, Any], parts: Mapping[str, Sequence[Mapping[Any, Any]]]) -> Turn:
    turn = Turn(
        id=row["id"],
        session=row["session"],
        request=row["request"],
        started_on=row["started_on"],
        ended_on=row["ended_on"],
        caller_id=row["caller_id"],
        source_type=row["source_type"],
        user=row["user"],
        conversation=row["conversation"],
        reply_to=row["reply_to"],
        usage=object_of(row["usage"]),
    )
    return replace(
        turn,
        messages=tuple(Message(role=m["role"], content=_value(m["content"])) for m in parts.get("turn_messages", ())),
        events=tuple(
            Event(
                kind=EventKind(e["kind"]),
                detail=object_of(e["detail"]),
                severity=e["severity"],
                round_idx=e["round_idx"],
            )
            for e in parts.get("turn_events", ())
            if e["kind"] in _EVENT_KINDS
        ),
        selected=tuple(
            Selected(
                name=s["name"], layer=s["layer"], version=s["version"], place=Place(s["place"]), reason=s["reason"]
            )
            for s in parts.get("turn_selections", ())
            if s["place"] in _PLACES
        ),
        outcomes=tuple(
            TurnOutcome(
                kind=OutcomeKind(o["kind"]), weight=o["weight"], source=o["source"], reason=o["reason"], at=o["at"]
            )
            for o in parts.get("turn_outcomes", ())
            if o["kind"] in _OUTCOME_KINDS
        ),
    )
