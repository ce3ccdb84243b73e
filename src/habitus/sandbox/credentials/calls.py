"""The log of command lines: who called which skill with what, what it was given, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta

import sqlalchemy as sa

from habitus import sql
from habitus.events import Outcome, OutcomeKind
from habitus.sandbox.credentials.model import Call

calls = sa.Table(
    "skill_calls",
    sql.metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("called_on", sql.Utc, nullable=False),
    sa.Column("who", sa.String, nullable=False),
    sa.Column("skill", sa.String, nullable=False),
    sa.Column("arguments", sa.Text, nullable=False),  # JSON
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("is_refused", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("secrets", sa.Text, nullable=False),  # JSON: names
    sa.Index("skill_calls_by_time", "called_on"),
)

_LONGEST = 2_000  # characters of an argument or a reason that are kept


class Calls:
    """Nothing secret is kept: `redacted` stands before arguments and reasons."""

    def __init__(self, engine: sa.Engine, *, redacted: Callable[[str], str], kept_for: timedelta) -> None:
        self._engine = engine
        self._redacted = redacted
        self._kept_for = kept_for

    def record(self, call: Call) -> None:
        row = {
            "called_on": call.when,
            "who": call.who,
            "skill": self._clean(call.skill),
            "arguments": json.dumps([self._clean(argument) for argument in call.arguments], ensure_ascii=False),
            "outcome": call.outcome.kind.value,
            "reason": self._clean(call.outcome.reason),
            "is_refused": call.is_refused,
            "secrets": json.dumps(call.secrets),
        }
        with sql.writing(self._engine) as connection:
            connection.execute(calls.insert(), [row])
            connection.execute(calls.delete().where(calls.c.called_on < call.when - self._kept_for))

    def list(self, *, since: datetime | None = None, limit: int = 200) -> tuple[Call, ...]:
        """The newest first."""
        query = sa.select(calls).order_by(calls.c.id.desc()).limit(limit)
        if since is not None:
            query = query.where(calls.c.called_on >= since)
        with sql.reading(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(
            Call(
                who=row["who"],
                skill=row["skill"],
                arguments=tuple(json.loads(row["arguments"])),
                outcome=Outcome(kind=OutcomeKind(row["outcome"]), reason=row["reason"]),
                is_refused=row["is_refused"],
                secrets=tuple(json.loads(row["secrets"])),
                when=row["called_on"],
            )
            for row in rows
        )

    def _clean(self, text: str) -> str:
        clean = self._redacted(text)
        return clean if len(clean) <= _LONGEST else f"{clean[:_LONGEST]}…"
