"""The health of tools: pure rules for when one is degraded, recovers or is retired, and the table that stores it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from habitus import sql
from habitus.events import Outcome, OutcomeKind

# One failure may be bad luck; three in a row without a success is a pattern.
FAILURES_IN_A_ROW = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolHealthRecord:
    """The health of one tool's code; new code starts anew."""

    # The fingerprint of the code that was counted.
    code: str = ""
    streak: int = 0  # failures in a row
    degraded_on: datetime | None = None
    # Curations that found it degraded.
    curator_runs: int = 0
    last_failure: str = ""
    # The fingerprint under which its cases last passed.
    proved_as: str = ""
    proved_on: datetime | None = None

    def is_degraded(self, code: str) -> bool:
        """Whether this code is degraded."""
        return self.degraded_on is not None and self.code == code

    @property
    def degradation_reason(self) -> str:
        """The reason, in words that follow the tool's name."""
        if self.streak >= FAILURES_IN_A_ROW:
            return f"failed {self.streak} times in a row, last with: {self.last_failure.rstrip('.')}"
        return f"failed its own cases: {self.last_failure.rstrip('.')}"


def compute_health_after_call(health: ToolHealthRecord, code: str, outcome: Outcome, now: datetime) -> ToolHealthRecord:
    """Return the health after a call: success resets the streak, failure extends it, infrastructure counts
    for nothing.
    """
    if outcome.kind is OutcomeKind.INFRA:
        return health
    if health.code != code:
        health = ToolHealthRecord(code=code, proved_as=health.proved_as, proved_on=health.proved_on)
    if outcome.is_ok:
        return replace(health, streak=0, degraded_on=None, curator_runs=0)
    streak = health.streak + 1
    is_too_much = streak >= FAILURES_IN_A_ROW and health.degraded_on is None
    degraded_on = now if is_too_much else health.degraded_on
    return replace(health, streak=streak, degraded_on=degraded_on, last_failure=outcome.reason)


def compute_health_after_failed_cases(
    health: ToolHealthRecord, code: str, reason: str, now: datetime
) -> ToolHealthRecord:
    """Return the health after its cases failed: the code, its packages or the interpreter have changed."""
    if health.code != code:
        health = ToolHealthRecord(code=code, proved_as=health.proved_as, proved_on=health.proved_on)
    return replace(health, degraded_on=health.degraded_on or now, last_failure=reason)


def compute_health_after_passed_cases(health: ToolHealthRecord, code: str, now: datetime) -> ToolHealthRecord:
    """Return the health after its cases passed. That clears failed cases, but not a streak of failed calls."""
    is_answered = health.streak < FAILURES_IN_A_ROW
    degraded_on = None if is_answered else health.degraded_on
    return replace(health, proved_as=code, proved_on=now, degraded_on=degraded_on)


def compute_health_after_curation(health: ToolHealthRecord) -> ToolHealthRecord:
    """Return the health after a curation that found it degraded."""
    return replace(health, curator_runs=health.curator_runs + 1)


def find_retirement_reason(
    health: ToolHealthRecord, now: datetime, *, fails_its_cases: bool, most_days: int, most_curator_runs: int
) -> str:
    """Return why a degraded tool should be retired; "" if it should stay or is not degraded."""
    if health.degraded_on is None:
        return ""
    if fails_its_cases:
        return "degraded, and it fails its own cases"
    if now - health.degraded_on >= timedelta(days=most_days):
        return f"degraded for {most_days} days"
    if health.curator_runs >= most_curator_runs:
        return f"degraded through {most_curator_runs} runs of the curator"
    return ""


# How the code stage of a skill fares in use; `place` is its layer, or the folder of a project's layer.
tool_health = sa.Table(
    "tool_health",
    sql.metadata,
    *sql.build_primary_key_columns(sa.String, "place", "name"),
    sa.Column("code", sa.String(64), nullable=False, server_default=""),
    sa.Column("streak", sa.Integer, nullable=False, server_default="0"),
    sa.Column("degraded_on", sql.UtcDateTime),
    sa.Column("curator_runs", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_failure", sa.Text, nullable=False, server_default=""),
    sa.Column("proved_as", sa.String(64), nullable=False, server_default=""),
    sa.Column("proved_on", sql.UtcDateTime),
)
# The fields are named like the columns.
_FIELDS = [field.name for field in dataclasses.fields(ToolHealthRecord)]


class ToolHealthStore:
    """Stores the health of tools, changed by pure functions under the write lock.

    `place` distinguishes the layers of several projects; `name` is that of the skill.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def list_all(self) -> dict[tuple[str, str], ToolHealthRecord]:
        """Return the health of all tools by place and name."""
        with sql.read_transaction(self._engine) as conn:
            rows = conn.execute(sa.select(tool_health)).mappings()
            return {(row["place"], row["name"]): ToolHealthRecord(**{f: row[f] for f in _FIELDS}) for row in rows}

    def get_stored_or_fresh_record(self, place: str, name: str) -> ToolHealthRecord:
        """Return the health of one tool; a fresh one if nothing is stored."""
        return self.list_all().get((place, name), ToolHealthRecord())

    def update_health(
        self, place: str, name: str, change: Callable[[ToolHealthRecord], ToolHealthRecord]
    ) -> ToolHealthRecord:
        """Apply a pure function to the stored health under the lock and return the result."""
        key = {"place": place, "name": name}
        mine = (tool_health.c.place == place, tool_health.c.name == name)
        with sql.write_transaction(self._engine, lock="tool_health") as conn:
            sql.insert_missing_rows(conn, tool_health, [key])
            row = conn.execute(sa.select(tool_health).where(*mine)).mappings().one()
            before = ToolHealthRecord(**{field: row[field] for field in _FIELDS})
            after = change(before)
            if after != before:
                values = {field: getattr(after, field) for field in _FIELDS}
                conn.execute(tool_health.update().where(*mine).values(values))
        return after
