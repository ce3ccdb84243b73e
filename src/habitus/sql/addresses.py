"""Places: where a database is, in which workspace, and how that is shown."""

from __future__ import annotations

import functools
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus.errors import Invalid, Refused

_SECRETS = ("password", "sslpassword")  # what an address may also name behind its question mark


def workspace_of(engine: sa.Engine) -> str:
    """The schema that an engine works in; empty for the one that a connection begins with."""
    return str(engine.get_execution_options().get("habitus_workspace", ""))


def key_of(engine: sa.Engine) -> tuple[sa.URL, str]:
    """The key that tells two databases, or two workspaces of one, apart."""
    return engine.url, workspace_of(engine)


def sqlite_url(path: Path) -> str:
    return sa.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def without_password(address: str) -> str:
    """An address as it may be kept: whoever uses it has the password from elsewhere."""
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):  # whatever is in it, is not said again
        raise Invalid("This is not a database address.", mend="Write postgresql://… or sqlite:///….") from None
    kept = sa.URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return kept.difference_update_query(_SECRETS).render_as_string(hide_password=False)


def place(engine: sa.Engine) -> str:
    """Where a database is, fit to be shown: a path, or an address without its password, and the workspace."""
    if engine.dialect.name == "sqlite":
        return str(engine.url.database or "the in-memory database")
    shown = engine.url.difference_update_query(_SECRETS).render_as_string(hide_password=True)
    return f"{shown} (workspace {workspace})" if (workspace := workspace_of(engine)) else shown


_BYTES = 63  # of a name
_NOWHERE = "-"  # in no workspace
_OLDER = sa.text(
    "SELECT COUNT(DISTINCT application_name) FROM pg_stat_activity WHERE datname = current_database() AND "
    "split_part(application_name, ' ', 1) = 'habitus' AND split_part(application_name, ' ', 2) < :schema AND "
    "split_part(application_name, ' ', 3) = :workspace"
)


def application_name(schema: str, workspace: str) -> str:
    """The name under which all see a process in pg_stat_activity."""
    return f"habitus {schema} {workspace or _NOWHERE} {os.getpid()}@{socket.gethostname()}"


def refuse_to_strand(connection: sa.Connection, schema: str, workspace: str, place: str) -> None:
    """Processes there whose code is of before that schema would only be in their own way."""
    count = connection.execute(_OLDER, {"schema": schema, "workspace": workspace or _NOWHERE}).scalar_one()
    if count:
        raise Refused(
            f"{count} older Habitus {'process uses' if count == 1 else 'processes use'} {place}, and could not go on "
            f"at schema {schema}; nothing was changed.",
            mend="Stop or upgrade them, or add --even-so: then they work from what they know and change nothing.",
        )


def connecting(url: sa.URL, name: str) -> dict[str, Any]:
    """How a connection is made, where its address does not say otherwise."""
    known = {
        "connect_timeout": 5,
        "tcp_user_timeout": 10_000,  # so that a cut line is noticed
        "fallback_application_name": name[:_BYTES],
        "prepare_threshold": None,  # a pooler may give every transaction another connection
    }
    return {option: value for option, value in known.items() if option not in url.query}


metadata = sa.MetaData()


def keys(kind: Any, *names: str) -> list[sa.Column[Any]]:
    """Columns of one kind that make up a primary key."""
    return [sa.Column(name, kind, primary_key=True) for name in names]


def columns(kind: Any, *names: str, default: str | None = None) -> list[sa.Column[Any]]:
    """Columns of one kind that are never empty."""
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


class Utc(sa.types.TypeDecorator[datetime]):
    """A moment as ISO 8601 text in UTC: reads the same in every database, and sorts by time."""

    impl = sa.String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> str | None:
        return None if value is None else _utc_text(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


@functools.lru_cache(maxsize=64)  # thousands of rows of one change bear one moment
def _utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
