"""The journal: turns with their messages, events, selections, exposures and outcomes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def _of_turn(name: str, *columns: sa.Column[object]) -> None:
    turn = sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True)
    op.create_table(name, turn, sa.Column("number", sa.Integer, primary_key=True), *columns)


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("session", sa.String, nullable=False),
        sa.Column("caller_id", sa.String, nullable=False, server_default=""),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("source_type", sa.String, nullable=False),
        sa.Column("conversation", sa.String, nullable=False, server_default=""),
        sa.Column("reply_to", sa.String, nullable=False, server_default=""),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("usage", sa.Text, nullable=False),
        sa.Column("started_on", sa.String(32), nullable=False),
        sa.Column("ended_on", sa.String(32)),
    )
    op.create_index("turns_by_session", "turns", ["session", "started_on"])
    op.create_index("turns_by_conversation", "turns", ["conversation", "started_on"])
    op.create_index("turns_by_caller", "turns", ["caller_id"])
    op.create_index("turns_by_time", "turns", ["started_on"])
    _of_turn(
        "turn_messages",
        sa.Column("role", sa.String, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    _of_turn(
        "turn_events",
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("severity", sa.Integer, nullable=False),
        sa.Column("round_idx", sa.Integer, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    _of_turn(
        "turn_selections",
        sa.Column("name", sa.String, nullable=False),
        sa.Column("layer", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("place", sa.String, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    _of_turn(
        "turn_exposures",
        sa.Column("item", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("shown", sa.Boolean, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("propensity", sa.Float, nullable=False),
    )
    op.create_index("turn_exposures_by_item", "turn_exposures", ["kind", "item"])
    _of_turn(
        "turn_outcomes",
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    op.create_table(
        "seen_skills",
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("hashes", sa.Text, nullable=False),
        sa.Column("seen_on", sa.String(32), nullable=False),
    )
