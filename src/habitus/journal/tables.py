"""The journal's tables, and the conversion of their rows to turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from habitus.events import Event, EventKind, OutcomeKind
from habitus.journal.model import Message, Place, Selected, Turn, TurnOutcome
from habitus.sql import Utc, columns, keys, metadata

turns = sa.Table(
    "turns",
    metadata,
    *keys(sa.String, "id"),
    *columns(sa.String, "session", "user", "source_type"),
    *columns(sa.String, "caller_id", "conversation", "reply_to", default=""),
    *columns(sa.Text, "request", "usage"),
    *columns(Utc, "started_on"),
    sa.Column("ended_on", Utc),
    sa.Index("turns_by_session", "session", "started_on"),
    sa.Index("turns_by_conversation", "conversation", "started_on"),
    sa.Index("turns_by_caller", "caller_id"),
    sa.Index("turns_by_time", "started_on"),
)


def _of_turn(name: str, *own: sa.schema.SchemaItem) -> sa.Table:
    """Declare a table of numbered entries that are deleted with their turn."""
    turn = sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True)
    return sa.Table(name, metadata, turn, *keys(sa.Integer, "number"), *own)


messages = _of_turn("turn_messages", *columns(sa.String, "role"), *columns(sa.Text, "content"))

events = _of_turn(
    "turn_events",
    *columns(sa.String, "kind"),
    *columns(sa.Integer, "severity", "round_idx"),
    *columns(sa.Text, "detail"),
)

selections = _of_turn(
    "turn_selections",
    *columns(sa.String, "name", "layer", "place"),
    *columns(sa.Integer, "version"),
    *columns(sa.Text, "reason"),
)

outcomes = _of_turn(
    "turn_outcomes",
    *columns(sa.String, "kind", "source"),
    *columns(sa.Float, "weight"),
    *columns(sa.Text, "reason"),
    *columns(Utc, "at"),
)

# The skills that a user's prompt last showed, which lets the menu announce a new skill only once.
seen = sa.Table(
    "seen_skills", metadata, *keys(sa.String, "user"), *columns(sa.Text, "hashes"), *columns(Utc, "seen_on")
)

# Exposures and outcomes without any text: they outlive the turns they belong to.

exposures = sa.Table(
    "exposures",
    metadata,
    *keys(sa.String, "unit"),
    *keys(sa.Boolean, "is_steady"),
    *keys(sa.String, "kind", "item"),
    *keys(sa.Integer, "version"),
    *columns(sa.String, "turn", "user", "request_kind"),
    *columns(sa.Boolean, "is_offered", "is_used", "is_ignored"),
    *columns(sa.Float, "propensity"),
    *columns(sa.Integer, "tokens"),
    *columns(sa.String(16), "origin", default="real"),
    *columns(Utc, "at"),
    sa.Index("exposures_by_item", "kind", "item"),
    sa.Index("exposures_by_turn", "turn"),
    sa.Index("exposures_by_user", "user"),
    sa.Index("exposures_by_time", "at"),
)

lasting_outcomes = sa.Table(
    "lasting_outcomes",
    metadata,
    *keys(sa.String, "turn", "source"),
    *columns(sa.String, "unit", "user", "caller_id", "kind"),
    *columns(sa.Float, "weight"),
    *columns(Utc, "began_on", "at"),
    *columns(sa.String(16), "origin", default="real"),
    sa.Index("lasting_outcomes_by_unit", "unit"),
    sa.Index("lasting_outcomes_by_caller", "caller_id"),
    sa.Index("lasting_outcomes_by_user", "user"),
)

# One row: the random seed that all hosts share.
evidence_seed = sa.Table("evidence_seed", metadata, *keys(sa.Integer, "id"), *columns(sa.String, "seed"))

# One row of cached sums; every change to a conversation they count must reset it.
evidence_sums = sa.Table(
    "evidence_sums",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    *columns(sa.Integer, "changes"),
    sa.Column("until", Utc),
    sa.Column("sums", sa.LargeBinary),
)


_EVENT_KINDS, _PLACES, _OUTCOME_KINDS = (
    frozenset(kind.value for kind in kinds) for kinds in (EventKind, Place, OutcomeKind)
)


def _value(packed: str) -> Any:
    try:
        return json.loads(packed)
    except (ValueError, RecursionError):
        return None


def object_of(packed: str) -> dict[str, Any]:
    """Parse JSON text; an empty dictionary if it is damaged or not an object."""
    value = _value(packed)
    return value if isinstance(value, dict) else {}


def turn_of(row: Mapping[Any, Any], parts: Mapping[str, Sequence[Mapping[Any, Any]]]) -> Turn:
    """Build a turn from its row and the rows of its parts; entries with kinds that this version does not know are
    skipped.
    """
    known = {column.name: row[column.name] for column in turns.columns} | {"usage": object_of(row["usage"])}
    return Turn(
        **known,
        messages=tuple(Message(role=m["role"], content=_value(m["content"])) for m in parts.get("turn_messages", ())),
        events=tuple(
            Event(kind=EventKind(e["kind"]), detail=object_of(e["detail"]), **_some(e, "severity", "round_idx"))
            for e in parts.get("turn_events", ())
            if e["kind"] in _EVENT_KINDS
        ),
        selected=tuple(
            Selected(place=Place(s["place"]), **_some(s, "name", "layer", "version", "reason"))
            for s in parts.get("turn_selections", ())
            if s["place"] in _PLACES
        ),
        outcomes=tuple(
            TurnOutcome(kind=OutcomeKind(o["kind"]), **_some(o, "weight", "source", "reason", "at"))
            for o in parts.get("turn_outcomes", ())
            if o["kind"] in _OUTCOME_KINDS
        ),
    )


def _some(row: Mapping[Any, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
