"""Uses as facts, the kind of a judgement's source, and counters as a cache of both.

A success of steps that was booked before was a guess, so it becomes a use without feedback. Results of code and recipes
were exit codes; they stay, and the columns `*_before` let `doctor` tell them from what the facts say.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"

_INDEXES = {"by_turn": ["turn"], "by_item": ["item", "layer"], "by_user": ["user"], "by_time": ["at"]}
_COUNTS = ("weak_failures", "ran_without_error", "used_before", "succeeded_before", "failed_before")
# The sources that were written before, by the door that wrote them.
_SOURCES = {"signal": ("signal", "next turn"), "model": ("model",), "person": ("user",)}
_VALIDATORS = ("practice", "trial", "dream", "validator")


def upgrade() -> None:
    strings = [sa.Column(name, sa.String, nullable=False) for name in ("turn", "user", "item", "layer", "part")]
    shorts = [sa.Column(name, sa.String(16), nullable=False) for name in ("stage", "manner", "origin")]
    op.create_table(
        "uses",
        sa.Column("id", sa.String, primary_key=True),
        *strings,
        *shorts,
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("is_credited", sa.Boolean, nullable=False),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("result", sa.String(16)),
    )
    for name, columns in _INDEXES.items():
        op.create_index(f"uses_{name}", "uses", columns)
    for table in ("turn_outcomes", "lasting_outcomes"):
        op.add_column(table, sa.Column("source_kind", sa.String(16), nullable=False, server_default="program"))
        known = sa.table(table, sa.column("source"), sa.column("source_kind"))
        for kind, sources in {**_SOURCES, "validator": _VALIDATORS}.items():
            op.execute(known.update().where(known.c.source.in_(sources)).values(source_kind=kind))
    for name in _COUNTS:
        op.add_column("skill_counters", sa.Column(name, sa.Integer, nullable=False, server_default="0"))
    # Version 0 holds what another system counted; that stays as it was told.
    op.execute("UPDATE skill_counters SET succeeded = 0, failed = 0 WHERE stage = 'steps' AND version <> 0")
    # A text that only stood in the prompt was no use.
    op.execute("UPDATE skill_counters SET used = 0 WHERE by_presence_until IS NOT NULL AND version <> 0")
    op.execute(
        "UPDATE skill_counters SET used_before = used, succeeded_before = succeeded, failed_before = failed "
        "WHERE version <> 0"
    )
    for name in ("used", "succeeded", "failed"):
        op.add_column("recipe_counts", sa.Column(f"{name}_before", sa.Integer, nullable=False, server_default="0"))
    op.execute("UPDATE recipe_counts SET used_before = used, succeeded_before = succeeded, failed_before = failed")
    if op.get_bind().dialect.name == "postgresql":
        mine = 'habitus_may("user")'
        op.execute(f"CREATE POLICY of_user ON uses USING ({mine}) WITH CHECK ({mine})")
        op.execute("CREATE POLICY counted ON uses FOR SELECT USING (true)")
        op.execute("ALTER TABLE uses ENABLE ROW LEVEL SECURITY")
        op.execute("ALTER TABLE uses FORCE ROW LEVEL SECURITY")
