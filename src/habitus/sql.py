"""The one database: engine, transactions and migrations, for SQLite and PostgreSQL alike.

Packages above declare their tables on `metadata`; `migrations/` creates them. A transaction that writes takes
the write lock when it begins, so what it reads stays true until it commits.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from habitus import extras
from habitus.errors import Invalid, StorageFailed
from habitus.presence import connecting, introduced, refuse_to_strand
from habitus.refusals import explained

log = logging.getLogger(__name__)

metadata = sa.MetaData()

# The newest migration this code knows. A test holds it against the migrations folder.
HEAD = "0018"

_BUSY_SECONDS = 30
_SECRETS = ("password", "sslpassword")  # what an address may also name behind its question mark


class Utc(sa.types.TypeDecorator[datetime]):
    """A moment as ISO 8601 text in UTC: reads the same in every database, and sorts by time."""

    impl = sa.String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else _written(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


@functools.lru_cache(maxsize=64)  # thousands of rows of one change bear one moment
def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def open_engine(url: str, workspace: str = "") -> sa.Engine:
    """An engine on a database that has every table this code needs, and that refuses to begin anything on one which
    newer code has made its own meanwhile.

    What is shared by many hosts is brought up to date only when somebody says so: others may run older code.
    """
    engine = create_engine(url, workspace)
    try:
        found = revision(engine)
        if engine.dialect.name == "sqlite" or found is None:
            migrate(engine)
        elif (problem := unusable(engine, found)) is not None:
            raise problem
    except BaseException:
        engine.dispose()
        raise
    return engine.execution_options(habitus_schema=HEAD)


def create_engine(url: str, workspace: str = "") -> sa.Engine:
    """An engine that begins transactions as described above, in a schema of that name; makes no tables."""
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
        engine = sa.create_engine(parsed, connect_args={"timeout": _BUSY_SECONDS})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    if parsed.get_backend_name() == "postgresql":
        key = parsed, workspace
        return _servers.get(key) or _servers.setdefault(key, _postgresql_engine(parsed, workspace))
    raise StorageFailed(f"Habitus has no use for a {parsed.get_backend_name()} database.", mend="Give postgresql://….")


# All that a process opens in a workspace shares two connections, one of which may be listening (see `news`).
_servers: WeakValueDictionary[tuple[sa.URL, str], sa.Engine] = WeakValueDictionary()
_CONNECTIONS = 2
_COMPATIBILITY = "schema_compatibility"
_OLDEST = f"SELECT MAX(oldest_reader) FROM {_COMPATIBILITY}"
_MIGRATING = 4242001  # the lock that a migration has alone, and everybody who writes shares


def _postgresql_engine(url: sa.URL, workspace: str) -> sa.Engine:
    try:
        engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_pre_ping=True,
            pool_size=_CONNECTIONS,
            max_overflow=0,
            pool_timeout=_BUSY_SECONDS,
            connect_args=connecting(url, introduced(HEAD, workspace)),
            execution_options={"habitus_workspace": workspace},
        )
        from habitus.impatient import make_impatient  # the driver, for those who have a server
    except ImportError:
        raise StorageFailed("The PostgreSQL driver is not installed.", mend=extras.how("psycopg")) from None
    make_impatient(engine, _patience.get)
    sa.event.listen(engine, "begin", _begin_postgresql)
    return engine


def acting_as(engine: sa.Engine, user: str, *, is_admin: bool) -> sa.Engine:
    """The same connections, every transaction in the name of a user, who sees only their own rows unless an admin.

    SQLite has nobody to keep apart: whoever can read the file can read all of it.
    """
    if engine.dialect.name != "postgresql":
        return engine
    if "\0" in user or not user.isprintable():
        raise Invalid(f"{user!r} is no name that a database can hold.", mend="Set HABITUS_USER to another one.")
    return engine.execution_options(habitus_user=user, habitus_role="admin" if is_admin else "member")


def _begin_postgresql(connection: sa.Connection) -> None:
    """Say in whose name it is, for the row-level security that the migrations set up: what Habitus does by itself is
    done as an admin. And look whether the schema is still ours to use, which holds until the end of what writes.

    The workspace is said with it, for this transaction alone: a pooler may give the next one another connection.
    """
    options = connection.get_execution_options()
    told = {"user": options.get("habitus_user", ""), "role": options.get("habitus_role", "admin")}
    statement = "SELECT set_config('habitus.user', %(user)s, true), set_config('habitus.role', %(role)s, true)"
    if workspace := workspace_of(connection.engine):
        statement += ", set_config('search_path', %(path)s, true)"
        told["path"] = f'"{workspace}"'
    if "habitus_schema" not in options:
        connection.exec_driver_sql(statement, told)
        return
    if options.get("habitus_writing"):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared({_MIGRATING})")
    table = f'"{workspace}".{_COMPATIBILITY}' if workspace else _COMPATIBILITY
    statement += f", (SELECT MAX(oldest_reader) FROM {table})"
    _refuse_if_newer(connection, connection.exec_driver_sql(statement, told).one()[-1])


def _refuse_if_newer(connection: sa.Connection, oldest: str | None) -> None:
    """Somebody migrated to what code of this age would misread, while this process ran."""
    if (oldest or HEAD) > HEAD:
        raise _newer(connection.engine, oldest)


def workspace_of(engine: sa.Engine) -> str:
    """The schema that an engine works in; empty for the one that a connection begins with."""
    return str(engine.get_execution_options().get("habitus_workspace", ""))


def key_of(engine: sa.Engine) -> tuple[sa.URL, str]:
    """What tells two databases, or two workspaces of one, apart."""
    return engine.url, workspace_of(engine)


def sqlite_url(path: Path) -> str:
    return sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def create_all_in_memory() -> sa.Engine:
    """A fresh database that lives as long as the engine: for tests and throw-away libraries."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    metadata.create_all(engine)
    return engine


