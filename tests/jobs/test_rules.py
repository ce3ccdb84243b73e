"""The pure rules of jobs: who is next, when trouble is too much, who is dead, and when something is due."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.jobs.model import (
    MAX_ATTEMPTS,
    JobConcurrencyKeys,
    JobConcurrencyLimits,
    JobFailureStreak,
    choose_startable_job_ids,
)
from habitus.jobs.schedule import Schedule, parse_schedule

_names = st.sampled_from(["", "a", "b"])
_lanes = st.lists(st.builds(JobConcurrencyKeys, model=_names, user=_names), max_size=12)
_limits = st.builds(JobConcurrencyLimits, per_model=st.integers(0, 3), per_user=st.integers(0, 3))


@given(_lanes, _lanes, st.integers(0, 6), _limits)
def test_limits_hold_and_nobody_who_could_start_is_passed_over(
    waiting: list[JobConcurrencyKeys], running: list[JobConcurrencyKeys], most: int, limits: JobConcurrencyLimits
) -> None:
    queue = [(str(number), lanes) for number, lanes in enumerate(waiting)]
    taken = {int(id) for id in choose_startable_job_ids(queue, running, max_count=most, limits=limits)}
    assert len(taken) <= most
    after = [*running, *(waiting[number] for number in sorted(taken))]

    def is_free(lanes: JobConcurrencyKeys) -> bool:
        models, users = Counter(each.model for each in after), Counter(each.user for each in after)
        return not any(
            lane and limit and count[lane] >= limit
            for lane, limit, count in ((lanes.model, limits.per_model, models), (lanes.user, limits.per_user, users))
        )

    for lane, limit, before, now in (
        ("model", limits.per_model, running, after),
        ("user", limits.per_user, running, after),
    ):
        counts, were = (Counter(getattr(each, lane) for each in some) for some in (now, before))
        assert all(not name or not limit or count <= max(limit, were[name]) for name, count in counts.items())
    if len(taken) < most:
        assert not any(is_free(lanes) for number, lanes in enumerate(waiting) if number not in taken)


def test_trouble_is_counted_anew_when_the_job_got_on() -> None:
    trouble = JobFailureStreak()
    for _ in range(MAX_ATTEMPTS - 1):
        trouble = trouble.with_one_more_failure("dead line", at=2)
    assert not trouble.is_exhausted
    mixed = trouble.with_one_more_dead_worker("w", at=2)
    assert (mixed.is_exhausted, mixed.reason) == (True, f"worker w died with it ({MAX_ATTEMPTS} of {MAX_ATTEMPTS})")
    assert trouble.with_one_more_dead_worker("w", at=3) == JobFailureStreak(
        at=3, deaths=1, reason=f"worker w died with it (1 of {MAX_ATTEMPTS})"
    )
    last = trouble.with_one_more_failure("dead line", at=2)
    assert last.is_exhausted
    waits = [JobFailureStreak(failures=number).get_retry_delay_s(2.0) for number in range(1, MAX_ATTEMPTS)]
    assert waits == [2.0, 10.0, 50.0, 250.0]


_SLOTS = ("hourly", "daily at 3", "daily at 23:30", "weekly on sunday at 3", "weekly")


@given(
    st.sampled_from(_SLOTS),
    st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    st.integers(-12, 14),
    st.integers(0, 14 * 24 * 3600),
)
def test_a_slot_is_the_last_until_the_next_and_has_one_key(text: str, now: datetime, offset: int, later: int) -> None:
    zone = timezone(timedelta(hours=offset))
    schedule = parse_schedule(text)
    assert schedule is not None
    last, coming = schedule.get_current_due_time(now, zone), schedule.get_next_due_time(now, zone)
    assert last.timestamp <= now < coming.timestamp
    assert last.key < coming.key
    then = now + timedelta(seconds=later)
    is_same = schedule.get_current_due_time(then, zone).key == last.key
    assert is_same == (then < coming.timestamp)


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("off", None),
        ("daily", Schedule()),
        ("weekly on sunday at 3:05", Schedule(weekday=6, at=datetime(2000, 1, 1, 3, 5).time())),
    ],
)
def test_schedules_are_read_as_they_are_written(text: str, schedule: Schedule | None) -> None:
    assert parse_schedule(text) == schedule
