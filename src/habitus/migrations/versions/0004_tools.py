"""How tools fare in use: failures in a row, since when they are degraded, and what their cases last proved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tool_health",
        sa.Column("place", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("code", sa.String(64), nullable=False, server_default=""),
        sa.Column("streak", sa.Integer, nullable=False, server_default="0"),
        sa.Column("degraded_on", sa.String(32)),
        sa.Column("curator_runs", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_failure", sa.Text, nullable=False, server_default=""),
        sa.Column("proved_as", sa.String(64), nullable=False, server_default=""),
        sa.Column("proved_on", sa.String(32)),
    )
