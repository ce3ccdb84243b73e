"""Comparisons in use: changes that run beside the version before them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.create_table(
        "live_comparisons",
        *(sa.Column(name, sa.String, primary_key=True) for name in ("layer_key", "skill")),
        sa.Column("new", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        *(sa.Column(name, sa.String(32), nullable=False) for name in ("started_on", "changed_on")),
        sa.Column("ended_on", sa.String(32)),
        sa.Column("facts", sa.Text, nullable=False),
    )
    # Earlier code does not know the exposures of a change.
    op.execute(f"INSERT INTO schema_compatibility VALUES ('{revision}', '{revision}')")
