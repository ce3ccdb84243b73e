"""The gate between a candidate and a proposal: placebo can't pass, what helps does, and error is never spent twice."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.evidence.bounds import ERROR
from habitus.improve.exam import exam_interval
from habitus.improve.gate import Claim, Gate, GateVerdict, Tally, error_left


@pytest.mark.req("IM-03")
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.integers(1, 30))
def test_no_bet_on_what_helps_some_tasks_and_hurts_others_as_much_is_worth_more_than_its_stake(
    effects: list[float], number: int
) -> None:
    """The mean of the capital after a round is exact here: each task's difference is 1, -1 or 0."""
    centred = np.clip(np.array(effects) - max(0, np.mean(effects)), -1, 1)
    centred -= max(0.0, float(np.mean(centred)))
    gate = Gate(tasks=len(effects), number=number)
    ways = [Tally()]
    chances = [1.0]
    for effect in centred:
        ways = [Tally(better=one.better + (d > 0), worse=one.worse + (d < 0)) for one in ways for d in (1.0, -1.0)]
        chances = [chance * (1 + d * effect) / 2 for chance in chances for d in (1.0, -1.0)]
    capitals = [math.exp(gate.capital(one)) for one in ways]
    assert sum(c * p for c, p in zip(capitals, chances, strict=True)) <= 1 + 1e-9


@pytest.mark.req("IM-03")
def test_the_error_of_all_candidates_together_stays_within_what_is_promised() -> None:
    errors = [Gate(tasks=20, number=number).error for number in range(1, 2001)]
    assert sum(errors) < ERROR
    assert error_left(0) == 1
    assert error_left(2000) == pytest.approx(1 - sum(errors) / ERROR)


@pytest.mark.req("IM-03")
def test_what_is_better_every_time_is_accepted_and_what_changes_nothing_is_not_shown() -> None:
    gate = Gate(tasks=20)
    assert gate.verdict(Tally(better=20)) is GateVerdict.ACCEPTED
    assert gate.verdict(Tally(better=3, same=14, worse=3)) is GateVerdict.OPEN
    assert gate.verdict(Tally(better=30, same=140, worse=30)) is GateVerdict.NOT_SHOWN
    assert gate.verdict(Tally(same=10, worse=10)) is GateVerdict.HOPELESS


@pytest.mark.req("IM-03")
def test_what_one_candidate_passes_with_the_twentieth_does_not() -> None:
    seen = Tally(better=17, same=21, worse=2)
    assert Gate(tasks=20).verdict(seen) is GateVerdict.ACCEPTED
    assert Gate(tasks=20, number=20).verdict(seen) is GateVerdict.OPEN


@pytest.mark.req("IM-03")
def test_a_shorter_version_passes_where_hardly_anything_differs_and_not_where_it_loses() -> None:
    gate = Gate(tasks=20, claim=Claim.NOT_WORSE)
    assert gate.verdict(Tally(same=200)) is GateVerdict.ACCEPTED
    assert gate.verdict(Tally(better=4, same=180, worse=16)) is GateVerdict.NOT_SHOWN
    assert Gate(tasks=20).verdict(Tally(same=200)) is GateVerdict.NOT_SHOWN


@pytest.mark.req("IM-03")
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_accepted_is_what_the_interval_says(better: int, same: int, worse: int) -> None:
    tally = Tally(better=better, same=same, worse=worse)
    gate = Gate(tasks=18)
    found = gate.interval(tally)
    assert found.low - 1e-5 <= tally.difference <= found.high + 1e-5
    if abs(found.low) > 1e-4:
        assert bool(gate.is_shown(tally)) == (found.low > 0)


@pytest.mark.req("IM-03")
def test_few_tasks_show_only_what_is_large() -> None:
    assert Gate(tasks=3).smallest_effect > 0.2 > Gate(tasks=20).smallest_effect > Gate(tasks=50).smallest_effect


@pytest.mark.req("IM-03")
def test_an_exam_has_an_interval_about_what_it_measured() -> None:
    found = exam_interval(Tally(better=30, same=60, worse=10))
    assert 0 < found.low < 0.2 < found.high
    assert exam_interval(Tally(better=5, same=45, worse=50)).high < 0
