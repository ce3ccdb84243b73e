"""Tasks by side, candidates and rollouts of `skills improve`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "improve_tasks",
        sa.Column("skill", sa.String, primary_key=True),
        sa.Column("task", sa.String, primary_key=True),
        sa.Column("side", sa.String(16), nullable=False),
    )
    op.create_table(
        "improve_candidates",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("skill", sa.String, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("run", sa.String, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("made_on", sa.String(32), nullable=False),
    )
    op.create_table(
        "improve_rollouts",
        sa.Column("id", sa.String, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in ("skill", "run", "candidate", "task")),
        *(sa.Column(name, sa.String(16), nullable=False) for name in ("side", "outcome")),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("round", "version", "steps")),
        *(sa.Column(name, sa.Boolean, nullable=False) for name in ("is_new", "is_opened", "is_followed")),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("dollars", sa.Float, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    op.create_index("improve_rollouts_by_skill", "improve_rollouts", ["skill"])


def downgrade() -> None:
    for table in ("improve_rollouts", "improve_candidates", "improve_tasks"):
        op.drop_table(table)
