"""Where PostgreSQL is shared by many hosts: word of every change."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

_TOLD = ("sequences", "agent_skills", "memory_revision")


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    op.execute(
        "CREATE OR REPLACE FUNCTION habitus_tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "PERFORM pg_notify('habitus_' || md5(TG_TABLE_SCHEMA), TG_TABLE_NAME); RETURN NULL; END $$"
    )
    for table in _TOLD:
        op.execute(
            f"CREATE TRIGGER {table}_told AFTER INSERT OR UPDATE OR DELETE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION habitus_tell()"
        )


def downgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in _TOLD:
        op.execute(f"DROP TRIGGER {table}_told ON {table}")
    op.execute("DROP FUNCTION habitus_tell()")
