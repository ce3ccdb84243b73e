"""Transactions that read or write; what a failed one says is in `errors`.

One that writes takes the write lock when it begins, so what it reads stays true until it commits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from habitus.sql.addresses import key_of, workspace_of
from habitus.sql.errors import BUSY_SECONDS, how_patient, storage_errors


@contextmanager
def writing(engine: sa.Engine, *, durable: bool = False, lock: str = "") -> Iterator[sa.Connection]:
    """A transaction with the write lock; it joins one that is open in this context.

    SQLite has one write lock; PostgreSQL takes the one called `lock`, and no transaction should have two: who takes
    them in another order waits for this one. `durable` survives a power cut, not only a killed process.
    """
    if is_writing(engine):
        connection = _open_transactions.get()[id(engine)]
        held = connection.get_execution_options()["habitus_lock"]
        if lock not in ("", held):
            if held:
                warnings.warn(f"'{lock}' is wanted while '{held}' is held", ResourceWarning, stacklevel=3)
            _take_lock(engine, connection, lock)
        yield connection
        return
    with storage_errors(engine), engine.connect() as plain, _waiting(plain):
        touched: set[str] = set()
        connection = plain.execution_options(habitus_writing=True, habitus_lock=lock, habitus_touched=touched)
        with _synchronous(connection, durable), _begun(connection), _announce(engine, connection):
            if lock:
                _take_lock(engine, connection, lock)
            yield connection
    _commits.update({(key_of(engine), table): object() for table in touched})


def _begun(connection: sa.Connection) -> sa.RootTransaction:
    """A transaction, on another connection if the server has ended this one: nothing was done yet."""
    try:
        return connection.begin()
    except sa.exc.DBAPIError as error:
        if not error.connection_invalidated:
            raise
        return connection.begin()


def _take_lock(engine: sa.Engine, connection: sa.Connection, lock: str) -> None:
    if engine.dialect.name == "postgresql":
        name = {"name": f"{workspace_of(engine)} {lock}".strip()}
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), name)


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
        _begun(connection),
        _announce(engine, connection),
    ):
        yield connection


def open_transactions() -> int:
    """How many transactions are open in this context, each of which holds a connection."""
    return len(_open_transactions.get())


def is_writing(engine: sa.Engine) -> bool:
    """Whether a writing transaction is open in this context, so that others wait for us."""
    joined = _open_transactions.get().get(id(engine))
    return joined is not None and bool(joined.get_execution_options().get("habitus_writing"))


_commits: dict[tuple[tuple[sa.URL, str], str], object] = {}


def last_commit(engine: sa.Engine, table: str) -> Hashable:
    """Another value after each commit of this process that wrote into a table of a server by its name.

    Statements sent as text are not seen; whoever writes so is heard of by the server's word alone.
    """
    return _commits.get((key_of(engine), table))


def note_table(connection: sa.Connection, clause: Any, *_: object) -> None:
    """Remember the table that a statement writes into; a PostgreSQL engine calls it before each one."""
    touched = connection.get_execution_options().get("habitus_touched")
    if touched is not None and clause.is_dml:
        touched.add(clause.table.name)


# The transaction that is open in this context, by engine: whoever reads or writes further joins it.
_open_transactions: ContextVar[Mapping[int, sa.Connection]] = ContextVar(
    "open_transactions", default=MappingProxyType({})
)


@contextmanager
def _announce(engine: sa.Engine, connection: sa.Connection) -> Iterator[None]:
    token = _open_transactions.set({**_open_transactions.get(), id(engine): connection})
    try:
        yield
    finally:
        _open_transactions.reset(token)


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


@contextmanager
def _waiting(connection: sa.Connection) -> Iterator[None]:
    seconds = how_patient.get()
    if seconds >= BUSY_SECONDS or connection.dialect.name != "sqlite":
        yield
        return
    raw: Any = connection.connection.driver_connection
    raw.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
    try:
        yield
    finally:
        raw.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")


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
