"""When the worker that has a job began with it, and how many parts were done by then."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("begun_on", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("begun_at", sa.BigInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("jobs", "begun_at")
    op.drop_column("jobs", "begun_on")
