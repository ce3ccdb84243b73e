"""Exposures of a turn are found by its conversation, and those of a user by reading all: two indexes less per row."""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    for table, index in (
        ("exposures", "exposures_by_turn"),
        ("exposures", "exposures_by_user"),
        ("menu_exposures", "menu_exposures_by_turn"),
    ):
        op.drop_index(index, table_name=table)
