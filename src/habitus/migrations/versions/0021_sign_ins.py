"""People who may sign in, and the key that signs for them: known to every host."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_TABLES = ("sign_ins", "signing_keys")


def upgrade() -> None:
    op.create_table(
        "sign_ins",
        sa.Column("name", sa.String, primary_key=True),
        *(sa.Column(name, sa.String, nullable=False) for name in ("role", "link", "token")),
    )
    op.create_table(
        "signing_keys",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("key", sa.String, nullable=False),
    )
    if op.get_bind().dialect.name != "postgresql":
        return
    for table in _TABLES:  # every process lets people in; whom it lets in an admin says
        op.execute(f"CREATE POLICY known ON {table} FOR SELECT USING (true)")
        op.execute(f"CREATE POLICY of_admins ON {table} USING (habitus_may(NULL)) WITH CHECK (habitus_may(NULL))")
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE TRIGGER sign_ins_told AFTER INSERT OR UPDATE OR DELETE ON sign_ins "
        "FOR EACH STATEMENT EXECUTE FUNCTION habitus_tell()"
    )


def downgrade() -> None:
    for table in _TABLES:
        op.drop_table(table)
