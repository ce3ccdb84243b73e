"""The switch that stops learning and automatic changes in every process that shares the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Refused
from habitus.sql.notifications import Topic, news_of, tell

switches = sa.Table(
    "switches",
    sql.metadata,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("set_on", sql.Utc, nullable=False),
    sa.Column("set_by", sa.String, nullable=False),
)

_PAUSED = "paused"
_IS_PAUSED = sa.select(switches).where(switches.c.name == _PAUSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Paused:
    """Who paused, and when."""

    since: datetime
    by: str


class Pause:
    """Pauses and resumes learning and automatic changes."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def state(self) -> Paused | None:
        """Return who paused and when; None if not paused."""
        with sql.reading(self._engine) as connection:
            row = connection.execute(_IS_PAUSED).first()
        return None if row is None else Paused(since=row.set_on, by=row.set_by)

    def last_known(self) -> Paused | None:
        """Return the state as of the last notification, for display."""
        return news_of(self._engine).fresh(Topic.SWITCHES, self.state)

    def pause(self, by: str) -> Paused:
        """Pause; if already paused, the first pause stays."""
        with sql.writing(self._engine) as connection:
            sql.insert_missing(connection, switches, [{"name": _PAUSED, "set_on": self._clock(), "set_by": by}])
            tell(connection, Topic.SWITCHES)
            # Read inside the transaction, before another process can resume.
            state = self.state()
        assert state is not None
        return state

    def resume(self) -> bool:
        """Resume; False if nothing was paused."""
        with sql.writing(self._engine) as connection:
            tell(connection, Topic.SWITCHES)
            return connection.execute(switches.delete().where(switches.c.name == _PAUSED)).rowcount > 0

    def refuse_if_paused(self) -> None:
        """Raise Refused while paused."""
        state = self.state()
        if state is not None:
            raise Refused(
                f"Learning and automatic change are paused since {state.since:%Y-%m-%d %H:%M} UTC by {state.by}.",
                hint="Run 'habitus resume'.",
            )
