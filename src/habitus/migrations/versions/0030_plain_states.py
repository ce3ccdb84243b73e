"""States in plain words: what was waiting is pending, a parked job is dead-lettered, a carried proposal is applied."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

_PENDING = {"waiting": "pending"}
_STATES = {
    "skill_proposals": {**_PENDING, "carrying": "applying"},
    "engrams": _PENDING,
    "engram_versions": _PENDING,
    "jobs": {**_PENDING, "parked": "dead-lettered"},
}


def upgrade() -> None:
    for table, states in _STATES.items():
        rows = sa.table(table, sa.column("state"))
        for old, new in states.items():
            op.execute(rows.update().where(rows.c.state == old).values(state=new))
    # Earlier code does not know these states.
    op.execute(f"INSERT INTO schema_compatibility VALUES ('{revision}', '{revision}')")
