"""Jobs, their handlers, and the pure rules for choosing the next job and for failures and dead workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol


class JobState(StrEnum):
    """The states of a job."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    # Failed, or lost its workers, too often; runs again only when a person retries it.
    DEAD_LETTERED = "dead-lettered"

    @property
    def is_over(self) -> bool:
        """False while the job is pending or running."""
        return self not in (JobState.PENDING, JobState.RUNNING)


class JobPriority(StrEnum):
    """The priority of a job."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def order(self) -> int:
        """The number stored in the database; lower runs first."""
        return list(JobPriority).index(self) + 1

    @classmethod
    def from_order(cls, order: int) -> JobPriority:
        """Return the priority of a stored number; numbers out of range get the nearest one."""
        return list(cls)[min(max(order, 1), len(cls)) - 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job with its arguments, state and progress."""

    id: str
    kind: str
    arguments: Mapping[str, Any]
    state: JobState
    priority: JobPriority = JobPriority.NORMAL
    # Parts that are done.
    parts_done: int = 0
    # Parts in total; None before they are planned.
    parts_total: int | None = None
    result: Any = None
    # Why it failed, or the last error before a retry.
    reason: str = ""
    # What a pending job waits for; empty for any other.
    waits_for: str = ""
    worker: str = ""
    # The only host whose workers can run it; empty for any.
    host: str = ""
    added_on: datetime | None = None
    # When its last worker claimed it.
    begun_on: datetime | None = None
    # Parts done by then.
    parts_done_at_start: int = 0
    changed_on: datetime | None = None
    # When a failed part is retried.
    not_before: datetime | None = None


def explain_wait(host: str, *, has_worker: bool) -> str:
    """Return what a pending job waits for that only `host` can run, or any host if that is empty."""
    if host:
        return f"a process of the home {host}, which alone has what it needs"
    return "its turn" if has_worker else "a worker: none is running"


class JobHandler(Protocol):
    """Handles one kind of job. Arguments, parts and results are JSON, because another process may continue the job.

    A UserError ends the job; any other error is retried later. A job with a `tokens` argument ends early once the
    `tokens` of its results add up to that, and any job ends early when a result says `is_spent`.
    """

    def plan_parts(self, arguments: Mapping[str, Any]) -> Sequence[Any]:
        """Return the parts in order. Called once: a worker that takes the job over runs the same parts."""

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        """Run one part; `before` contains the results of the earlier parts.

        A process can die after the effect and before the result is recorded. The part then runs again with the same
        key, which must not cause the effect twice.
        """

    def summarize_results(self, results: Sequence[Any]) -> Any:
        """Return the result of the job from the results of its parts."""


# Attempts at one part that fail, or whose worker dies, before the job is dead-lettered.
MAX_ATTEMPTS = 5
# Delay before the first retry; each further one is longer by the backoff factor.
FIRST_RETRY_DELAY_S = 2.0
_BACKOFF_FACTOR = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobConcurrencyKeys:
    """The keys by which jobs are limited (model and user), and the only host that can run the job; empty for none."""

    model: str = ""
    user: str = ""
    host: str = ""


NO_CONCURRENCY_KEYS = JobConcurrencyKeys()


@dataclass(frozen=True, kw_only=True, slots=True)
class JobConcurrencyLimits:
    """The number of jobs that may run at a time on all hosts together; 0 means no limit."""

    per_model: int = 0
    per_user: int = 0


def choose_startable_job_ids(
    waiting: Sequence[tuple[str, JobConcurrencyKeys]],
    running: Sequence[JobConcurrencyKeys],
    *,
    max_count: int,
    limits: JobConcurrencyLimits,
) -> tuple[str, ...]:
    """Return the ids of the jobs that may start now, in order; a job at its limit lets later ones pass."""
    models, users = Counter(each.model for each in running), Counter(each.user for each in running)
    taken: list[str] = []
    for id, lanes in waiting:
        if len(taken) >= max_count:
            break
        if _is_key_at_concurrency_limit(models, lanes.model, limits.per_model):
            continue
        if _is_key_at_concurrency_limit(users, lanes.user, limits.per_user):
            continue
        taken.append(id)
        models[lanes.model] += 1
        users[lanes.user] += 1
    return tuple(taken)


def _is_key_at_concurrency_limit(running: Counter[str], lane: str, limit: int) -> bool:
    return bool(lane) and limit > 0 and running[lane] >= limit


@dataclass(frozen=True, kw_only=True, slots=True)
class JobFailureStreak:
    """The failures of a job since its last progress; `at` is the number of parts that were done then."""

    at: int = 0
    failures: int = 0
    deaths: int = 0
    reason: str = ""

    @property
    def attempts(self) -> int:
        """The attempts since the last progress, whether they failed or their worker died."""
        return self.failures + self.deaths

    @property
    def is_exhausted(self) -> bool:
        """True when the job must not be retried automatically any more."""
        return self.attempts >= MAX_ATTEMPTS

    def get_retry_delay_s(self, first_s: float) -> float:
        """Return the seconds until the next retry, which grow with each failure."""
        return first_s * _BACKOFF_FACTOR ** (self.failures - 1) if self.failures else 0.0

    def with_one_more_failure(self, reason: str, *, at: int) -> JobFailureStreak:
        """Return the streak with one more failed attempt."""
        before = self._reset_after_progress(at)
        told = f"{reason} (try {before.attempts + 1} of {MAX_ATTEMPTS})"
        return replace(before, failures=before.failures + 1, reason=told)

    def with_one_more_dead_worker(self, worker: str, *, at: int) -> JobFailureStreak:
        """Return the streak with one more dead worker."""
        before = self._reset_after_progress(at)
        told = f"worker {worker} died with it ({before.attempts + 1} of {MAX_ATTEMPTS})"
        return replace(before, deaths=before.deaths + 1, reason=told)

    def _reset_after_progress(self, at: int) -> JobFailureStreak:
        """Return this streak, or a new one if the job has made progress since."""
        return self if self.at == at else JobFailureStreak(at=at)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobLease:
    """The lease of a running job as it was read: a renewal or another claim makes it another one."""

    id: str
    worker: str
    attempt: int
    until: int


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePollSnapshot:
    """The leases that ended, the kinds of jobs that are waiting, and the seconds until a lease ends or a job is due."""

    ended_leases: frozenset[JobLease]
    waiting_kinds: frozenset[str]
    next_event_s: float
