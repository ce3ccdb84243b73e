"""Database engines, and the setup of every connection and transaction."""

from __future__ import annotations

import select
import time
from typing import Any
from weakref import WeakValueDictionary

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from habitus import optional_packages
from habitus.errors import Invalid, StorageFailed
from habitus.sql import schema
from habitus.sql.addresses import (
    build_application_name,
    build_missing_connect_options,
    get_workspace_of_engine,
    metadata,
)
from habitus.sql.errors import BUSY_TIMEOUT_S, busy_timeout_s
from habitus.sql.transactions import record_written_table

# Connections of a process to a PostgreSQL server, unless the caller says otherwise.
DEFAULT_POOL_SIZE = 2
# After this idle time a connection may have been cut and is checked before use.
_IDLE_BEFORE_PING_S = 1.0
# The server rolls back a writing transaction that is idle for so long: its host is suspended or cut off, and everyone
# else would wait for its locks.
_IDLE_IN_TRANSACTION_S = 60


def open_engine_with_current_schema(
    url: str, workspace: str = "", *, connections: int = DEFAULT_POOL_SIZE, dedicated: bool = False
) -> sa.Engine:
    """Return an engine on a database that has all tables this code needs.

    Creates or upgrades a SQLite file; an existing PostgreSQL schema is upgraded only by an explicit migration, because
    other hosts may run older code. Transactions fail once newer code has made the schema incompatible.
    """
    engine = create_engine(url, workspace, connections=connections, dedicated=dedicated)
    try:
        found = schema.get_schema_revision(engine)
        if found is None or (engine.dialect.name == "sqlite" and found < schema.HEAD):
            schema.migrate_database(engine)
        elif (problem := schema.find_schema_problem(engine, found)) is not None:
            raise problem
    except BaseException:
        engine.dispose()
        raise
    return engine.execution_options(habitus_schema=schema.HEAD)


def create_engine(
    url: str, workspace: str = "", *, connections: int = DEFAULT_POOL_SIZE, dedicated: bool = False
) -> sa.Engine:
    """Return an engine whose transactions run in the given workspace; creates no tables.

    Engines of one process on one server share a connection pool, sized by the first caller, unless `dedicated`.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise StorageFailed(
            f"'{url}' is not a database address.", hint="Write postgresql://… or sqlite:///…."
        ) from None
    if parsed.get_backend_name() == "sqlite":
        if workspace:
            what = f"Workspace '{workspace}' needs PostgreSQL; {parsed.database or 'SQLite'} holds only one."
            raise StorageFailed(what, hint="Leave HABITUS_WORKSPACE out, and give each workspace a file of its own.")
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S})
        sa.event.listen(engine, "connect", _configure_sqlite_connection)
        sa.event.listen(engine, "begin", _begin_sqlite_transaction)
        return engine
    if parsed.get_backend_name() == "postgresql":
        if dedicated:
            return _create_postgresql_engine(parsed, workspace, connections)
        key = parsed, workspace
        return _postgresql_engines.get(key) or _postgresql_engines.setdefault(
            key, _create_postgresql_engine(parsed, workspace, connections)
        )
    raise StorageFailed(
        f"Habitus does not work with a {parsed.get_backend_name()} database.", hint="Give postgresql://…."
    )


# Shared by everything in the process; one of the connections may be listening for notifications.
_postgresql_engines: WeakValueDictionary[tuple[sa.URL, str], sa.Engine] = WeakValueDictionary()


def _create_postgresql_engine(url: sa.URL, workspace: str, connections: int) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=connections,
            max_overflow=0,
            pool_timeout=BUSY_TIMEOUT_S,
            connect_args=build_missing_connect_options(url, build_application_name(schema.HEAD, workspace)),
            execution_options={"habitus_workspace": workspace},
        )
        # Imports the driver, which only PostgreSQL users have installed.
        from habitus.sql.postgresql_timeouts import limit_connection_waits
    except ImportError:
        raise StorageFailed(
            "The PostgreSQL driver is not installed.", hint=optional_packages.describe_install("psycopg")
        ) from None
    limit_connection_waits(engine, busy_timeout_s.get)
    sa.event.listen(engine, "begin", _begin_postgresql_transaction)
    sa.event.listen(engine, "do_execute", _execute_batch)
    sa.event.listen(engine, "before_execute", record_written_table)
    _install_ping_of_idle_connections(engine)
    return engine


def _execute_batch(cursor: Any, statement: str, parameters: object, context: object) -> bool:
    """Send a batch of statements in one round trip and leave the cursor at the last result; False if it is no batch."""
    if not statement.startswith("BEGIN; "):
        return False
    cursor.execute(statement, prepare=False)
    while cursor.nextset():
        pass
    return True


def _install_ping_of_idle_connections(engine: sa.Engine) -> None:
    """Check idle connections before use."""

    # A ping costs as much as a short read, so connections that have just been used are trusted.
    def note(conn: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["used_at"] = time.monotonic()

    def ping(conn: DBAPIConnection, entry: ConnectionPoolEntry, _: object) -> None:
        is_rested = time.monotonic() - entry.info.get("used_at", time.monotonic()) >= _IDLE_BEFORE_PING_S
        if not is_rested and not _has_unread_data(conn):
            return
        try:
            engine.dialect.do_ping(conn)
        except engine.dialect.loaded_dbapi.Error as error:
            # SQLAlchemy then opens a new connection.
            raise sa.exc.InvalidatePoolError from error

    sa.event.listen(engine, "checkin", note)
    sa.event.listen(engine, "checkout", ping)


def _has_unread_data(conn: Any) -> bool:
    """Return whether the server has sent unsolicited data, such as the end of the connection."""
    return bool(select.select([conn.pgconn.socket], [], [], 0)[0])


def get_engine_for_user(engine: sa.Engine, user: str, *, is_admin: bool) -> sa.Engine:
    """Return an engine on the same connections whose transactions run as this user, who sees only their own rows unless
    an admin.

    SQLite has no row-level security: anyone who can read the file can read all of it.
    """
    if engine.dialect.name != "postgresql":
        return engine
    if "\0" in user or not user.isprintable():
        raise Invalid(f"{user!r} is not a name that a database can hold.", hint="Set HABITUS_USER to another one.")
    return engine.execution_options(habitus_user=user, habitus_role="admin" if is_admin else "member")


def get_user_and_role_of_engine(engine: sa.Engine) -> tuple[str, str]:
    """Return the user and role that the engine's transactions run as."""
    options = engine.get_execution_options()
    return options.get("habitus_user", ""), options.get("habitus_role", "admin")


