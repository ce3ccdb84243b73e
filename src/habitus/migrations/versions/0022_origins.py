"""Exposures and outcomes say where they come from: real requests, practice, trials or replays."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_TABLES = ("exposures", "lasting_outcomes")
# Turns may have gone: self-play names its sessions, and the judge of a trial has a name of its own.
_UNITS = {
    "trial": "unit IN (SELECT session FROM turns WHERE source_type = 'trial') "
    "OR unit IN (SELECT unit FROM lasting_outcomes WHERE source = 'trial')",
    "practice": "unit IN (SELECT session FROM turns WHERE source_type = 'dream') "
    "OR (unit LIKE 'dream-%' AND unit NOT IN (SELECT session FROM turns WHERE source_type <> 'dream'))",
}


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("origin", sa.String(16), nullable=False, server_default="real"))
    if op.get_bind().dialect.name == "postgresql":
        op.execute("SET LOCAL habitus.role = 'admin'")  # everybody's rows
    for table in _TABLES:
        for origin, which in _UNITS.items():
            op.execute(f"UPDATE {table} SET origin = '{origin}' WHERE {which}")


def downgrade() -> None:
    for table in _TABLES:
        op.drop_column(table, "origin")
