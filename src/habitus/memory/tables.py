"""The tables of memory, and how many lessons wait: without the records, for commands that only ask that."""

from __future__ import annotations

import sqlalchemy as sa

from habitus import sql
from habitus.sql import Utc, columns, keys, metadata

engrams = sa.Table(
    "engrams",
    metadata,
    *keys(sa.String(16), "id"),
    *columns(sa.BigInteger, "revision"),
    *columns(sa.String(16), "state", "kind", "scope"),
    *columns(sa.Text, "owner", "text"),
    sa.Column("definition", sa.Text, nullable=False),  # JSON: everything else that is not counted
    *columns(sa.Integer, "frequency", "retrievals", "helpful", "ignored", "missed", "version"),
    sa.Column("last_retrieved", Utc),
    sa.Column("credited_on", Utc),
    *columns(Utc, "created_on", "updated_on"),
    sa.Index("engrams_by_revision", "revision"),
    sa.Index("engrams_by_state", "state"),
)

# How an engram was from a moment on, so that any moment can be returned to.
engram_versions = sa.Table(
    "engram_versions",
    metadata,
    sa.Column("engram", sa.String(16), sa.ForeignKey("engrams.id", ondelete="CASCADE"), primary_key=True),
    *keys(sa.Integer, "number"),
    *columns(sa.String(16), "state", "kind", "scope"),
    *columns(sa.Text, "owner", "text", "definition", "made_by", "reason"),
    *columns(Utc, "made_on"),
    sa.Index("engram_versions_by_time", "made_on"),
)

# One row: grows with every change, so that a process sees by one number whether it is up to date.
memory_revision = sa.Table(
    "memory_revision",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    *columns(sa.BigInteger, "revision"),
)

# What a view said when it was written, by the stamp it carries: what a person's edit is held against.
memory_views = sa.Table(
    "memory_views",
    metadata,
    *keys(sa.String(32), "view"),
    *keys(sa.String(16), "stamp"),
    *columns(sa.LargeBinary, "lines"),
    *columns(Utc, "written_on"),
)


def waiting_lessons(engine: sa.Engine, user: str) -> int:
    """How many wait for this person; every command asks, so it costs one count."""
    with sql.reading(engine) as connection:
        return int(connection.execute(_WAITING, {"user": user}).scalar_one())


_WAITING = sa.select(sa.func.count()).where(
    engrams.c.state == "waiting", sa.or_(engrams.c.scope != "user", engrams.c.owner == sa.bindparam("user"))
)
