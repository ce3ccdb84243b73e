"""Jobs are seen and changed by those who left them, on PostgreSQL by the database's own rule."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"

_SEEN_BY = {"jobs": 'habitus_may("user")', "job_parts": "EXISTS (SELECT 1 FROM jobs WHERE jobs.id = job)"}


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, who in _SEEN_BY.items():
        op.execute(f"CREATE POLICY of_user ON {table} USING ({who}) WITH CHECK ({who})")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in _SEEN_BY:
        op.execute(f"DROP POLICY of_user ON {table}")
        op.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY")