@contextmanager
def writing(engine: sa.Engine, *, durable: bool = False, lock: str = "") -> Iterator[sa.Connection]:
    """A transaction with the write lock; it joins one that is open in this context.

    SQLite has one write lock; PostgreSQL takes the one called `lock`. `durable` survives a power cut, not only a
    killed process.
    """
    if is_writing(engine):
        yield _open_transactions.get()[id(engine)]
        return
    with storage_errors(engine), engine.connect() as plain, _waiting(plain):
        connection = plain.execution_options(habitus_writing=True)
        with _synchronous(connection, durable), connection.begin(), _announced(engine, connection):
            if _patience.get() < _BUSY_SECONDS and engine.dialect.name == "postgresql":
                connection.execute(sa.text(f"SET LOCAL lock_timeout = {int(_patience.get() * 1000)}"))
            if lock and engine.dialect.name == "postgresql":
                name = {"name": f"{workspace_of(engine)} {lock}".strip()}
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), name)
            yield connection
    _commits[key_of(engine)] += 1


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that only reads; it joins one that is open in this context."""
    joined = _open_transactions.get().get(id(engine))
    if joined is not None:
        yield joined
        return
    with (
        storage_errors(engine),
        engine.connect() as connection,
        _waiting(connection),
        connection.begin(),
        _announced(engine, connection),
    ):
        yield connection


def is_writing(engine: sa.Engine) -> bool:
    """Whether a writing transaction is open in this context, so that others wait for us."""
    joined = _open_transactions.get().get(id(engine))
    return joined is not None and bool(joined.get_execution_options().get("habitus_writing"))


_commits: Counter[tuple[sa.URL, str]] = Counter()


def commits(engine: sa.Engine) -> int:
    """How often this process has written there."""
    return _commits[key_of(engine)]


# The transaction that is open in this context, by engine: whoever reads or writes further joins it.
_open_transactions: ContextVar[Mapping[int, sa.Connection]] = ContextVar(
    "open_transactions", default=MappingProxyType({})
)


@contextmanager
def _announced(engine: sa.Engine, connection: sa.Connection) -> Iterator[None]:
    token = _open_transactions.set({**_open_transactions.get(), id(engine): connection})
    try:
        yield
    finally:
        _open_transactions.reset(token)


@contextmanager
def storage_errors(engine: sa.Engine) -> Iterator[None]:
    """Turn what a driver says into one line that names the database and the mend."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        raise explained(place(engine), error, waited=_patience.get()) from error
    except sa.exc.TimeoutError:
        what = f"All {_CONNECTIONS} connections to {place(engine)} have been in use for {_BUSY_SECONDS} s."
        raise StorageFailed(what, mend="Retry, or start another process.") from None
    except OverflowError:
        raise StorageFailed("A number is too large for the database.", mend="Give a smaller one.") from None


def insert_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose key is not there yet; the others are left as they are."""
    if not rows:
        return
    # The module of the dialect that is in use anyway: the other one would take a tenth of a short command.
    dialect: Any = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")
    connection.execute(dialect.insert(table).on_conflict_do_nothing(), rows)


def upsert(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    changes: Callable[[sa.ColumnCollection[str, Any]], Mapping[str, Any]],
) -> None:
    """Insert rows; of those whose key is there already, change what `changes` makes of the new one."""
    if not rows:
        return
    dialect: Any = import_module(f"sqlalchemy.dialects.{connection.dialect.name}")  # as above
    insert = dialect.insert(table)
    keys = [column.name for column in table.primary_key]
    connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=changes(insert.excluded)), rows)


def migrate(engine: sa.Engine, *, even_so: bool = False) -> None:
    """Bring the database up to HEAD. A newer one is used as it is where its makers allow that, else refused.

    All of it or nothing. While processes run that could not go on afterwards, nothing, unless `even_so`.
    """
    found = revision(engine)
    if found is None or found < HEAD:
        with storage_errors(engine):
            _upgrade(engine, even_so=even_so or found is None)
    elif (problem := unusable(engine, found)) is not None:
        raise problem


def unusable(engine: sa.Engine, found: str | None) -> StorageFailed | None:
    """Why this code can't work with the schema that was found."""
    if found is None:
        return StorageFailed(f"{place(engine)} has no tables yet.", mend="The first command makes them.")
    if found < HEAD:
        what = f"{place(engine)} has schema {found}, and this Habitus needs {HEAD}."
        return StorageFailed(what, mend="Run 'habitus db migrate' once.")
    if found > HEAD and (oldest_reader(engine) or found) > HEAD:
        return _newer(engine, found)
    return None


