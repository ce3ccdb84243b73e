"""Requests that carry a key, with what was answered, so that one sent twice is done once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "answered_requests",
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("asked", sa.String, nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("asked_on", sa.String(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("answered_requests")
