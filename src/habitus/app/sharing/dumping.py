"""A shared database as one SQLite file: every row of everybody's, and back into an empty database of either kind."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.app import home_directory
from habitus.app.operation.people import signing_keys
from habitus.app.sharing.copied_rows import describe_use, reflect, snapshot
from habitus.settings import Settings
from habitus.skills.layers import USER

_AT_A_TIME = 1000


def dump(settings: Settings, file: Path) -> None:
    """Write all that hosts share into a new file, as it is at one moment."""
    source, target = _open(settings), sql.open_engine(sql.sqlite_url(file))
    try:
        with snapshot(source) as rows, sql.writing(target, durable=True) as copy:
            _copy(rows, copy)
    finally:
        target.dispose()


def load(file: Path, settings: Settings) -> str:
    """Put a dump into the database that the settings name, in one transaction; where that is in use nothing is
    changed, and what it holds is returned."""
    source, target = sql.open_engine(sql.sqlite_url(file)), _open(settings)
    try:
        with sql.reading(source) as rows, sql.writing(target, durable=True, lock=USER) as copy:
            if used := describe_use(copy, reflect(copy)):
                return used
            _copy(rows, copy)
        return ""
    finally:
        source.dispose()


def _open(settings: Settings) -> sa.Engine:
    return sql.open_engine(home_directory.address(settings), settings.workspace)


def _copy(rows: sa.Connection, copy: sa.Connection) -> None:
    here, there = reflect(rows), reflect(copy)
    tables = [name for name in here if name in there and name != signing_keys.name]
    for name in reversed(tables):
        copy.execute(there[name].delete())  # numbers that a new database begins with
    for name in tables:
        found = rows.execution_options(yield_per=_AT_A_TIME).execute(sa.select(here[name]))
        for some in found.mappings().partitions(_AT_A_TIME):
            copy.execute(there[name].insert(), [dict(row) for row in some])
        if copy.dialect.name == "postgresql" and "id" in there[name].c:
            _count_on(copy, there[name])


def _count_on(connection: sa.Connection, table: sa.Table) -> None:
    """New rows get numbers after those that came."""
    sequence = connection.execute(sa.select(sa.func.pg_get_serial_sequence(table.name, "id"))).scalar()
    highest = connection.execute(sa.select(sa.func.max(table.c.id))).scalar()
    if sequence is not None and highest is not None:
        connection.execute(sa.select(sa.func.setval(sequence, highest)))
