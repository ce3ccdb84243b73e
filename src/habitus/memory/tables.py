"""The tables of memory, and the count of pending lessons, for commands that need nothing else."""

from __future__ import annotations

import sqlalchemy as sa

from habitus import sql
from habitus.sql import UtcDateTime, build_optional_columns, build_primary_key_columns, build_required_columns, metadata

engrams = sa.Table(
    "engrams",
    metadata,
    *build_primary_key_columns(sa.String(16), "id"),
    *build_required_columns(sa.BigInteger, "revision"),
    *build_required_columns(sa.String(16), "state", "kind", "scope"),
    *build_required_columns(sa.Text, "owner", "text"),
    # JSON with everything that is neither counted nor a column of its own.
    sa.Column("definition", sa.Text, nullable=False),
    *build_required_columns(sa.Integer, "frequency", "retrievals", "helpful", "ignored", "missed", "version"),
    *build_optional_columns(UtcDateTime, "last_retrieved", "credited_on"),
    *build_required_columns(UtcDateTime, "created_on", "updated_on"),
    sa.Index("engrams_by_revision", "revision"),
    sa.Index("engrams_by_state", "state"),
)

# Every version of every engram, which allows a rollback to any point in time.
engram_versions = sa.Table(
    "engram_versions",
    metadata,
    sa.Column("engram", sa.String(16), sa.ForeignKey("engrams.id", ondelete="CASCADE"), primary_key=True),
    *build_primary_key_columns(sa.Integer, "number"),
    *build_required_columns(sa.String(16), "state", "kind", "scope"),
    *build_required_columns(sa.Text, "owner", "text", "definition", "made_by", "reason"),
    *build_required_columns(UtcDateTime, "made_on"),
    sa.Index("engram_versions_by_time", "made_on"),
)

# One row, raised by every change: comparing one number shows whether a process is up to date.
memory_revision = sa.Table(
    "memory_revision",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    *build_required_columns(sa.BigInteger, "revision"),
)

# The renderings of the pages by stamp, against which a person's edits are compared.
memory_views = sa.Table(
    "memory_views",
    metadata,
    *build_primary_key_columns(sa.String(32), "view"),
    *build_primary_key_columns(sa.String(16), "stamp"),
    *build_required_columns(sa.LargeBinary, "lines"),
    *build_required_columns(UtcDateTime, "written_on"),
)


def count_pending_lessons(engine: sa.Engine, user: str) -> int:
    """Count the lessons pending review by this user, in a single query because every command asks."""
    with sql.read_transaction(engine) as conn:
        return int(conn.execute(_WAITING, {"user": user}).scalar_one())


_WAITING = sa.select(sa.func.count()).where(
    engrams.c.state == "pending", sa.or_(engrams.c.scope != "user", engrams.c.owner == sa.bindparam("user"))
)
