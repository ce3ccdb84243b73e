"""The store of comparisons in use: changes that run beside the version before them, and how each ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.evidence.model import EffectEstimate
from habitus.evidence.versions import COMPARISON_PERIOD, ComparisonState, LiveComparison
from habitus.sql import UtcDateTime, build_primary_key_columns, build_required_columns, metadata

live_comparisons = sa.Table(
    "live_comparisons",
    metadata,
    *build_primary_key_columns(sa.String, "layer_key", "skill"),
    sa.Column("new", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.String(16), nullable=False),
    *build_required_columns(UtcDateTime, "started_on", "changed_on"),
    sa.Column("ended_on", UtcDateTime),
    sa.Column("facts", sa.Text, nullable=False),  # the rest of it as JSON
)
_COLUMNS = ("layer_key", "skill", "new", "state", "started_on", "changed_on", "ended_on")


class LiveComparisonStore:
    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def start_comparison(self, comparison: LiveComparison) -> None:
        """Store a new comparison; one of an older version of the skill ends, because a newer edit took its place."""
        for earlier in self.list_comparisons(comparison.skill):
            if earlier.layer_key == comparison.layer_key and earlier.state is ComparisonState.RUNNING:
                self.end_comparison(earlier, ComparisonState.SUPERSEDED)
        with sql.write_transaction(self._engine) as connection:
            sql.upsert_rows(connection, live_comparisons, [_comparison_to_row(comparison)], lambda new: dict(new))

    def end_comparison(self, comparison: LiveComparison, state: ComparisonState) -> LiveComparison:
        return self.update_comparison(replace(comparison, state=state, ended_on=self._clock()))

    def update_comparison(self, comparison: LiveComparison) -> LiveComparison:
        """Store what became of a running comparison; one that another process has ended stays as it is."""
        table = live_comparisons.c
        is_same = (
            table.layer_key == comparison.layer_key,
            table.skill == comparison.skill,
            table.new == comparison.new,
            table.state == ComparisonState.RUNNING.value,
        )
        with sql.write_transaction(self._engine) as connection:
            connection.execute(live_comparisons.update().where(*is_same).values(_comparison_to_row(comparison)))
        return comparison

    def list_comparisons(self, skill: str = "") -> list[LiveComparison]:
        """Return all comparisons there ever were, of one skill or of all, the oldest first."""
        query = sa.select(live_comparisons).order_by(live_comparisons.c.started_on)
        with sql.read_transaction(self._engine) as connection:
            rows = connection.execute(query.where(live_comparisons.c.skill == skill) if skill else query)
            return [_comparison_from_row(row) for row in rows]

    def list_comparisons_that_assign_versions(self) -> list[LiveComparison]:
        """Return the comparisons that decide which version a conversation gets.

        One that has ended still holds for the conversations that began before its end.
        """
        columns, since = live_comparisons.c, self._clock() - COMPARISON_PERIOD
        query = sa.select(live_comparisons).where(columns.ended_on.is_(None) | (columns.ended_on > since))
        with sql.read_transaction(self._engine) as connection:
            return [_comparison_from_row(row) for row in connection.execute(query)]


def _comparison_to_row(comparison: LiveComparison) -> dict[str, Any]:
    facts = asdict(comparison)
    row = {name: facts.pop(name) for name in _COLUMNS}
    return {**row, "facts": json.dumps(facts)}


def _comparison_from_row(row: Any) -> LiveComparison:
    columns, facts = {name: row._mapping[name] for name in _COLUMNS}, json.loads(row.facts)
    exam = facts.pop("exam")
    return LiveComparison(
        **{**columns, **facts, "state": ComparisonState(row.state)},
        exam=EffectEstimate(**exam) if exam is not None else None,
    )
