"""What a job is: its kind, its parts and how far it has come; and what somebody writes to make a kind of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        """What the job came to."""
