"""The journal's tables, and the conversion of their rows to turns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from habitus.events import AgentEvent, EventKind, OutcomeKind
from habitus.journal.model import JudgementSourceKind, SelectedSkill, SkillPlacementKind, Turn, TurnMessage, TurnOutcome
from habitus.sql import UtcDateTime, build_primary_key_columns, build_required_columns, metadata

turns = sa.Table(
    "turns",
    metadata,
    *build_primary_key_columns(sa.String, "id"),
    *build_required_columns(sa.String, "session", "user", "source_type"),
    *build_required_columns(sa.String, "caller_id", "conversation", "reply_to", "menu", "project", "host", default=""),
    *build_required_columns(sa.Text, "request", "usage"),
    *build_required_columns(UtcDateTime, "started_on"),
    sa.Column("ended_on", UtcDateTime),
    sa.Index("turns_by_session", "session", "started_on"),
    sa.Index("turns_by_conversation", "conversation", "started_on"),
    sa.Index("turns_by_caller", "caller_id"),
    sa.Index("turns_by_time", "started_on"),
)


def _declare_turn_part_table(name: str, *own: sa.schema.SchemaItem) -> sa.Table:
    """Declare a table of numbered entries that are deleted with their turn."""
    turn = sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True)
    return sa.Table(name, metadata, turn, *build_primary_key_columns(sa.Integer, "number"), *own)


messages = _declare_turn_part_table(
    "turn_messages", *build_required_columns(sa.String, "role"), *build_required_columns(sa.Text, "content")
)

events = _declare_turn_part_table(
    "turn_events",
    *build_required_columns(sa.String, "kind"),
    *build_required_columns(sa.Integer, "severity", "round_idx"),
    *build_required_columns(sa.Text, "detail"),
)

# What differs from the turn's menu.
selections = _declare_turn_part_table(
    "turn_selections",
    *build_required_columns(sa.String, "name", "layer", "place"),
    *build_required_columns(sa.Integer, "version"),
    *build_required_columns(sa.Text, "reason"),
)

outcomes = _declare_turn_part_table(
    "turn_outcomes",
    *build_required_columns(sa.String, "kind", "source"),
    *build_required_columns(sa.Float, "weight"),
    *build_required_columns(sa.Text, "reason"),
    *build_required_columns(UtcDateTime, "at"),
    *build_required_columns(sa.String(16), "source_kind", default="program"),
)

# How far a running turn got, and what other processes ask of the one that runs it.
running_turns = sa.Table(
    "running_turns",
    metadata,
    sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
    *build_required_columns(sa.Integer, "began_at", "line_count"),
    *build_required_columns(sa.Float, "reported_s"),
    *build_required_columns(sa.Text, "lines", "requests", default=""),
)

# Lists by digest, which many turns and conversations share.
turn_menus = sa.Table(
    "turn_menus",
    metadata,
    *build_primary_key_columns(sa.String, "digest"),
    *build_required_columns(sa.String, "user"),
    *build_required_columns(UtcDateTime, "stored_on"),
    *build_required_columns(sa.LargeBinary, "entries"),
    sa.Index("turn_menus_by_user", "user"),
)

# The skills that a user's prompt last showed, which lets the menu announce a new skill only once.
seen_skills = sa.Table(
    "seen_skills",
    metadata,
    *build_primary_key_columns(sa.String, "user"),
    *build_required_columns(sa.Text, "hashes"),
    *build_required_columns(UtcDateTime, "seen_on"),
)

# Exposures, outcomes and uses without any text: they outlive the turns they belong to.

exposures = sa.Table(
    "exposures",
    metadata,
    *build_primary_key_columns(sa.String, "unit"),
    *build_primary_key_columns(sa.Boolean, "is_steady"),
    *build_primary_key_columns(sa.String, "kind", "item"),
    *build_primary_key_columns(sa.Integer, "version"),
    *build_required_columns(sa.String, "turn", "user", "request_kind"),
    *build_required_columns(sa.Boolean, "is_offered", "is_used", "is_ignored"),
    *build_required_columns(sa.Float, "propensity"),
    *build_required_columns(sa.Integer, "tokens"),
    *build_required_columns(sa.String(16), "origin", default="real"),
    *build_required_columns(UtcDateTime, "at"),
    sa.Index("exposures_by_item", "kind", "item"),
    sa.Index("exposures_by_time", "at"),
)

# The steady exposures of a conversation: a list by digest, and which of its entries were withheld. An exposure that was
# used has a row of its own besides.
menu_exposures = sa.Table(
    "menu_exposures",
    metadata,
    *build_primary_key_columns(sa.String, "unit", "menu"),
    *build_required_columns(sa.String, "turn", "user", "request_kind"),
    *build_required_columns(sa.String(16), "origin"),
    *build_required_columns(sa.Text, "withheld"),
    *build_required_columns(UtcDateTime, "at"),
    sa.Index("menu_exposures_by_user", "user"),
    sa.Index("menu_exposures_by_time", "at"),
)

lasting_outcomes = sa.Table(
    "lasting_outcomes",
    metadata,
    *build_primary_key_columns(sa.String, "turn", "source"),
    *build_required_columns(sa.String, "unit", "user", "caller_id", "kind"),
    *build_required_columns(sa.Float, "weight"),
    *build_required_columns(UtcDateTime, "began_on", "at"),
    *build_required_columns(sa.String(16), "origin", default="real"),
    *build_required_columns(sa.String(16), "source_kind", default="program"),
    sa.Index("lasting_outcomes_by_unit", "unit"),
    sa.Index("lasting_outcomes_by_caller", "caller_id"),
    sa.Index("lasting_outcomes_by_user", "user"),
)

# One row per use of a skill's stage; `usage.py` turns these and the outcomes above into every count.
uses = sa.Table(
    "uses",
    metadata,
    *build_primary_key_columns(sa.String, "id"),
    *build_required_columns(sa.String, "turn", "user", "item", "layer", "part"),
    *build_required_columns(sa.String(16), "stage", "manner", "origin"),
    *build_required_columns(sa.Integer, "version"),
    *build_required_columns(sa.Boolean, "is_credited"),
    *build_required_columns(UtcDateTime, "at"),
    sa.Column("result", sa.String(16)),
    sa.Index("uses_by_turn", "turn"),
    sa.Index("uses_by_item", "item", "layer"),
    sa.Index("uses_by_user", "user"),
    sa.Index("uses_by_time", "at"),
)

# One row: the random seed that all hosts share.
evidence_seed = sa.Table(
    "evidence_seed", metadata, *build_primary_key_columns(sa.Integer, "id"), *build_required_columns(sa.String, "seed")
)

# Cached sums up to several points in time; every change to a conversation they count must delete them.
evidence_sums = sa.Table(
    "evidence_sums",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    *build_required_columns(sa.Integer, "changes"),
    sa.Column("until", UtcDateTime),
    sa.Column("sums", sa.LargeBinary),
)


_EVENT_KINDS, _PLACES, _OUTCOME_KINDS, _SOURCE_KINDS = (
    frozenset(kind.value for kind in kinds)
    for kinds in (EventKind, SkillPlacementKind, OutcomeKind, JudgementSourceKind)
)


# The columns that a turn has as attributes.
TURN_FIELDS = tuple(column.name for column in turns.columns if column is not turns.c.menu)


def _parse_json(packed: str) -> Any:
    try:
        return json.loads(packed)
    except (ValueError, RecursionError):
        return None


def parse_json_object(packed: str) -> dict[str, Any]:
    """Parse JSON text; an empty dictionary if it is damaged or not an object."""
    value = _parse_json(packed)
    return value if isinstance(value, dict) else {}


def turn_from_row(row: Mapping[Any, Any], parts: Mapping[str, Sequence[Mapping[Any, Any]]]) -> Turn:
    """Build a turn from its row and the rows of its parts; entries with kinds that this version does not know are
    skipped.
    """
    known = {name: row[name] for name in TURN_FIELDS} | {"usage": parse_json_object(row["usage"])}
    return Turn(
        **known,
        messages=tuple(
            TurnMessage(role=m["role"], content=_parse_json(m["content"])) for m in parts.get("turn_messages", ())
        ),
        events=tuple(
            AgentEvent(
                kind=EventKind(e["kind"]),
                detail=parse_json_object(e["detail"]),
                **_pick_columns(e, "severity", "round_idx"),
            )
            for e in parts.get("turn_events", ())
            if e["kind"] in _EVENT_KINDS
        ),
        selected=tuple(
            SelectedSkill(
                place=SkillPlacementKind(s["place"]), **_pick_columns(s, "name", "layer", "version", "reason")
            )
            for s in parts.get("turn_selections", ())
            if s["place"] in _PLACES
        ),
        outcomes=tuple(
            TurnOutcome(
                kind=OutcomeKind(o["kind"]),
                source_kind=JudgementSourceKind(o["source_kind"]),
                **_pick_columns(o, "weight", "source", "reason", "at"),
            )
            for o in parts.get("turn_outcomes", ())
            if o["kind"] in _OUTCOME_KINDS and o["source_kind"] in _SOURCE_KINDS
        ),
    )


def _pick_columns(row: Mapping[Any, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}
