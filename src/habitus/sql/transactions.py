"""Transactions that read or write, how long they wait, and what a failed one says.

One that writes takes the write lock when it begins, so what it reads stays true until it commits.
"""

from __future__ import annotations

import re
import sqlite3
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from habitus.errors import DatabaseAway, StorageFailed
from habitus.sql.places import key_of, place, workspace_of

# By the state that PostgreSQL gives with what it says, or by the words where there is none: SQLite has no states, and
# what a server says to one who connects comes as words alone.
_KNOWN = (
    (
        r"^53100|disk is full|no space left",
        "No space left for {where}; nothing was changed.",
        "Free some space and retry.",
    ),
    (
        r"^25006",
        "{where} takes no changes: {said}.",
        "If it is a standby, give the address of the server that it follows.",
    ),
    (r"readonly|read-only", "{where} can't be written.", "Check the permissions of its directory."),
    (r"unable to open", "{where} can't be opened.", "Check that its directory exists and is yours."),
    (r"malformed|not a database|could not decode", "{where} is damaged ({said}).", "{way_back}"),
    (r"^55P03|locked", "{where} has been busy for {waited:g} s.", "Look for a stuck habitus process, then retry."),
    (
        r"^42501|^3F000|permission denied",
        "{where} does not let this role in: {said}.",
        "Have its owner grant the role the schema and its tables.",
    ),
    (
        r"no encryption|does not support SSL|certificate",
        "{where} can't be reached as its address says: {said}.",
        "Set sslmode in HABITUS_DATABASE as the server wants it.",
    ),
    (
        r"^28|authentication|no password supplied|role .* does not exist|no pg_hba.conf entry",
        "{where} does not let this role in: {said}.",
        "Correct the name or the password in HABITUS_DATABASE.",
    ),
    (r"database .* does not exist", "{where}: {said}.", "Correct HABITUS_DATABASE, or create the database."),
)
_AWAY = r"^08|^53300|^57P|connection|resolve host|too many (clients|connections)|connection slots"
_PREFIX = re.compile(r"^.*(?:connection failed|connection is bad|FATAL): *")  # each layer names itself before it speaks


def explain_error(where: str, error: sa.exc.DBAPIError, *, waited: float) -> StorageFailed:
    """A driver's error in our words; `waited` is how long a busy database was waited for."""
    said = str(error.orig).strip().splitlines()[0].rstrip(".") if error.orig else str(error)
    known = getattr(error.orig, "sqlstate", None) or said
    for pattern, what, mend in _KNOWN:
        if re.search(pattern, known, re.IGNORECASE):
            filled = {"where": where, "said": _PREFIX.sub("", said), "waited": waited, "way_back": way_back(where)}
            return StorageFailed(what.format(**filled), mend=mend.format(**filled))
    if re.search(_AWAY, known, re.IGNORECASE):  # which server it was is in what it says
        said = said.removeprefix("connection is bad: ")
        return DatabaseAway(f"The database is away: {said}.", mend="Nothing was changed; run 'habitus doctor'.")
    return StorageFailed(f"{where}: {said}.", mend="Nothing was changed; run 'habitus doctor'.")


def way_back(path: str) -> str:
    """From a damaged database file."""
    name = Path(path).name
    return (
        f"Skills on disk and memory/*.md are not touched. Put a backup of {name} in its place, or save what can be "
        f"read (sqlite3 {name} .recover | sqlite3 saved.db) and use that, or move it away to start counters, history "
        "and lessons anew."
    )


BUSY_SECONDS = 30

how_patient: ContextVar[float] = ContextVar("patience", default=BUSY_SECONDS)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Statements inside wait no longer than this for a database that somebody else keeps busy."""
    before = how_patient.set(seconds)
    try:
        yield
    finally:
        how_patient.reset(before)


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
    """Changes when this process has written into a table of a server; where text was sent, that is not known."""
    return _commits.get((key_of(engine), table))


def note_table(connection: sa.Connection, clause: Any, *_: object) -> None:
    """What is about to be written, by a listener of the engine."""
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


@contextmanager
def storage_errors(engine: sa.Engine) -> Iterator[None]:
    """Turn what a driver says into one line that names the database and the mend."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        if engine.get_execution_options().get("habitus_stands_in") and "readonly" in str(error.orig):
            raise DatabaseAway("The database is away.", mend="Nothing was changed; retry when it is back.") from error
        raise explain_error(place(engine), error, waited=how_patient.get()) from error
    except sqlite3.Error as error:  # of what is asked of the driver itself, when a transaction begins
        raise StorageFailed(f"{place(engine)} can't be read: {error}.", mend="See 'habitus doctor'.") from error
    except sa.exc.TimeoutError:
        what = f"All {_size(engine)} connections to {place(engine)} have been in use for {BUSY_SECONDS} s."
        raise StorageFailed(what, mend="Retry, or start another process.") from None
    except OverflowError:
        raise StorageFailed("A number is too large for the database.", mend="Give a smaller one.") from None


def _size(engine: sa.Engine) -> int:
    return engine.pool.size() if isinstance(engine.pool, sa.QueuePool) else 1


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
