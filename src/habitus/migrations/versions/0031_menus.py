"""Menus by digest: a turn keeps what differs from its menu, a conversation one row for its steady exposures.

Rows that were written before stay as they are; they are read beside the new ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"

_INDEXES = {
    "turn_menus": {"by_user": "user"},
    "menu_exposures": {"by_turn": "turn", "by_user": "user", "by_time": "at"},
}


def upgrade() -> None:
    op.add_column("turns", sa.Column("menu", sa.String, nullable=False, server_default=""))
    op.create_table(
        "turn_menus",
        sa.Column("digest", sa.String, primary_key=True),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("stored_on", sa.String(32), nullable=False),
        sa.Column("entries", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "menu_exposures",
        *(sa.Column(name, sa.String, primary_key=True) for name in ("unit", "menu")),
        *(sa.Column(name, sa.String, nullable=False) for name in ("turn", "user", "request_kind")),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("withheld", sa.Text, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
    )
    for table, indexes in _INDEXES.items():
        for name, column in indexes.items():
            op.create_index(f"{table}_{name}", table, [column])
    # Earlier code would count only the exposures that have rows of their own.
    op.execute(f"INSERT INTO schema_compatibility VALUES ('{revision}', '{revision}')")
    if op.get_bind().dialect.name == "postgresql":
        mine = 'habitus_may("user")'
        for table in _INDEXES:
            op.execute(f"CREATE POLICY of_user ON {table} USING ({mine}) WITH CHECK ({mine})")
            op.execute(f"CREATE POLICY counted ON {table} FOR SELECT USING (true)")
            op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
            op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