def _newer(engine: sa.Engine, schema: str | None) -> StorageFailed:
    return StorageFailed(
        f"{place(engine)} was written by a newer Habitus (schema {schema}, this one knows {HEAD}).",
        mend="Upgrade Habitus, or point HABITUS_HOME elsewhere. Nothing was changed.",
    )


def revision(engine: sa.Engine) -> str | None:
    """The newest migration that a database has had; nothing where it has no tables yet."""
    with storage_errors(engine), engine.connect() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        found: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        return found


def oldest_reader(engine: sa.Engine) -> str | None:
    """The oldest schema whose code may still use this database, where the newer code wrote that down."""
    with storage_errors(engine), engine.connect() as connection:
        found: str | None = connection.execute(sa.text(_OLDEST)).scalar()
        return found


def _upgrade(engine: sa.Engine, *, even_so: bool) -> None:
    # Alembic takes half a second to import, and is needed once in a database's life.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "habitus:migrations")
    with writing(engine, durable=True) as connection:
        before = ""
        if engine.dialect.name == "postgresql":
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_MIGRATING})"))
            _make_schema(connection, workspace_of(engine))
            before = "" if even_so else connection.execute(sa.text(_OLDEST)).scalar_one()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        if before and (oldest := connection.execute(sa.text(_OLDEST)).scalar_one()) > before:
            refuse_to_strand(connection, oldest, workspace_of(engine), place(engine))


def _make_schema(connection: sa.Connection, name: str) -> None:
    """Where a workspace is new. Asked for first: who may use it need not be allowed to make others."""
    is_there = sa.text("SELECT true FROM pg_namespace WHERE nspname = :name")
    if not name or connection.execute(is_there, {"name": name}).scalar():
        return
    try:
        connection.execute(sa.schema.CreateSchema(name))
    except sa.exc.ProgrammingError as error:
        role = connection.engine.url.username or "this role"
        what = f"{place(connection.engine)} is not there, and {role} may not make it."
        mend = f'Have the owner of the database run: CREATE SCHEMA "{name}" AUTHORIZATION {role}.'
        raise StorageFailed(what, mend=mend) from error


def _prepare_sqlite(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    raw: Any = connection
    raw.isolation_level = None  # SQLAlchemy's "begin" event opens transactions, not the driver
    raw.execute(f"PRAGMA busy_timeout = {int(_patience.get() * 1000)}")
    raw.execute("PRAGMA journal_mode = WAL")
    raw.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
    raw.execute("PRAGMA synchronous = NORMAL")
    raw.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("habitus_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
    if "habitus_schema" in connection.get_execution_options():
        raw: Any = connection.connection.driver_connection  # by the driver itself, because every transaction asks
        _refuse_if_newer(connection, raw.execute(_OLDEST).fetchone()[0])


_patience: ContextVar[float] = ContextVar("patience", default=_BUSY_SECONDS)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """What is read and written inside waits no longer than this for a database that somebody else keeps busy."""
    before = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(before)


@contextmanager
def _waiting(connection: sa.Connection) -> Iterator[None]:
    seconds = _patience.get()
    if seconds >= _BUSY_SECONDS or connection.dialect.name != "sqlite":
        yield
        return
    raw: Any = connection.connection.driver_connection
    raw.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
    try:
        yield
    finally:
        raw.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")


@contextmanager
def _synchronous(connection: sa.Connection, durable: bool) -> Iterator[None]:
    if not durable or connection.dialect.name != "sqlite":
        yield
        return
    # The driver connection itself, because a pragma has no effect inside a transaction.
    raw: Any = connection.connection.driver_connection
    raw.execute("PRAGMA synchronous = FULL")
    try:
        yield
    finally:
        raw.execute("PRAGMA synchronous = NORMAL")


def place(engine: sa.Engine) -> str:
    """Where a database is, fit to be shown: a path, or an address without its password, and the workspace."""
    if engine.dialect.name == "sqlite":
        return str(engine.url.database or "the in-memory database")
    shown = engine.url.difference_update_query(_SECRETS).render_as_string(hide_password=True)
    return f"{shown} (workspace {workspace})" if (workspace := workspace_of(engine)) else shown
