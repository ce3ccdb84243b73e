"""Jobs: the kind of each, its parts and how far it has come; and what somebody writes to make a kind of them.

The rules are here too, all pure: which job is next, and what becomes of one that failed or whose worker died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol


class JobState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PARKED = "parked"  # it failed, or its workers died, again and again; only a person lets it run once more

    @property
    def is_over(self) -> bool:
        return self not in (JobState.WAITING, JobState.RUNNING)


class Priority(StrEnum):
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def order(self) -> int:
        return list(Priority).index(self) + 1

    @classmethod
    def of(cls, order: int) -> Priority:
        return list(cls)[min(max(order, 1), len(cls)) - 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    id: str
    kind: str
    given: Mapping[str, Any]
    state: JobState
    priority: Priority = Priority.NORMAL
    done: int = 0  # parts
    of: int | None = None  # parts there are; nothing before they are planned
    result: Any = None
    reason: str = ""  # why it failed, or what went wrong the last time
    worker: str = ""
    host: str = ""  # the only one whose workers can do it
    added_on: datetime | None = None
    begun_on: datetime | None = None  # when its last worker took it
    begun_at: int = 0  # parts done by then
    changed_on: datetime | None = None
    not_before: datetime | None = None  # when what failed is tried again


class Work(Protocol):
    """One kind of job. What goes in and out is JSON, because it is kept between two processes.

    What a person could mend (a UserError) ends the job; any other error is tried again later. A job that was given
    `tokens` ends early when the `tokens` of its results are as many; so does one of whose results says `is_spent`.
    """

    def plan(self, given: Mapping[str, Any]) -> Sequence[Any]:
        """The parts, in their order. Planned once: who takes the job over does the same parts."""

    def do(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        """Do one part; `before` is what those before it came to. A process can die after the effect and
        before it is recorded, and then the part is done again: with the same key, which must not have the effect
        twice."""

    def sum_up(self, results: Sequence[Any]) -> Any:
        """The result of the job."""


MOST_TRIES = 5  # of one part, and workers that may die with it, before the job is parked
FIRST_WAIT_S = 2.0  # before a part that failed is tried again; each further wait is so much longer
_GROWTH = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes:
    """Lanes that a job shares with others, of which only so many may run at a time, and the only host that can do it;
    empty where there is none."""

    model: str = ""
    user: str = ""
    host: str = ""


ALONE = Lanes()


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How many jobs may run at a time on all hosts together; 0 is no limit."""

    per_model: int = 0
    per_user: int = 0


def choose_startable(
    waiting: Sequence[tuple[str, Lanes]], running: Sequence[Lanes], *, most: int, limits: Limits
) -> tuple[str, ...]:
    """The ids of those that may start now, in their order; one whose lane is full lets others pass."""
    models, users = Counter(each.model for each in running), Counter(each.user for each in running)
    taken: list[str] = []
    for id, lanes in waiting:
        if len(taken) >= most:
            break
        if _is_full(models, lanes.model, limits.per_model):
            continue
        if _is_full(users, lanes.user, limits.per_user):
            continue
        taken.append(id)
        models[lanes.model] += 1
        users[lanes.user] += 1
    return tuple(taken)


def _is_full(running: Counter[str], lane: str, limit: int) -> bool:
    return bool(lane) and limit > 0 and running[lane] >= limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """The failures of a job since it last got on; `at` is how many parts were done by then."""

    at: int = 0
    failures: int = 0
    deaths: int = 0
    reason: str = ""

    @property
    def is_too_much(self) -> bool:
        return max(self.failures, self.deaths) >= MOST_TRIES

    def wait_s(self, first_s: float) -> float:
        """Until it is tried again."""
        return first_s * _GROWTH ** (self.failures - 1) if self.failures else 0.0

    def after_failure(self, reason: str, *, at: int) -> Trouble:
        before = self._still_at(at)
        failures = before.failures + 1
        return replace(before, failures=failures, reason=f"{reason} (try {failures} of {MOST_TRIES})")

    def after_death(self, worker: str, *, at: int) -> Trouble:
        before = self._still_at(at)
        deaths = before.deaths + 1
        return replace(before, deaths=deaths, reason=f"worker {worker} died with it ({deaths} of {MOST_TRIES})")

    def _still_at(self, at: int) -> Trouble:
        """A job that got on meanwhile has done nothing wrong yet."""
        return self if self.at == at else Trouble(at=at)
