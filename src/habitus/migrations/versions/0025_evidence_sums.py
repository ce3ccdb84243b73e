"""Sums of the evidence, so that not every exposure is read for every verdict."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.create_table(
        "evidence_sums",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("changes", sa.Integer, nullable=False),
        sa.Column("until", sa.String(32)),
        sa.Column("sums", sa.LargeBinary),
    )
    op.create_index("exposures_by_time", "exposures", ["at"])


def downgrade() -> None:
    op.drop_index("exposures_by_time", "exposures")
    op.drop_table("evidence_sums")
