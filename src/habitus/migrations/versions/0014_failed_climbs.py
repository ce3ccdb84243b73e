"""Trials that kept something from its next stage."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "failed_climbs",
        sa.Column("item", sa.String, primary_key=True),
        sa.Column("stage", sa.String(16), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("tried_on", sa.String(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("failed_climbs")
