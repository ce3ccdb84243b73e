"""Engines: a database opened, with what every connection and every transaction begins with."""

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

CONNECTIONS = 2  # of a process to a server, unless it says how many
_RESTED_S = 1.0  # after which a connection may have been cut
# A transaction that writes and says nothing for so long is rolled back by the server: its host stands still or is cut
# off, and everybody else would wait for its locks.
_ABANDONED_S = 60


def open_engine(url: str, workspace: str = "", *, connections: int = CONNECTIONS, apart: bool = False) -> sa.Engine:
    """An engine on a database that has every table this code needs, and that refuses to begin anything on one which
    newer code has made its own meanwhile.

    What is shared by many hosts is brought up to date only when somebody says so: others may run older code.
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
    """An engine whose transactions begin as they should, in a schema of that name; makes no tables.

    All that a process opens on one server shares its connections, unless they are to be `apart`: who comes first says
    how many.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise StorageFailed(
            f"'{url}' is not a database address.", mend="Write postgresql://… or sqlite:///…."
        ) from None
    if parsed.get_backend_name() == "sqlite":
        if workspace:
            what = f"Workspace '{workspace}' needs PostgreSQL; {parsed.database or 'SQLite'} holds only one."
            raise StorageFailed(what, mend="Leave HABITUS_WORKSPACE out, and give each workspace a file of its own.")
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
        f"Habitus does not work with a {parsed.get_backend_name()} database.", mend="Give postgresql://…."
    )


# One of the connections to a server may be listening (see `news`).
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
        from habitus.sql.postgresql_waits import make_impatient  # the driver, for those who have a server
    except ImportError:
        raise StorageFailed("The PostgreSQL driver is not installed.", mend=optional_packages.how("psycopg")) from None
    make_impatient(engine, how_patient.get)
    sa.event.listen(engine, "begin", _begin_postgresql)
    sa.event.listen(engine, "do_execute", _do_steps)
    sa.event.listen(engine, "before_execute", note_table)
    _ping_after_rest(engine)
    return engine


def _do_steps(cursor: Any, statement: str, parameters: object, context: object) -> bool:
    """Send several statements together, and leave the cursor at what the last of them says; whether there are."""
    if not statement.startswith("BEGIN; "):
        return False
    cursor.execute(statement, prepare=False)
    while cursor.nextset():
        pass
    return True


def _ping_after_rest(engine: sa.Engine) -> None:
    """Ask whether the server is still there, unless it has just answered: asking costs as much as a short read."""

    def note(connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
        entry.info["used_at"] = time.monotonic()

    def ping(connection: DBAPIConnection, entry: ConnectionPoolEntry, _: object) -> None:
        is_rested = time.monotonic() - entry.info.get("used_at", time.monotonic()) >= _RESTED_S
        if not is_rested and not _says_something(connection):
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise sa.exc.InvalidatePoolError from error  # and another connection is made

    sa.event.listen(engine, "checkin", note)
    sa.event.listen(engine, "checkout", ping)


def _says_something(connection: Any) -> bool:
    """Whether the server has said something unasked: that it ends the connection, or that it has ended."""
    return bool(select.select([connection.pgconn.socket], [], [], 0)[0])


def acting_as(engine: sa.Engine, user: str, *, is_admin: bool) -> sa.Engine:
    """The same connections, every transaction in the name of a user, who sees only their own rows unless an admin.

    SQLite has nobody to keep apart: whoever can read the file can read all of it.
    """
    if engine.dialect.name != "postgresql":
        return engine
    if "\0" in user or not user.isprintable():
        raise Invalid(f"{user!r} is not a name that a database can hold.", mend="Set HABITUS_USER to another one.")
    return engine.execution_options(habitus_user=user, habitus_role="admin" if is_admin else "member")


def acts_as(engine: sa.Engine) -> tuple[str, str]:
    """In whose name transactions are, and in which role."""
    options = engine.get_execution_options()
    return options.get("habitus_user", ""), options.get("habitus_role", "admin")


def _begin_postgresql(connection: sa.Connection) -> None:
    """Say in whose name it is, for the row-level security that the migrations set up: what Habitus does by itself is
    done as an admin. And look whether the schema is still ours to use, which holds until the end of what writes.
    A transaction that writes waits for locks, and keeps them, no longer than it may.

    The workspace is said with it, for this transaction alone: a pooler may give the next one another connection.
    All of it goes to the server at once: it is asked before every read, and a round trip costs as much as the read.
    """
    options, workspace = connection.get_execution_options(), workspace_of(connection.engine)
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
    steps.append(f"SELECT {', '.join(asked)}")
    oldest = connection.exec_driver_sql("; ".join(steps)).one()[-1]
    if "habitus_schema" in options:
        refuse_if_newer(connection, oldest)


def _literal(text: str) -> str:
    """As a server reads it whatever it thinks of backslashes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"E'{escaped}'"


def create_all_in_memory() -> sa.Engine:
    """A fresh database that lives as long as the engine: for tests and throw-away libraries."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    metadata.create_all(engine)
    return engine


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    raw: Any = connection
    raw.isolation_level = None  # SQLAlchemy's "begin" event opens transactions, not the driver
    raw.execute(f"PRAGMA busy_timeout = {int(how_patient.get() * 1000)}")
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
    raw.execute("PRAGMA synchronous = NORMAL")
    raw.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("habitus_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
    if "habitus_schema" in connection.get_execution_options():
        raw: Any = connection.connection.driver_connection  # by the driver itself, because every transaction asks
        refuse_if_newer(connection, raw.execute(OLDEST).fetchone()[0])
