"""The table of tools' health."""

from __future__ import annotations

import sqlalchemy as sa

from habitus.sql import Utc, metadata

# How the code stage of a skill fares in use; `place` is its layer, or the folder of a project's layer.
tool_health = sa.Table(
    "tool_health",
    metadata,
    sa.Column("place", sa.String, primary_key=True),
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("code", sa.String(64), nullable=False, server_default=""),
    sa.Column("streak", sa.Integer, nullable=False, server_default="0"),
    sa.Column("degraded_on", Utc),
    sa.Column("curator_runs", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_failure", sa.Text, nullable=False, server_default=""),
    sa.Column("proved_as", sa.String(64), nullable=False, server_default=""),
    sa.Column("proved_on", Utc),
)
