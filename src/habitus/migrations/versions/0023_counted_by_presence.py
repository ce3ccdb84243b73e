"""Uses that were counted because a text stood in the prompt are marked, until they are counted anew."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.add_column("skill_counters", sa.Column("by_presence_until", sa.String(32)))
    counters = sa.table("skill_counters", *map(sa.column, ("stage", "used", "version", "by_presence_until")))
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    counted_here = (counters.c.stage == "steps", counters.c.used > 0, counters.c.version > 0)
    op.execute(counters.update().where(*counted_here).values(by_presence_until=now))


def downgrade() -> None:
    op.drop_column("skill_counters", "by_presence_until")
