"""The switch that stops learning and automatic changes in every process that shares the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Refused
from habitus.sql.change_notifications import ChangeTopic, get_change_feed, notify_change

switches = sa.Table(
    "switches",
    sql.metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("set_on", sql.UtcDateTime, nullable=False),
    sa.Column("set_by", sa.String, nullable=False),
)

_PAUSED = "paused"
_IS_PAUSED = sa.select(switches).where(switches.c.name == _PAUSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseDetails:
    """Who paused, and when."""

    since: datetime
    by: str


class LearningPauseSwitch:
    """Pauses and resumes learning and automatic changes."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def get_pause_details(self) -> PauseDetails | None:
        """Return who paused and when; None if not paused."""
        with sql.read_transaction(self._engine) as connection:
            row = connection.execute(_IS_PAUSED).first()
        return None if row is None else PauseDetails(since=row.set_on, by=row.set_by)

    def get_last_known_pause(self) -> PauseDetails | None:
        """Return the state as of the last notification, for display."""
        return get_change_feed(self._engine).fetch_cached(ChangeTopic.SWITCHES, self.get_pause_details)

    def pause(self, by: str) -> PauseDetails:
        """Pause; if already paused, the first pause stays."""
        with sql.write_transaction(self._engine, lock="pause") as connection:
            sql.insert_missing_rows(connection, switches, [{"name": _PAUSED, "set_on": self._clock(), "set_by": by}])
            notify_change(connection, ChangeTopic.SWITCHES)
            # Read while holding the lock, before another process can resume.
            state = self.get_pause_details()
        assert state is not None
        return state

    def resume(self) -> bool:
        """Resume; False if nothing was paused."""
        with sql.write_transaction(self._engine, lock="pause") as connection:
            notify_change(connection, ChangeTopic.SWITCHES)
            return connection.execute(switches.delete().where(switches.c.name == _PAUSED)).rowcount > 0

    def refuse_if_paused(self) -> None:
        """Raise Refused while paused."""
        state = self.get_pause_details()
        if state is not None:
            raise Refused(
                f"Learning and automatic change are paused since {state.since:%Y-%m-%d %H:%M} UTC by {state.by}.",
                hint="Run 'habitus learn resume'.",
            )
