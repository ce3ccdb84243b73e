"""The tables of the journal, and turns as their rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from habitus.events import Event, EventKind, OutcomeKind
from habitus.journal.model import Message, Place, Selected, Turn, TurnOutcome
from habitus.sql import Utc, metadata

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("session", sa.String, nullable=False),
    sa.Column("caller_id", sa.String, nullable=False, server_default=""),
    sa.Column("user", sa.String, nullable=False),
    sa.Column("source_type", sa.String, nullable=False),
    sa.Column("conversation", sa.String, nullable=False, server_default=""),
    sa.Column("reply_to", sa.String, nullable=False, server_default=""),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("usage", sa.Text, nullable=False),
    sa.Column("started_on", Utc, nullable=False),
    sa.Column("ended_on", Utc),
    sa.Index("turns_by_session", "session", "started_on"),
    sa.Index("turns_by_conversation", "conversation", "started_on"),
    sa.Index("turns_by_caller", "caller_id"),
    sa.Index("turns_by_time", "started_on"),
)


def _of_turn(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    """A table of numbered entries of a turn, which go when the turn goes."""
    turn = sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True)
    return sa.Table(name, metadata, turn, sa.Column("number", sa.Integer, primary_key=True), *columns)


messages = _of_turn(
    "turn_messages",
    sa.Column("role", sa.String, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
)

events = _of_turn(
    "turn_events",
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("severity", sa.Integer, nullable=False),
    sa.Column("round_idx", sa.Integer, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)

selections = _of_turn(
    "turn_selections",
    sa.Column("name", sa.String, nullable=False),
    sa.Column("layer", sa.String, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("place", sa.String, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)

outcomes = _of_turn(
    "turn_outcomes",
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("weight", sa.Float, nullable=False),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at", Utc, nullable=False),
)

# What a user's prompt last showed of the library, so that news are told once.
seen = sa.Table(
    "seen_skills",
    metadata,
    sa.Column("user", sa.String, primary_key=True),
    sa.Column("hashes", sa.Text, nullable=False),
    sa.Column("seen_on", Utc, nullable=False),
)

# Exposures and outcomes without any text: they outlive the turns they belong to.

exposures = sa.Table(
    "exposures",
    metadata,
    sa.Column("unit", sa.String, primary_key=True),
    sa.Column("is_steady", sa.Boolean, primary_key=True),
    sa.Column("kind", sa.String, primary_key=True),
    sa.Column("item", sa.String, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("turn", sa.String, nullable=False),
    sa.Column("user", sa.String, nullable=False),
    sa.Column("is_offered", sa.Boolean, nullable=False),
    sa.Column("propensity", sa.Float, nullable=False),
    sa.Column("request_kind", sa.String, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("is_used", sa.Boolean, nullable=False),
    sa.Column("is_ignored", sa.Boolean, nullable=False),
    sa.Column("origin", sa.String(16), nullable=False, server_default="real"),
    sa.Column("at", Utc, nullable=False),
    sa.Index("exposures_by_item", "kind", "item"),
    sa.Index("exposures_by_turn", "turn"),
    sa.Index("exposures_by_user", "user"),
    sa.Index("exposures_by_time", "at"),
)

lasting_outcomes = sa.Table(
    "lasting_outcomes",
    metadata,
    sa.Column("turn", sa.String, primary_key=True),
    sa.Column("source", sa.String, primary_key=True),
    sa.Column("unit", sa.String, nullable=False),
    sa.Column("user", sa.String, nullable=False),
    sa.Column("caller_id", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("weight", sa.Float, nullable=False),
    sa.Column("began_on", Utc, nullable=False),
    sa.Column("origin", sa.String(16), nullable=False, server_default="real"),
    sa.Column("at", Utc, nullable=False),
    sa.Index("lasting_outcomes_by_unit", "unit"),
    sa.Index("lasting_outcomes_by_caller", "caller_id"),
    sa.Index("lasting_outcomes_by_user", "user"),
)

# What every draw begins with: one row, the same for every host.
evidence_seed = sa.Table(
    "evidence_seed",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("seed", sa.String, nullable=False),
)

# Sums over the conversations that began until then: one row. Whoever changes anything of those empties it.
evidence_sums = sa.Table(
    "evidence_sums",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("changes", sa.Integer, nullable=False),
    sa.Column("until", Utc),
    sa.Column("sums", sa.LargeBinary),
)


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
