"""Accounts that an OpenID Connect provider vouches for: who they are there, and when it was last asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    op.add_column("sign_ins", sa.Column("subject", sa.String))
    op.add_column("sign_ins", sa.Column("provider_tokens", sa.String))
    op.add_column("sign_ins", sa.Column("checked_on", sa.String(32)))
