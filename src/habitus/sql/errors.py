"""Translates database errors into messages with a hint, and limits the wait for a busy database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import sqlalchemy as sa

from habitus.errors import DatabaseUnavailable, StorageFailed
from habitus.sql.addresses import describe_database

# Matched against PostgreSQL's SQLSTATE, or against the message without one: SQLite has no states, and connection errors
# carry only text.
_KNOWN_ERRORS = (
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
_UNREACHABLE_PATTERN = r"^08|^53300|^57P|connection|resolve host|too many (clients|connections)|connection slots"
# Each layer of the driver puts its own name before the message.
_DRIVER_PREFIX = re.compile(r"^.*(?:connection failed|connection is bad|FATAL): *")


def translate_database_error(where: str, error: sa.exc.DBAPIError, *, waited: float) -> StorageFailed:
    """Translate a driver's error; `waited` is the time limit for a busy database, in seconds."""
    said = str(error.orig).strip().splitlines()[0].rstrip(".") if error.orig else str(error)
    known = getattr(error.orig, "sqlstate", None) or said
    for pattern, what, hint in _KNOWN_ERRORS:
        if re.search(pattern, known, re.IGNORECASE):
            filled = {
                "where": where,
                "said": _DRIVER_PREFIX.sub("", said),
                "waited": waited,
                "way_back": build_damaged_file_recovery_hint(where),
            }
            return StorageFailed(what.format(**filled), hint=hint.format(**filled))
    if re.search(_UNREACHABLE_PATTERN, known, re.IGNORECASE):
        said = said.removeprefix("connection is bad: ")
        return DatabaseUnavailable(
            f"The database is unreachable: {said}.", hint="Nothing was changed; run 'habitus doctor'."
        )
    return StorageFailed(f"{where}: {said}.", hint="Nothing was changed; run 'habitus doctor'.")


def build_damaged_file_recovery_hint(path: str) -> str:
    """Return the hint for recovering from a damaged database file."""
    name = Path(path).name
    return (
        f"Skills on disk and memory/*.md are not touched. Put a backup of {name} in its place, or save what can be "
        f"read (sqlite3 {name} .recover | sqlite3 saved.db) and use that, or move it away to start with empty "
        "counters, history and lessons."
    )


BUSY_TIMEOUT_S = 30

busy_timeout_s: ContextVar[float] = ContextVar("patience", default=BUSY_TIMEOUT_S)


@contextmanager
def limit_busy_wait(seconds: float) -> Iterator[None]:
    """Limit how long statements in this block wait for a busy database."""
    before = busy_timeout_s.set(seconds)
    try:
        yield
    finally:
        busy_timeout_s.reset(before)


@contextmanager
def translate_storage_errors(engine: sa.Engine) -> Iterator[None]:
    """Turn driver errors in this block into a StorageFailed that names the database and a hint."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        # The offline snapshot is read-only, so a failed write means that the real database is away.
        if engine.get_execution_options().get("habitus_stands_in") and "readonly" in str(error.orig):
            raise DatabaseUnavailable(
                "The database is unreachable.", hint="Nothing was changed; retry when it is back."
            ) from error
        raise translate_database_error(describe_database(engine), error, waited=busy_timeout_s.get()) from error
    # From the query that goes to the driver directly when a transaction begins.
    except sqlite3.Error as error:
        raise StorageFailed(
            f"{describe_database(engine)} can't be read: {error}.", hint="See 'habitus doctor'."
        ) from error
    except sa.exc.TimeoutError:
        pool = f"All {_get_pool_size(engine)} connections to {describe_database(engine)}"
        what = f"{pool} have been in use for {BUSY_TIMEOUT_S} s."
        raise StorageFailed(what, hint="Retry, or start another process.") from None
    except OverflowError:
        raise StorageFailed("A number is too large for the database.", hint="Give a smaller one.") from None


def _get_pool_size(engine: sa.Engine) -> int:
    return engine.pool.size() if isinstance(engine.pool, sa.QueuePool) else 1
