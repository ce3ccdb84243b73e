"""When somebody who may sign in was last there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("sign_ins", sa.Column("seen_on", sa.String(32)))


def downgrade() -> None:
    op.drop_column("sign_ins", "seen_on")
