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
from habitus.sql.addresses import application_name, connecting, metadata, workspace_of
from habitus.sql.errors import BUSY_SECONDS, how_patient
from habitus.sql.schema import COMPATIBILITY, HEAD, MIGRATING, OLDEST, migrate, refuse_if_newer, revision, unusable
from habitus.sql.transactions import note_table

# Connections of a process to a PostgreSQL server, unless the caller says otherwise.
CONNECTIONS = 2
# After this idle time a connection may have been cut and is checked before use.
_RESTED_S = 1.0
# The server rolls back a writing transaction that is idle for so long: its host is suspended or cut off, and everyone
# else would wait for its locks.
_ABANDONED_S = 60


def open_engine(url: str, workspace: str = "", *, connections: int = CONNECTIONS, apart: bool = False) -> sa.Engine:
    """Return an engine on a database that has all tables this code needs.

    Creates or upgrades a SQLite file; an existing PostgreSQL schema is upgraded only by an explicit migration, because
    other hosts may run older code. Transactions fail once newer code has made the schema incompatible.
    """
    engine = create_engine(url, workspace, connections=connections, apart=apart)
    try:
        found = revision(engine)
        if found is None or (engine.dialect.name == "sqlite" and found < HEAD):
            migrate(engine)
        elif (problem := unusable(engine, found)) is not None:
            raise problem
    except BaseException:
        engine.dispose()
        raise
    return engine.execution_options(habitus_schema=HEAD)


def create_engine(url: str, workspace: str = "", *, connections: int = CONNECTIONS, apart: bool = False) -> sa.Engine:
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
        engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    if parsed.get_backend_name() == "postgresql":
        if apart:
            return _postgresql_engine(parsed, workspace, connections)
        key = parsed, workspace
        return _servers.get(key) or _servers.setdefault(key, _postgresql_engine(parsed, workspace, connections))
    raise StorageFailed(
        f"Habitus does not work with a {parsed.get_backend_name()} database.", hint="Give postgresql://…."
    )


# Shared by everything in the process; one of the connections may be listening for notifications.
_servers: WeakValueDictionary[tuple[sa.URL, str], sa.Engine] = WeakValueDictionary()


def _postgresql_engine(url: sa.URL, workspace: str, connections: int) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=connections,
            max_overflow=0,
            pool_timeout=BUSY_SECONDS,
            connect_args=connecting(url, application_name(HEAD, workspace)),
            execution_options={"habitus_workspace": workspace},
        )
        # Imports the driver, which only PostgreSQL users have installed.
        from habitus.sql.postgresql_waits import make_impatient
    except ImportError:
        raise StorageFailed("The PostgreSQL driver is not installed.", hint=optional_packages.how("psycopg")) from None
    make_impatient(engine, how_patient.get)
    sa.event.listen(engine, "begin", _begin_postgresql)
    sa.event.listen(engine, "do_execute", _do_steps)
    sa.event.listen(engine, "before_execute", note_table)
    _ping_after_rest(engine)
    return engine


def _do_steps(cursor: Any, statement: str, parameters: object, context: object) -> bool:
    """Send a batch of statements in one round trip and leave the cursor at the last result; False if it is no batch."""
    if not statement.startswith("BEGIN; "):
        return False
    cursor.execute(statement, prepare=False)
    while cursor.nextset():
        pass
    return True


def _ping_after_rest(engine: sa.Engine) -> None:
    """Check idle connections before use."""

    # A ping costs as much as a short read, so connections that have just been used are trusted.
    def note(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["used_at"] = time.monotonic()

    def ping(connection: DBAPIConnection, entry: ConnectionPoolEntry, _: object) -> None:
        is_rested = time.monotonic() - entry.info.get("used_at", time.monotonic()) >= _RESTED_S
        if not is_rested and not _says_something(connection):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            # SQLAlchemy then opens a new connection.
            raise sa.exc.InvalidatePoolError from error

    sa.event.listen(engine, "checkin", note)
    sa.event.listen(engine, "checkout", ping)


def _says_something(connection: Any) -> bool:
    """Return whether the server has sent unsolicited data, such as the end of the connection."""
    return bool(select.select([connection.pgconn.socket], [], [], 0)[0])


def acting_as(engine: sa.Engine, user: str, *, is_admin: bool) -> sa.Engine:
    """Return an engine on the same connections whose transactions run as this user, who sees only their own rows unless
    an admin.

    SQLite has no row-level security: anyone who can read the file can read all of it.
    """
    if engine.dialect.name != "postgresql":
        return engine
    if "\0" in user or not user.isprintable():
        raise Invalid(f"{user!r} is not a name that a database can hold.", hint="Set HABITUS_USER to another one.")
    return engine.execution_options(habitus_user=user, habitus_role="admin" if is_admin else "member")


def acts_as(engine: sa.Engine) -> tuple[str, str]:
    """Return the user and role that the engine's transactions run as."""
    options = engine.get_execution_options()
    return options.get("habitus_user", ""), options.get("habitus_role", "admin")


def _begin_postgresql(connection: sa.Connection) -> None:
    """Begin a transaction with its user, role and workspace, and verify that the schema is still compatible.

    The row-level security of the migrations uses the user and role; Habitus itself acts as an admin. Writing
    transactions get lock and idle timeouts and hold off migrations.
    """
    options, workspace = connection.get_execution_options(), workspace_of(connection.engine)
    # Set per transaction, because a pooler may give the next one another connection.
    told = {"habitus.user": options.get("habitus_user", ""), "habitus.role": options.get("habitus_role", "admin")}
    if workspace:
        told["search_path"] = f'"{workspace}"'
    asked = [f"set_config('{name}', {_literal(value)}, true)" for name, value in told.items()]
    steps = [] if options.get("isolation_level") == "AUTOCOMMIT" else ["BEGIN"]
    if options.get("habitus_writing"):
        shared = f", pg_advisory_xact_lock_shared({MIGRATING})" if "habitus_schema" in options else ""
        bounds = {"lock_timeout": how_patient.get(), "idle_in_transaction_session_timeout": _ABANDONED_S}
        bounded = ", ".join(f"set_config('{name}', '{int(1000 * most)}', true)" for name, most in bounds.items())
        steps.append(f"SELECT {bounded}{shared}")
    if "habitus_schema" in options:
        table = f'"{workspace}".{COMPATIBILITY}' if workspace else COMPATIBILITY
        asked.append(f"(SELECT MAX(oldest_reader) FROM {table})")
    # All in one batch: it precedes every read, and a round trip costs as much as the read.
    steps.append(f"SELECT {', '.join(asked)}")
    oldest = connection.exec_driver_sql("; ".join(steps)).one()[-1]
    if "habitus_schema" in options:
        refuse_if_newer(connection, oldest)


def _literal(text: str) -> str:
    """Quote a string literal, regardless of the server's setting for backslashes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"E'{escaped}'"


def create_all_in_memory() -> sa.Engine:
    """Return an engine on a new in-memory database, for tests and temporary libraries."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    metadata.create_all(engine)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    raw: Any = connection
    # SQLAlchemy's "begin" event opens transactions, not the driver.
    raw.isolation_level = None
    raw.execute(f"PRAGMA busy_timeout = {int(how_patient.get() * 1000)}")
    # Switching to WAL waits for other processes, so it uses the caller's timeout.
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    raw.execute("PRAGMA synchronous = NORMAL")
    raw.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("habitus_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
    if "habitus_schema" in connection.get_execution_options():
        # Through the driver itself, because every transaction pays for this query.
        raw: Any = connection.connection.driver_connection
        refuse_if_newer(connection, raw.execute(OLDEST).fetchone()[0])
