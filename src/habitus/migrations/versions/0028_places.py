"""The exact place that a skill was imported from, beside its origin in words."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.add_column("skill_imports", sa.Column("place", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("skill_imports", "place")
