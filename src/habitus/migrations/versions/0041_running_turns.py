"""How far a running turn got, so that a process that doesn't run it can show and stop it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    op.create_table(
        "running_turns",
        sa.Column("turn", sa.String, sa.ForeignKey("turns.id", ondelete="CASCADE"), primary_key=True),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("began_at", "line_count")),
        sa.Column("reported_s", sa.Float, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False, server_default="") for name in ("lines", "requests")),
    )
    if op.get_bind().dialect.name == "postgresql":
        whose = "EXISTS (SELECT 1 FROM turns WHERE turns.id = turn)"
        op.execute(f"CREATE POLICY of_user ON running_turns USING ({whose}) WITH CHECK ({whose})")
        for what in ("ENABLE", "FORCE"):
            op.execute(f"ALTER TABLE running_turns {what} ROW LEVEL SECURITY")
