"""The exam: an accepted candidate on tasks that were never used for it, looked at once."""

from __future__ import annotations

from habitus.evidence.bounds import ERROR
from habitus.improve.gate import Interval, Tally, best_stake, interval


def exam_interval(tally: Tally) -> Interval:
    """Return the difference on the exam's tasks at 95 %."""
    return interval(tally, (best_stake(tally.pairs, ERROR / 2),), error=ERROR / 2)


def is_failed(found: Interval) -> bool:
    """Whether the candidate does worse on tasks that it never met."""
    return found.high < 0
