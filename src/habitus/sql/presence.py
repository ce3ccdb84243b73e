"""Presence on a server: how connections introduce themselves to it, and whom of them a migration would strand."""

from __future__ import annotations

import os
import socket
from typing import Any

import sqlalchemy as sa

from habitus.errors import Refused

_BYTES = 63  # of a name
_NOWHERE = "-"  # in no workspace
_OLDER = sa.text(
    "SELECT COUNT(DISTINCT application_name) FROM pg_stat_activity WHERE datname = current_database() AND "
    "split_part(application_name, ' ', 1) = 'habitus' AND split_part(application_name, ' ', 2) < :schema AND "
    "split_part(application_name, ' ', 3) = :workspace"
)


def introduced(schema: str, workspace: str) -> str:
    """What all see of a process in pg_stat_activity."""
    return f"habitus {schema} {workspace or _NOWHERE} {os.getpid()}@{socket.gethostname()}"


def refuse_to_strand(connection: sa.Connection, schema: str, workspace: str, place: str) -> None:
    """Processes there whose code is of before that schema would only be in their own way."""
    count = connection.execute(_OLDER, {"schema": schema, "workspace": workspace or _NOWHERE}).scalar_one()
    if count:
        raise Refused(
            f"{count} older Habitus {'process uses' if count == 1 else 'processes use'} {place}, and could not go on "
            f"at schema {schema}; nothing was changed.",
            mend="Stop or upgrade them, or say --even-so: then they work from what they know and change nothing.",
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
