"""Who switched a skill on or off, moved it to the archive or brought it back, as part of its history."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "skill_switches",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("skill", sa.Integer, sa.ForeignKey("skills.id"), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("made_on", sa.String(32), nullable=False),
    )
    op.create_index("skill_switches_by_skill", "skill_switches", ["skill", "id"])
    op.execute(
        "INSERT INTO skill_switches (skill, action, author, made_on)"
        " SELECT id, 'removed', archived_by, archived_on FROM skills WHERE archived_on IS NOT NULL"
    )


def downgrade() -> None:
    op.drop_table("skill_switches")