def _begin_postgresql_transaction(conn: sa.Connection) -> None:
    """Begin a transaction with its user, role and workspace, and verify that the schema is still compatible.

    The row-level security of the migrations uses the user and role; Habitus itself acts as an admin. Writing
    transactions get lock and idle timeouts and hold off migrations.
    """
    options, workspace = conn.get_execution_options(), get_workspace_of_engine(conn.engine)
    # Set per transaction, because a pooler may give the next one another connection.
    told = {"habitus.user": options.get("habitus_user", ""), "habitus.role": options.get("habitus_role", "admin")}
    if workspace:
        told["search_path"] = f'"{workspace}"'
    asked = [f"set_config('{name}', {_quote_literal(value)}, true)" for name, value in told.items()]
    steps = [] if options.get("isolation_level") == "AUTOCOMMIT" else ["BEGIN"]
    if options.get("habitus_writing"):
        shared = f", pg_advisory_xact_lock_shared({schema.MIGRATION_LOCK_ID})" if "habitus_schema" in options else ""
        bounds = {"lock_timeout": busy_timeout_s.get(), "idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION_S}
        bounded = ", ".join(f"set_config('{name}', '{int(1000 * most)}', true)" for name, most in bounds.items())
        steps.append(f"SELECT {bounded}{shared}")
    if "habitus_schema" in options:
        table = f'"{workspace}".{schema.COMPATIBILITY_TABLE}' if workspace else schema.COMPATIBILITY_TABLE
        asked.append(f"(SELECT MAX(oldest_reader) FROM {table})")
    # All in one batch: it precedes every read, and a round trip costs as much as the read.
    steps.append(f"SELECT {', '.join(asked)}")
    oldest = conn.exec_driver_sql("; ".join(steps)).one()[-1]
    if "habitus_schema" in options:
        schema.refuse_newer_schema(conn, oldest)


def _quote_literal(text: str) -> str:
    """Quote a string literal, regardless of the server's setting for backslashes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"E'{escaped}'"


def create_in_memory_engine() -> sa.Engine:
    """Return an engine on a new in-memory database, for tests and temporary libraries."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    sa.event.listen(engine, "connect", _configure_sqlite_connection)
    sa.event.listen(engine, "begin", _begin_sqlite_transaction)
    metadata.create_all(engine)
    return engine


def _configure_sqlite_connection(conn: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    raw: Any = conn
    # SQLAlchemy's "begin" event opens transactions, not the driver.
    raw.isolation_level = None
    raw.execute(f"PRAGMA busy_timeout = {int(busy_timeout_s.get() * 1000)}")
    # Before anything is written to a new file: later only a rewrite can change it.
    if not raw.execute("PRAGMA page_count").fetchone()[0]:
        raw.execute("PRAGMA auto_vacuum = INCREMENTAL")
    # Switching to WAL waits for other processes, so it uses the caller's timeout.
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000}")
    raw.execute("PRAGMA synchronous = NORMAL")
    raw.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite_transaction(conn: sa.Connection) -> None:
    writes = conn.get_execution_options().get("habitus_writing", False)
    conn.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
    if "habitus_schema" in conn.get_execution_options():
        # Through the driver itself, because every transaction pays for this query.
        raw: Any = conn.connection.driver_connection
        schema.refuse_newer_schema(conn, raw.execute(schema.OLDEST_READER_QUERY).fetchone()[0])
