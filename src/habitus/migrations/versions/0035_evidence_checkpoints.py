"""Cached evidence sums up to several points in time, so that a late judgement leaves the older ones."""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    # Caches of the layout before; the first row goes on counting their resets.
    op.execute("DELETE FROM evidence_sums WHERE id <> 1")
    op.execute("UPDATE evidence_sums SET until = NULL, sums = NULL")
    # Earlier code would leave sums that its judgements change.
    op.execute(f"INSERT INTO schema_compatibility VALUES ('{revision}', '{revision}')")
