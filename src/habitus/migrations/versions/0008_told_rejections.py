"""Proposals that were turned down remember whether the agent was told why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("skill_proposals", sa.Column("told_on", sa.String(32)))
    op.execute("UPDATE skill_proposals SET told_on = decided_on WHERE state = 'rejected'")


def downgrade() -> None:
    op.drop_column("skill_proposals", "told_on")
