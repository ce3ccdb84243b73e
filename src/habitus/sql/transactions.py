"""Read and write transactions, which nest by joining the open one.

A write transaction takes the write lock when it begins, so its reads stay valid until it commits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

import sqlalchemy as sa

from habitus import tracing
from habitus.sql.addresses import get_database_key, get_workspace_of_engine
from habitus.sql.errors import BUSY_TIMEOUT_S, busy_timeout_s, translate_storage_errors


@contextmanager
def write_transaction(engine: sa.Engine, *, durable: bool = False, lock: str = "") -> Iterator[sa.Connection]:
    """Open a write transaction, or join the one open in this context.

    SQLite has one write lock; PostgreSQL takes the advisory lock named `lock`. No transaction should take two, because
    another order elsewhere would deadlock. `durable` survives a power cut, not only a killed process.
    """
    if has_open_write(engine):
        conn = _open_transactions.get()[id(engine)]
        held = conn.get_execution_options()["habitus_lock"]
        if lock not in ("", held):
            if held:
                warnings.warn(f"'{lock}' is wanted while '{held}' is held", ResourceWarning, stacklevel=3)
            _acquire_advisory_lock(engine, conn, lock)
        yield conn
        return
    with (
        tracing.trace_span_if_inside_another("database", access="write"),
        translate_storage_errors(engine),
        engine.connect() as plain,
        _apply_busy_timeout(plain),
    ):
        touched: set[str] = set()
        conn = plain.execution_options(habitus_writing=True, habitus_lock=lock, habitus_touched=touched)
        with (
            _apply_durability(conn, durable),
            _begin_transaction_with_reconnect(conn),
            _register_transaction(engine, conn),
        ):
            if lock:
                _acquire_advisory_lock(engine, conn, lock)
            yield conn
            announce_table_changes(conn, touched & _ANNOUNCED_TABLES)
    # Only after the commit: earlier, another thread could cache what it read before it.
    _commits.update({(get_database_key(engine), table): object() for table in touched})


def _begin_transaction_with_reconnect(conn: sa.Connection) -> sa.RootTransaction:
    """Begin a transaction, once more on a new connection if the server had closed this one."""
    try:
        return conn.begin()
    except sa.exc.DBAPIError as error:
        if not error.connection_invalidated:
            raise
        return conn.begin()


def _acquire_advisory_lock(engine: sa.Engine, conn: sa.Connection, lock: str) -> None:
    if engine.dialect.name == "postgresql":
        name = {"name": f"{get_workspace_of_engine(engine)} {lock}".strip()}
        conn.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), name)


@contextmanager
def read_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a read transaction, or join the one open in this context."""
    joined = _open_transactions.get().get(id(engine))
    if joined is not None:
        yield joined
        return
    with (
        tracing.trace_span_if_inside_another("database", access="read"),
        translate_storage_errors(engine),
        engine.connect() as conn,
        _apply_busy_timeout(conn),
        _begin_transaction_with_reconnect(conn),
        _register_transaction(engine, conn),
    ):
        yield conn


# Channels are per database, so the workspace has to be part of the name.
NOTIFICATION_CHANNEL = "'habitus_' || md5(current_schema())"
# Tables without a trigger that many functions write to.
_ANNOUNCED_TABLES = frozenset({"turns", "outcomes", "jobs"})


def announce_table_changes(conn: sa.Connection, tables: Collection[str]) -> None:
    """Announce changes to these tables to all hosts of a PostgreSQL database when the transaction commits."""
    if tables and conn.dialect.name == "postgresql":
        query = sa.text(
            f"SELECT pg_notify({NOTIFICATION_CHANNEL}, topic) FROM unnest(CAST(:topics AS text[])) AS topic"
        )
        conn.execute(query, {"topics": list(tables)})


def count_open_transactions() -> int:
    """Return how many transactions are open in this context, each of which holds a connection."""
    return len(_open_transactions.get())


