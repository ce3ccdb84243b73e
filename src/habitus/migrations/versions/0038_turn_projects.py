"""The project of a turn, below which the files lie that its request names."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    op.add_column("turns", sa.Column("project", sa.String, nullable=False, server_default=""))
