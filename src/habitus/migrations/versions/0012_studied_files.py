"""Which transcripts were studied, as they were then, and what each session of them showed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "studied_files",
        sa.Column("file", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("studied_on", sa.String(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("studied_files")
