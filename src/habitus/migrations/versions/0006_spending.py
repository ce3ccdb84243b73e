"""What learning spends, and which turns of transcripts it has learned from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "learning_spending",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("is_told", sa.Boolean, nullable=False),
    )
    op.create_table(
        "learned_turns",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("how", sa.String(16), primary_key=True),
        sa.Column("learned_on", sa.String(32), nullable=False),
    )
