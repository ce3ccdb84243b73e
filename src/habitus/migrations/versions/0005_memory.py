"""Memory: engrams with their history, and what their views last said."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "engrams",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("frequency", sa.Integer, nullable=False),
        sa.Column("retrievals", sa.Integer, nullable=False),
        sa.Column("helpful", sa.Integer, nullable=False),
        sa.Column("last_retrieved", sa.String(32)),
        sa.Column("credited_on", sa.String(32)),
        sa.Column("ignored", sa.Integer, nullable=False),
        sa.Column("missed", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("created_on", sa.String(32), nullable=False),
        sa.Column("updated_on", sa.String(32), nullable=False),
    )
    op.create_index("engrams_by_revision", "engrams", ["revision"])
    op.create_index("engrams_by_state", "engrams", ["state"])
    op.create_table(
        "engram_versions",
        sa.Column("engram", sa.String(16), sa.ForeignKey("engrams.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("definition", sa.Text, nullable=False),
        sa.Column("made_on", sa.String(32), nullable=False),
        sa.Column("made_by", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    op.create_index("engram_versions_by_time", "engram_versions", ["made_on"])
    op.create_table(
        "memory_revision",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memory_views",
        sa.Column("view", sa.String(32), primary_key=True),
        sa.Column("stamp", sa.String(16), primary_key=True),
        sa.Column("lines", sa.LargeBinary, nullable=False),
        sa.Column("written_on", sa.String(32), nullable=False),
    )
