"""The host of a turn, which has the folder of its project."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    op.add_column("turns", sa.Column("host", sa.String, nullable=False, server_default=""))
