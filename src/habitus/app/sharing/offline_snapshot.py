"""The offline snapshot of a shared database: what a turn needs, as this host last saw it, in a read-only file.

It is refreshed when conversations end. A process that starts while the server is away reads it, and leaves its writes
in the outbox.
"""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.pool import ConnectionPoolEntry

from habitus import sql
from habitus.app import home_directory
from habitus.app.home import DATABASE_AWAY, Home
from habitus.app.operating.people import sign_ins
from habitus.app.sharing.availability import explain_unreachable_database
from habitus.errors import DatabaseUnavailable
from habitus.files import replace_file_when_block_ends
from habitus.learning.budget import learning_spending
from habitus.memory.tables import memory_revision
from habitus.pause import switches
from habitus.settings import Settings
from habitus.skills.stores.tables import sequences
from habitus.sql.outage import PROBE_TIMEOUT_S

log = logging.getLogger(__name__)

_FINGERPRINT_PREFIX = "as of "
_BATCH_ROWS = 1000
# History and pending work are only looked up in the database itself.
_EXCLUDED_TABLES = frozenset(
    {
        *("turns", "turn_messages", "turn_events", "turn_selections", "turn_outcomes", "exposures", "lasting_outcomes"),
        *(
            "uses",
            "turn_menus",
            "running_turns",
            "menu_exposures",
            "blobs",
            "evidence_sums",
            "skill_intents",
            "skill_proposals",
            "engram_versions",
            "learned_turns",
            "studied_files",
            "skill_calls",
            "answered_requests",
            "jobs",
            "job_parts",
            "job_workers",
        ),
    }
)


def open_shared_database_or_snapshot(settings: Settings, local: sa.Engine) -> sa.Engine:
    """Open the shared database for this user; if its server is away, the offline snapshot.

    Without a shared database, return the home's own.
    """
    if not settings.database and not settings.workspace:
        return local
    address = home_directory.get_database_url(settings)
    connections = settings.database_connections or sql.DEFAULT_POOL_SIZE
    server = sql.create_engine(address, settings.workspace, connections=connections)
    if server.dialect.name == "postgresql":
        home_directory.bind_home_to_workspace(settings.home, settings.workspace)
    file = settings.home / home_directory.OFFLINE_SNAPSHOT_FILE
    is_away = file.exists() and explain_unreachable_database(server.url, PROBE_TIMEOUT_S)
    if is_away and (found := _open_snapshot(file)) is not None:
        return found
    try:
        opened = sql.open_engine_with_current_schema(address, settings.workspace, connections=connections)
    # The port answered, but not as a database: a pooler without its server, say.
    except DatabaseUnavailable:
        if (found := _open_snapshot(file)) is None:
            raise
        return found
    return sql.get_engine_for_user(opened, settings.user, is_admin=settings.is_admin)


def refresh_snapshot(home: Home) -> None:
    """Refresh the offline snapshot; one query if nothing has changed."""
    if home.is_read_only or home.shared.dialect.name != "postgresql":
        return
    file = home.settings.home / home_directory.OFFLINE_SNAPSHOT_FILE
    with sql.read_transaction(home.shared) as conn:
        mark = _compute_database_fingerprint(conn)
        if file.exists() and _read_fingerprint(file) == mark:
            return
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replace_file_when_block_ends(file, durable=False) as fresh:
            fresh.touch(mode=0o600)
            _write_snapshot(conn, fresh, mark, home.clock())


def _compute_database_fingerprint(conn: sa.Connection) -> str:
    """Return a fingerprint of everything that is copied."""
    # Loads numpy, which a home without a shared database doesn't need.
    from habitus.search.store import collections

    # These counters grow with every change, so comparing them is enough for most tables.
    columns = (sequences.c.value, memory_revision.c.revision, collections.c.generation)
    numbers = [int(conn.execute(sa.select(sa.func.sum(column))).scalar() or 0) for column in columns]
    trusted = conn.execute(sa.select(sa.func.count(), sa.func.max(switches.c.set_on))).one()
    columns_of_people = [column for column in sign_ins.c if column is not sign_ins.c.seen_on]
    people = conn.execute(sa.select(*columns_of_people).order_by(sign_ins.c.name)).all()
    digest = hashlib.sha256(repr(people).encode()).hexdigest()
    return f"{_FINGERPRINT_PREFIX}{sql.HEAD} {numbers} {tuple(trusted)} {digest}"


def _write_snapshot(conn: sa.Connection, file: Path, mark: str, now: datetime) -> None:
    engine = sa.create_engine(sql.build_sqlite_url(file))
    try:
        sql.metadata.create_all(engine)
        # Imports the table's module: `create_all` only creates tables that are known by then.
        assert learning_spending.metadata is sql.metadata
        with engine.begin() as copy:
            for table in sql.metadata.sorted_tables:
                if table.name not in _EXCLUDED_TABLES:
                    _copy_rows(conn, copy, table)
            copy.execute(switches.insert().values(name=mark, set_on=now, set_by="habitus"))
    finally:
        engine.dispose()


def _copy_rows(conn: sa.Connection, copy: sa.Connection, table: sa.Table) -> None:
    found = conn.execution_options(yield_per=_BATCH_ROWS).execute(sa.select(table))
    for rows in found.mappings().partitions(_BATCH_ROWS):
        copy.execute(table.insert(), [dict(row) for row in rows])


def _open_snapshot(file: Path) -> sa.Engine | None:
    """Open the snapshot read-only; None if there is none, or if it has another schema."""
    if not file.exists() or not _read_fingerprint(file).startswith(f"{_FINGERPRINT_PREFIX}{sql.HEAD} "):
        return None
    engine = sql.create_engine(sql.build_sqlite_url(file))
    sa.event.listen(engine, "connect", _make_read_only)
    log.info("%s This process uses the offline snapshot.", DATABASE_AWAY)
    return engine.execution_options(habitus_stands_in=True)


def _make_read_only(conn: Any, _: ConnectionPoolEntry) -> None:
    conn.execute("PRAGMA query_only = ON")


def _read_fingerprint(file: Path) -> str:
    engine = sa.create_engine(sql.build_sqlite_url(file))
    try:
        with engine.connect() as conn:
            query = sa.select(switches.c.name).where(switches.c.name.startswith(_FINGERPRINT_PREFIX))
            return str(conn.execute(query).scalar() or "")
    except sa.exc.SQLAlchemyError:
        # Damaged or truncated: an empty fingerprint causes a new snapshot.
        return ""
    finally:
        engine.dispose()
