"""Reminding a person of what waits for them, once a day."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import sqlalchemy as sa

from habitus import sql
from habitus.app.habitus import Habitus
from habitus.errors import StorageFailed
from habitus.pause import switches

_A_DAY = timedelta(days=1)


def due(habitus: Habitus) -> int:
    """How many changes and lessons to remind the person of; none when that was done within a day."""
    count = habitus.waiting_count()
    if not count or habitus.is_read_only:
        return count
    user, now = habitus.settings.user, habitus.clock()
    mine = switches.c.name == f"reminded {user}"
    with sql.reading(habitus.local) as connection:
        last = connection.execute(sa.select(switches.c.set_on).where(mine)).scalar()
    if last is not None and now - last < _A_DAY:
        return 0
    with suppress(StorageFailed), sql.writing(habitus.local) as connection:  # busy: then it is said once more
        connection.execute(switches.delete().where(mine))
        connection.execute(switches.insert().values(name=f"reminded {user}", set_on=now, set_by=user))
    return count
