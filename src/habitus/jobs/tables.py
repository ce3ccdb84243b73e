"""The tables of jobs: one row a job, and one for each of its parts that is done. Moments are milliseconds."""

from __future__ import annotations

import time

import sqlalchemy as sa

from habitus.sql import metadata

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("given", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("worker", sa.String, nullable=False, server_default=""),  # who has it, or had it last
    sa.Column("model", sa.String, nullable=False, server_default=""),
    sa.Column("user", sa.String, nullable=False, server_default=""),
    sa.Column("host", sa.String, nullable=False, server_default=""),
    # Counts up whenever it changes hands: whoever knows an older number writes in vain.
    sa.Column("attempt", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("beat", sa.BigInteger, nullable=False, server_default="0"),  # counts up while its worker lives
    sa.Column("not_before", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("stuck_at", sa.BigInteger, nullable=False, server_default="0"),  # parts done at the last trouble
    sa.Column("failures", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("deaths", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("plan", sa.Text),  # JSON: its parts, once they are planned
    sa.Column("result", sa.Text),  # JSON
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("added_on", sa.BigInteger, nullable=False),
    sa.Column("changed_on", sa.BigInteger, nullable=False),
    sa.Index("jobs_by_state", "state", "priority", "added_on"),
)

parts = sa.Table(
    "job_parts",
    metadata,
    sa.Column("job", sa.String, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("result", sa.Text, nullable=False),  # JSON
)


def is_shared(engine: sa.Engine) -> bool:
    """Whether other hosts work on it."""
    return engine.dialect.name == "postgresql"


def now_ms(engine: sa.Engine) -> sa.ColumnElement[int]:
    """By the clock of whoever keeps the jobs: those of the hosts differ."""
    if not is_shared(engine):
        return sa.literal(int(time.time() * 1000))
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)
