"""The tables of memory, and how many lessons wait: without the records, for commands that only ask that."""

from __future__ import annotations

import sqlalchemy as sa

from habitus import sql
from habitus.sql import Utc, metadata

engrams = sa.Table(
    "engrams",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),  # JSON: everything else that is not counted
    sa.Column("frequency", sa.Integer, nullable=False),
    sa.Column("retrievals", sa.Integer, nullable=False),
    sa.Column("helpful", sa.Integer, nullable=False),
    sa.Column("last_retrieved", Utc),
    sa.Column("credited_on", Utc),
    sa.Column("ignored", sa.Integer, nullable=False),
    sa.Column("missed", sa.Integer, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("created_on", Utc, nullable=False),
    sa.Column("updated_on", Utc, nullable=False),
    sa.Index("engrams_by_revision", "revision"),
    sa.Index("engrams_by_state", "state"),
)

# How an engram was from a moment on, so that any moment can be returned to.
engram_versions = sa.Table(
    "engram_versions",
    metadata,
    sa.Column("engram", sa.String(16), sa.ForeignKey("engrams.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("definition", sa.Text, nullable=False),
    sa.Column("made_on", Utc, nullable=False),
    sa.Column("made_by", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Index("engram_versions_by_time", "made_on"),
)

# One row: grows with every change, so that a process sees by one number whether it is up to date.
memory_revision = sa.Table(
    "memory_revision",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
)

# What a view said when it was written, by the stamp it carries: what a person's edit is held against.
memory_views = sa.Table(
    "memory_views",
    metadata,
    sa.Column("view", sa.String(32), primary_key=True),
    sa.Column("stamp", sa.String(16), primary_key=True),
    sa.Column("lines", sa.LargeBinary, nullable=False),
    sa.Column("written_on", Utc, nullable=False),
)


def waiting_lessons(engine: sa.Engine, user: str) -> int:
    """How many wait for this person; every command asks, so it costs one count."""
    with sql.reading(engine) as connection:
        return int(connection.execute(_WAITING, {"user": user}).scalar_one())


_WAITING = sa.select(sa.func.count()).where(
    engrams.c.state == "waiting", sa.or_(engrams.c.scope != "user", engrams.c.owner == sa.bindparam("user"))
)
