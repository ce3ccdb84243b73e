"""Lessons that a person took out have a state of their own, not only a reason that says so."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_BY_PERSON = """ AND definition LIKE '%"reason": "removed by %'"""


def upgrade() -> None:
    for table in ("engrams", "engram_versions"):
        op.execute(f"UPDATE {table} SET state = 'removed' WHERE state = 'archived'{_BY_PERSON}")
