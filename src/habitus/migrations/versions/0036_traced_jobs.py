"""The span that added a job, so that the job is part of its trace."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("traceparent", sa.String, nullable=False, server_default=""))
