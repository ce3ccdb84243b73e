"""Deletes turns past their retention; their exposures, outcomes and uses stay, because they hold no text."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa

from habitus import sql
from habitus.journal.menus import delete_unused_menus
from habitus.journal.tables import turns

# Turns deleted per transaction, because others wait while one writes.
_STEP = 200


def prune_turns(engine: sa.Engine, now: datetime, retention: timedelta) -> int:
    """Delete the turns that are older than the retention period; return how many."""
    old = sa.select(turns.c.id).where(turns.c.started_on < now - retention)
    deleted, step = 0, _STEP
    while step == _STEP:
        with sql.write_transaction(engine) as connection:
            step = connection.execute(turns.delete().where(turns.c.id.in_(old.limit(_STEP)))).rowcount
        deleted += step
    with sql.write_transaction(engine) as connection:
        # Not the youngest: the turn that refers to it may be in a transaction that is still open.
        delete_unused_menus(connection, now - timedelta(days=1))
    return deleted
