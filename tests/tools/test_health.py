"""Decisions about a tool in use: laws that hold for any sequence of calls."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.events import OK, Outcome, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.settings import RetentionSettings
from habitus.tools.health import (
    ToolHealthRecord,
    compute_health_after_call,
    compute_health_after_curation,
    find_retirement_reason,
)

pytestmark = pytest.mark.req("SB-08")

NOW = datetime(2026, 5, 4, tzinfo=UTC)
BAD, ODD = build_failed_outcome("bad day"), build_infrastructure_failure_outcome("no sandbox")
CALLS = st.lists(st.sampled_from([OK, BAD, ODD]))


def _after(calls: list[Outcome], health: ToolHealthRecord = ToolHealthRecord(), code: str = "a") -> ToolHealthRecord:  # noqa: B008  # frozen
    for number, outcome in enumerate(calls):
        health = compute_health_after_call(health, code, outcome, NOW + timedelta(seconds=number))
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


def _reason(health: ToolHealthRecord, now: datetime, *, fails_its_cases: bool = False) -> str:
    default = RetentionSettings()
    return find_retirement_reason(
        health,
        now,
        fails_its_cases=fails_its_cases,
        most_days=default.degraded_tool_days,
        most_curator_runs=default.degraded_tool_curator_runs,
    )


def test_retiring_takes_failed_cases_or_seven_days_or_three_curators() -> None:
    health = _after([BAD] * 3)
    since = health.degraded_on
    assert since is not None
    assert _reason(health, since) == ""
    assert "own cases" in _reason(health, since, fails_its_cases=True)
    almost, due = since + timedelta(days=7, seconds=-1), since + timedelta(days=7)
    assert _reason(health, almost) == ""
    assert "7 days" in _reason(health, due)
    twice = compute_health_after_curation(compute_health_after_curation(health))
    assert _reason(twice, since) == ""
    assert "3 runs" in _reason(compute_health_after_curation(twice), since)
    healthy = replace(health, degraded_on=None)
    assert _reason(healthy, due, fails_its_cases=True) == ""
