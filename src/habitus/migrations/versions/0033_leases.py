"""Leases of jobs in their rows, and a table of the workers; heartbeats end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    op.drop_column("jobs", "beat")
    op.add_column("jobs", sa.Column("lease_until", sa.BigInteger, nullable=False, server_default="0"))
    op.create_table(
        "job_workers",
        sa.Column("name", sa.String, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in ("host", "started", "version")),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("pid", "seen_on")),
    )
    # Earlier workers would take every job of these for one of a dead worker.
    op.execute(f"INSERT INTO schema_compatibility VALUES ('{revision}', '{revision}')")
