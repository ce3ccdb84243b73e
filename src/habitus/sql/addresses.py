"""Database addresses and workspaces, connection options, and the column types that all tables share."""

from __future__ import annotations

import functools
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus.errors import Invalid, Refused

# Query parameters of an address that may contain a password.
_SECRET_QUERY_KEYS = ("password", "sslpassword")


def get_workspace_of_engine(engine: sa.Engine) -> str:
    """Return the PostgreSQL schema that an engine works in; empty for the connection's default."""
    return str(engine.get_execution_options().get("habitus_workspace", ""))


def get_database_key(engine: sa.Engine) -> tuple[sa.URL, str]:
    """Return a key that distinguishes databases, and workspaces of one database."""
    return engine.url, get_workspace_of_engine(engine)


def build_sqlite_url(path: Path) -> str:
    """Return the address of a SQLite file."""
    return sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def strip_password(address: str) -> str:
    """Return an address without its password, fit to be stored."""
    try:
        url = sa.make_url(address)
    # The driver's own message repeats the address, which may contain the password.
    except (sa.exc.ArgumentError, ValueError):
        raise Invalid("This is not a database address.", hint="Write postgresql://… or sqlite:///….") from None
    kept = sa.URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return kept.difference_update_query(_SECRET_QUERY_KEYS).render_as_string(hide_password=False)


def describe_database(engine: sa.Engine) -> str:
    """Describe where a database is: a path, or an address without its password, and the workspace."""
    if engine.dialect.name == "sqlite":
        return str(engine.url.database or "the in-memory database")
    shown = engine.url.difference_update_query(_SECRET_QUERY_KEYS).render_as_string(hide_password=True)
    return f"{shown} (workspace {workspace})" if (workspace := get_workspace_of_engine(engine)) else shown


# PostgreSQL truncates application names at this length.
_MAX_NAME_BYTES = 63
# Stands for "no workspace" in an application name.
_NO_WORKSPACE = "-"
_COUNT_OLDER_PROCESSES_QUERY = sa.text(
    "SELECT COUNT(DISTINCT application_name) FROM pg_stat_activity WHERE datname = current_database() AND "
    "split_part(application_name, ' ', 1) = 'habitus' AND split_part(application_name, ' ', 2) < :schema AND "
    "split_part(application_name, ' ', 3) = :workspace"
)


def build_application_name(schema: str, workspace: str) -> str:
    """Return the name under which this process appears in pg_stat_activity."""
    return f"habitus {schema} {workspace or _NO_WORKSPACE} {os.getpid()}@{socket.gethostname()}"


def refuse_if_older_processes_connected(conn: sa.Connection, schema: str, workspace: str, place: str) -> None:
    """Raise Refused if processes with code older than that schema are connected: they could not continue."""
    count = conn.execute(
        _COUNT_OLDER_PROCESSES_QUERY, {"schema": schema, "workspace": workspace or _NO_WORKSPACE}
    ).scalar_one()
    if count:
        raise Refused(
            f"{count} older Habitus {'process uses' if count == 1 else 'processes use'} {place}, and could not go on "
            f"at schema {schema}; nothing was changed.",
            hint="Stop or upgrade them, or add --force: then they work from what they know and change nothing.",
        )


def build_missing_connect_options(url: sa.URL, name: str) -> dict[str, Any]:
    """Return the connection options that the address itself does not set."""
    known = {
        "connect_timeout": 5,
        # Without it, a cut connection would go unnoticed for minutes.
        "tcp_user_timeout": 10_000,
        "fallback_application_name": name[:_MAX_NAME_BYTES],
        # A pooler may give every transaction another connection, which lacks the prepared statement.
        "prepare_threshold": None,
    }
    return {option: value for option, value in known.items() if option not in url.query}


metadata = sa.MetaData()


def build_primary_key_columns(kind: Any, *names: str) -> list[sa.Column[Any]]:
    """Return columns of one type that make up a primary key."""
    return [sa.Column(name, kind, primary_key=True) for name in names]


def build_required_columns(
    kind: Any, *names: str, default: str | sa.ColumnElement[bool] | None = None
) -> list[sa.Column[Any]]:
    """Return columns of one type that are never NULL."""
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


def build_optional_columns(kind: Any, *names: str) -> list[sa.Column[Any]]:
    """Return columns of one type that may be NULL."""
    return [sa.Column(name, kind) for name in names]


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A timestamp stored as ISO 8601 text in UTC: identical in every database, and sorted by time."""

    impl = sa.String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else _format_utc(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


# Thousands of rows of one change share one timestamp.
@functools.lru_cache(maxsize=64)
def _format_utc(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).isoformat(timespec="microseconds")
