"""Remind a person once a day of pending items, and once of content left in a home that joined a shared database."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from habitus import sql
from habitus.app.home import Home
from habitus.errors import StorageFailed
from habitus.memory.tables import engrams
from habitus.pause import switches
from habitus.skills.layers.layer import USER
from habitus.skills.stores.tables import skills

_A_DAY = timedelta(days=1)
_LEFT = "left behind"


def due(home: Home) -> int:
    """Return the number of pending items to mention; 0 if the person was reminded within a day."""
    user, now = home.settings.user, home.clock()
    mine = switches.c.name == f"reminded {user}"
    count = home.waiting_count()
    if not count or home.is_read_only:
        return count
    with sql.reading(home.local) as connection:
        last = connection.execute(sa.select(switches.c.set_on).where(mine)).scalar()
    if last is not None and now - last < _A_DAY:
        return 0
    # A busy database only means that the reminder is shown twice.
    with suppress(StorageFailed), sql.writing(home.local) as connection:
        connection.execute(switches.delete().where(mine))
        connection.execute(switches.insert().values(name=f"reminded {user}", set_on=now, set_by=user))
    return count


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftBehind:
    """Content of the home's own database that was never copied to the shared one."""

    skills: int
    lessons: int


def left_behind(home: Home) -> LeftBehind | None:
    """Count skills and lessons that were never copied to the shared database; None after the first report."""
    if home.local is home.shared or home.is_read_only:
        return None
    with sql.reading(home.local) as connection:
        if connection.execute(sa.select(switches).where(switches.c.name == _LEFT)).first() is not None:
            return None
        mine = sa.select(sa.func.count()).where(skills.c.layer == USER, skills.c.archived_on.is_(None))
        known = sa.select(sa.func.count()).where(engrams.c.state.in_(("active", "waiting")))
        left = LeftBehind(skills=connection.execute(mine).scalar_one(), lessons=connection.execute(known).scalar_one())
    if not (left.skills or left.lessons):
        return None
    tell_no_more(home.local, home.clock())
    return left


def tell_no_more(own: sa.Engine, now: datetime) -> None:
    """Record that the notice was shown, or that the content was copied."""
    with suppress(StorageFailed), sql.writing(own) as connection:
        row = {"name": _LEFT, "set_on": now, "set_by": ""}
        sql.insert_missing(connection, switches, [row])
