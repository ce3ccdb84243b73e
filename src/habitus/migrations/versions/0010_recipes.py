"""How recipes fare: use, success and last use of each."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "recipe_counts",
        sa.Column("place", sa.String, primary_key=True),
        sa.Column("skill", sa.String, primary_key=True),
        sa.Column("recipe", sa.String, primary_key=True),
        sa.Column("used", sa.Integer, nullable=False, server_default="0"),
        sa.Column("succeeded", sa.Integer, nullable=False, server_default="0"),
        sa.Column("failed", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_used", sa.String(32)),
    )


def downgrade() -> None:
    op.drop_table("recipe_counts")
