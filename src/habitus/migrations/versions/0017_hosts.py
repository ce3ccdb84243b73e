"""Proposals for a directory of one host, which every host that shares the database can decide.

Older code would take them for its own directories: it is refused where hosts share a PostgreSQL.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_TABLE = "skill_proposals"


def upgrade() -> None:
    op.add_column(_TABLE, sa.Column("host", sa.String, nullable=False, server_default=""))
    op.add_column(_TABLE, sa.Column("root", sa.Text, nullable=False, server_default=""))
    op.add_column(_TABLE, sa.Column("base", sa.Text))
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            f"CREATE TRIGGER {_TABLE}_told AFTER INSERT OR UPDATE OR DELETE ON {_TABLE} "
            "FOR EACH STATEMENT EXECUTE FUNCTION habitus_tell()"
        )
        op.execute("INSERT INTO schema_compatibility VALUES ('0017', '0017')")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DELETE FROM schema_compatibility WHERE revision = '0017'")
        op.execute(f"DROP TRIGGER {_TABLE}_told ON {_TABLE}")
    with op.batch_alter_table(_TABLE) as table:
        for column in ("base", "root", "host"):
            table.drop_column(column)
