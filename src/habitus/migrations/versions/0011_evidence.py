"""Evidence: exposures and outcomes that outlive their turns, without any text.

What was kept with the turns counted the recalled as shown; nothing can be estimated from it, so it goes.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("turn_exposures")
    op.create_table(
        "exposures",
        sa.Column("unit", sa.String, primary_key=True),
        sa.Column("is_steady", sa.Boolean, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("item", sa.String, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("turn", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("is_offered", sa.Boolean, nullable=False),
        sa.Column("propensity", sa.Float, nullable=False),
        sa.Column("request_kind", sa.String, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("is_used", sa.Boolean, nullable=False),
        sa.Column("is_ignored", sa.Boolean, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    op.create_index("exposures_by_item", "exposures", ["kind", "item"])
    op.create_index("exposures_by_turn", "exposures", ["turn"])
    op.create_index("exposures_by_user", "exposures", ["user"])
    op.create_table(
        "lasting_outcomes",
        sa.Column("turn", sa.String, primary_key=True),
        sa.Column("source", sa.String, primary_key=True),
        sa.Column("unit", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("caller_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("began_on", sa.String(32), nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    op.create_index("lasting_outcomes_by_unit", "lasting_outcomes", ["unit"])
    op.create_index("lasting_outcomes_by_caller", "lasting_outcomes", ["caller_id"])
    op.create_index("lasting_outcomes_by_user", "lasting_outcomes", ["user"])
    op.create_table(
        "evidence_seed",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("seed", sa.String, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("evidence_seed")
    op.drop_table("lasting_outcomes")
    op.drop_table("exposures")
    op.create_table(
        "turn_exposures",
        sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("item", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("shown", sa.Boolean, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("propensity", sa.Float, nullable=False),
    )
    op.create_index("turn_exposures_by_item", "turn_exposures", ["kind", "item"])
