"""Rules of jobs, all pure: which one is next, and what becomes of one that failed or whose worker died."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_TRIES = 5  # of one part, and workers that may die with it, before the job is parked
FIRST_WAIT_S = 2.0  # before a part that failed is tried again; each further wait is so much longer
_GROWTH = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes:
    """What a job shares with others, of which only so many may run at a time, and the only host that can do it; empty
    where there is none."""

    model: str = ""
    user: str = ""
    host: str = ""


ALONE = Lanes()


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How many jobs may run at a time on all hosts together; 0 is no limit."""

    per_model: int = 0
    per_user: int = 0


def chosen(
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
    """What went wrong with a job since it last got on; `at` is how many parts were done by then."""

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
