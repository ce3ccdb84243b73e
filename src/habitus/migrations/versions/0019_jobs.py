"""Jobs, and the parts of them that are done."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    words = ("worker", "model", "user", "host")
    counts = ("attempt", "beat", "not_before", "stuck_at", "failures", "deaths")
    op.create_table(
        "jobs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("given", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        *(sa.Column(name, sa.String, nullable=False, server_default="") for name in words),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in counts),
        sa.Column("plan", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("added_on", sa.BigInteger, nullable=False),
        sa.Column("changed_on", sa.BigInteger, nullable=False),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "priority", "added_on"])
    op.create_table(
        "job_parts",
        sa.Column("job", sa.String, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("result", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("job_parts")
    op.drop_table("jobs")
