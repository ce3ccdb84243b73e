"""Trials that kept something from its next stage, so that the same trial is not run again at every look."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.skills.model import Stage
from habitus.sql import Utc, metadata

# `item` is the id of a lesson or the address of a skill; another version of it may try again.
failed_climbs = sa.Table(
    "failed_climbs",
    metadata,
    sa.Column("item", sa.String, primary_key=True),
    sa.Column("stage", sa.String(16), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("tried_on", Utc, nullable=False),
)


class FailedClimbs:
    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def all(self) -> dict[tuple[str, Stage, int], str]:
        """Why each failed, by item, stage and the version that was tried."""
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(failed_climbs))
            return {(row.item, Stage(row.stage), row.version): row.reason for row in rows}

    def note(self, item: str, stage: Stage, version: int, reason: str) -> None:
        row = {"item": item, "stage": stage.value, "version": version, "reason": reason, "tried_on": self._clock()}
        with sql.writing(self._engine, lock="failed_climbs") as connection:
            sql.upsert(
                connection,
                failed_climbs,
                [row],
                lambda new: {"version": new.version, "reason": new.reason, "tried_on": new.tried_on},
            )
