"""Places: where a database is, in which workspace, and how that is shown."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from habitus.errors import Invalid

_SECRETS = ("password", "sslpassword")  # what an address may also name behind its question mark


def workspace_of(engine: sa.Engine) -> str:
    """The schema that an engine works in; empty for the one that a connection begins with."""
    return str(engine.get_execution_options().get("habitus_workspace", ""))


def key_of(engine: sa.Engine) -> tuple[sa.URL, str]:
    """What tells two databases, or two workspaces of one, apart."""
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
