"""Days: the requests of each day by how they went, the skills that were used then, and when each agent was heard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import sqlalchemy as sa

from habitus.events import OutcomeKind
from habitus.journal.model import NOT_REAL, Origin
from habitus.journal.tables import exposures, outcomes, turns


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    """Requests by how they went; `skills` are those used in conversations of that day, once for each."""

    day: date
    good: int = 0
    bad: int = 0
    unknown: int = 0
    skills: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.good + self.bad + self.unknown


def read_days(connection: sa.Connection, now: datetime, number: int) -> tuple[Day, ...]:
    """The last days, the oldest first, also those on which nothing was asked."""
    today = now.astimezone(UTC).date()
    all_days = [today - timedelta(days=back) for back in range(number - 1, -1, -1)]
    since = datetime.combine(all_days[0], datetime.min.time(), tzinfo=UTC)
    went: dict[date, dict[str, int]] = {day: {} for day in all_days}
    for began, kind in _requests(connection, since):
        counted = went.setdefault(began.astimezone(UTC).date(), {})
        counted[kind] = counted.get(kind, 0) + 1
    used: dict[date, list[str]] = {}
    for item, at in used_since(connection, since):
        used.setdefault(at.astimezone(UTC).date(), []).append(item)
    return tuple(Day(day=day, skills=tuple(used.get(day, ())), **went[day]) for day in all_days)


def _requests(connection: sa.Connection, since: datetime) -> list[tuple[datetime, str]]:
    """When each request began, and how it went by the judgement that counts."""
    is_asked = sa.and_(turns.c.started_on >= since, turns.c.source_type.not_in(NOT_REAL))
    judged = sa.select(outcomes.c.turn, outcomes.c.kind).join(turns, turns.c.id == outcomes.c.turn).where(is_asked)
    by_weight = judged.order_by(outcomes.c.weight, outcomes.c.at, outcomes.c.number)
    last = {row.turn: row.kind for row in connection.execute(by_weight)}  # the heaviest comes last
    names = {OutcomeKind.OK.value: "good", OutcomeKind.FAILED.value: "bad"}
    asked = connection.execute(sa.select(turns.c.id, turns.c.started_on).where(is_asked))
    return [(began, names.get(last.get(id, ""), "unknown")) for id, began in asked]


def used_since(connection: sa.Connection, since: datetime) -> Sequence[tuple[str, datetime]]:
    """Each use of a skill in a real conversation, and when."""
    table = exposures.c
    query = sa.select(table.item, table.at).where(table.kind == "skill", table.is_used, table.at >= since)
    return [(item, at) for item, at in connection.execute(query.where(table.origin == Origin.REAL.value))]


def last_heard(connection: sa.Connection) -> dict[str, datetime]:
    """By the kind of agent, when it asked for the last time."""
    query = sa.select(turns.c.source_type, sa.func.max(turns.c.started_on).label("last")).group_by(turns.c.source_type)
    rows = connection.execute(query.where(turns.c.source_type.not_in(NOT_REAL)))
    return {row.source_type: row.last for row in rows}
