"""Which secrets and hosts skills were granted, and how their command lines were called."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "granted_credentials",
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("skill", sa.String, primary_key=True),
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("what", sa.String, primary_key=True),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("granted_on", sa.String(32), nullable=False),
        sa.Column("granted_by", sa.String, nullable=False),
    )
    op.create_table(
        "skill_calls",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("called_on", sa.String(32), nullable=False),
        sa.Column("who", sa.String, nullable=False),
        sa.Column("skill", sa.String, nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("is_refused", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("secrets", sa.Text, nullable=False),
    )
    op.create_index("skill_calls_by_time", "skill_calls", ["called_on"])


def downgrade() -> None:
    op.drop_table("skill_calls")
    op.drop_table("granted_credentials")
