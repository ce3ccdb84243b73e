"""Remind a person once a day of pending items, and once of content left in a home that joined a shared database."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import sqlalchemy as sa

from habitus import sql
from habitus.app.home import Home, open_read_transaction_if_single_database
from habitus.errors import StorageFailed
from habitus.memory.tables import count_pending_lessons, engrams
from habitus.pause import switches
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.stores.tables import skills
from habitus.sql.change_notifications import ChangeTopic, get_change_feed

_A_DAY = timedelta(days=1)
_LEFT = "left behind"


def count_pending_items(home: Home) -> int:
    """Return how many changes and lessons are pending review."""
    user, feed = home.settings.user, get_change_feed(home.shared)
    with open_read_transaction_if_single_database(home):
        count_lessons = partial(count_pending_lessons, home.shared, user)
        key = ("pending", user, sql.get_user_and_role_of_engine(home.shared))
        return home.review.count_pending() + feed.fetch_cached(ChangeTopic.LESSONS, count_lessons, key=key)


def count_pending_items_once_a_day(home: Home) -> int:
    """Return the number of pending items to mention; 0 if the person was reminded within a day."""
    user, now = home.settings.user, home.clock()
    mine = switches.c.name == f"reminded {user}"
    count = count_pending_items(home)
    if not count or home.is_read_only:
        return count
    with sql.read_transaction(home.local) as connection:
        last = connection.execute(sa.select(switches.c.set_on).where(mine)).scalar()
    if last is not None and now - last < _A_DAY:
        return 0
    # A busy database only means that the reminder is shown twice.
    with suppress(StorageFailed), sql.write_transaction(home.local) as connection:
        connection.execute(switches.delete().where(mine))
        connection.execute(switches.insert().values(name=f"reminded {user}", set_on=now, set_by=user))
    return count


@dataclass(frozen=True, kw_only=True, slots=True)
class UnsharedContentCount:
    """Content of the home's own database that was never copied to the shared one."""

    skills: int
    lessons: int


def count_unshared_content_once(home: Home) -> UnsharedContentCount | None:
    """Count skills and lessons that were never copied to the shared database; None after the first report."""
    if home.local is home.shared or home.is_read_only:
        return None
    with sql.read_transaction(home.local) as connection:
        if connection.execute(sa.select(switches).where(switches.c.name == _LEFT)).first() is not None:
            return None
        mine = sa.select(sa.func.count()).where(skills.c.layer == USER_LAYER, skills.c.archived_on.is_(None))
        known = sa.select(sa.func.count()).where(engrams.c.state.in_(("active", "pending")))
        left = UnsharedContentCount(
            skills=connection.execute(mine).scalar_one(), lessons=connection.execute(known).scalar_one()
        )
    if not (left.skills or left.lessons):
        return None
    dismiss_unshared_notice(home.local, home.clock())
    return left


def dismiss_unshared_notice(own: sa.Engine, now: datetime) -> None:
    """Record that the notice was shown, or that the content was copied."""
    with suppress(StorageFailed), sql.write_transaction(own) as connection:
        row = {"name": _LEFT, "set_on": now, "set_by": ""}
        sql.insert_missing_rows(connection, switches, [row])