def has_open_write(engine: sa.Engine) -> bool:
    """Return whether a write transaction is open in this context."""
    joined = _open_transactions.get().get(id(engine))
    return joined is not None and bool(joined.get_execution_options().get("habitus_writing"))


_commits: dict[tuple[tuple[sa.URL, str], str], object] = {}


def get_token_of_own_table_commits(engine: sa.Engine, table: str) -> Hashable:
    """Return a token that changes with each commit of this process that wrote to a PostgreSQL table.

    Statements sent as text are not tracked; their changes arrive only as notifications.
    """
    return _commits.get((get_database_key(engine), table))


def record_written_table(conn: sa.Connection, clause: Any, *_: object) -> None:
    """Record the table that a statement writes to; a PostgreSQL engine calls this before each statement.

    One with the option `habitus_silent` changes nothing that anybody follows, such as the time of a lease.
    """
    touched = conn.get_execution_options().get("habitus_touched")
    if touched is not None and clause.is_dml and not clause.get_execution_options().get("habitus_silent"):
        touched.add(clause.table.name)


# Open transactions by engine, which nested reads and writes join.
_open_transactions: ContextVar[Mapping[int, sa.Connection]] = ContextVar(
    "open_transactions", default=MappingProxyType({})
)


@contextmanager
def _register_transaction(engine: sa.Engine, conn: sa.Connection) -> Iterator[None]:
    token = _open_transactions.set({**_open_transactions.get(), id(engine): conn})
    try:
        yield
    finally:
        _open_transactions.reset(token)


def insert_missing_rows(conn: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose key does not exist; existing rows stay unchanged."""
    if not rows:
        return
    # Imports only the dialect in use: the other one takes a tenth of a short command's time.
    dialect: Any = import_module(f"sqlalchemy.dialects.{conn.dialect.name}")
    conn.execute(dialect.insert(table).on_conflict_do_nothing(), rows)


def upsert_rows(
    conn: sa.Connection,
    table: sa.Table,
    rows: Sequence[Mapping[str, Any]],
    changes: Callable[[sa.ColumnCollection[str, Any]], Mapping[str, Any]],
) -> None:
    """Insert rows; where the key exists, update the columns that `changes` returns for the new row."""
    if not rows:
        return
    # Only the dialect in use, as in `insert_missing_rows`.
    dialect: Any = import_module(f"sqlalchemy.dialects.{conn.dialect.name}")
    insert = dialect.insert(table)
    keys = [column.name for column in table.primary_key]
    conn.execute(insert.on_conflict_do_update(index_elements=keys, set_=changes(insert.excluded)), rows)


@contextmanager
def _apply_busy_timeout(conn: sa.Connection) -> Iterator[None]:
    seconds = busy_timeout_s.get()
    if seconds >= BUSY_TIMEOUT_S or conn.dialect.name != "sqlite":
        yield
        return
    raw: Any = conn.connection.driver_connection
    raw.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
    try:
        yield
    # The connection returns to the pool, so the default comes back.
    finally:
        raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000}")


@contextmanager
def _apply_durability(conn: sa.Connection, durable: bool) -> Iterator[None]:
    if not durable or conn.dialect.name != "sqlite":
        yield
        return
    # Through the driver, because the pragma has no effect inside a transaction.
    raw: Any = conn.connection.driver_connection
    raw.execute("PRAGMA synchronous = FULL")
    try:
        yield
    finally:
        raw.execute("PRAGMA synchronous = NORMAL")


T = TypeVar("T")
# SQLite and PostgreSQL limit the number of values in one statement.
BATCH_SIZE = 500


def split_batches(values: Sequence[T], size: int = BATCH_SIZE) -> Iterator[Sequence[T]]:
    """Yield the values in batches, by default of as many as fit into one statement."""
    return (values[start : start + size] for start in range(0, len(values), size))
