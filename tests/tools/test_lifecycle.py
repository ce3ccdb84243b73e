"""Decisions about a tool in use: laws that hold for any sequence of calls."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.events import OK, Outcome, failed, infra
from habitus.tools.lifecycle import Health, after_call, after_curator, reason_to_retire

pytestmark = pytest.mark.req("SB-08")

NOW = datetime(2026, 5, 4, tzinfo=UTC)
BAD, ODD = failed("bad day"), infra("no sandbox")
CALLS = st.lists(st.sampled_from([OK, BAD, ODD]))


def _after(calls: list[Outcome], health: Health = Health(), code: str = "a") -> Health:  # noqa: B008  # frozen
    for number, outcome in enumerate(calls):
        health = after_call(health, code, outcome, NOW + timedelta(seconds=number))
    return health


@given(CALLS)
def test_degraded_is_three_failures_since_the_last_ok_whatever_went_wrong_around_it(calls: list[Outcome]) -> None:
    counted = [outcome for outcome in calls if outcome is not ODD]
    streak = next((n for n, outcome in enumerate(reversed(counted)) if outcome is OK), len(counted))
    health = _after(calls)
    assert health.streak == streak
    assert health.is_degraded("a") is (streak >= 3)
    assert _after([*calls, ODD]) == health


@given(CALLS)
def test_an_ok_brings_it_back_and_other_code_starts_anew(calls: list[Outcome]) -> None:
    assert not _after([*calls, OK]).is_degraded("a")
    assert not _after(calls).is_degraded("b")
    assert _after([BAD], _after(calls), code="b").streak == 1


def test_it_is_degraded_since_the_third_failure_not_the_last() -> None:
    assert _after([BAD] * 9).degraded_on == NOW + timedelta(seconds=2)


def test_retiring_takes_failed_cases_or_seven_days_or_three_curators() -> None:
    health = _after([BAD] * 3)
    since = health.degraded_on
    assert since is not None
    assert reason_to_retire(health, since, fails_its_cases=False) == ""
    assert "own cases" in reason_to_retire(health, since, fails_its_cases=True)
    almost, due = since + timedelta(days=7, seconds=-1), since + timedelta(days=7)
    assert reason_to_retire(health, almost, fails_its_cases=False) == ""
    assert "7 days" in reason_to_retire(health, due, fails_its_cases=False)
    twice = after_curator(after_curator(health))
    assert reason_to_retire(twice, since, fails_its_cases=False) == ""
    assert "3 runs" in reason_to_retire(after_curator(twice), since, fails_its_cases=False)
    healthy = replace(health, degraded_on=None)
    assert reason_to_retire(healthy, due, fails_its_cases=True) == ""
