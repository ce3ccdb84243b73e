"""The gate between a candidate and a proposal: placebo can't pass, what helps does, and error is never spent twice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.evidence.bounds import ERROR
from habitus.improve.exam import exam_interval
from habitus.improve.gate import FEWEST_TASKS, Claim, Gate, GateVerdict, Tally, error_left, pair_rollouts
from habitus.tasks.rollouts import Rollout, TaskSplit


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
    assert gate.verdict(Tally()) is GateVerdict.OPEN
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


def rollouts(*went: tuple[str, int, str, str]) -> list[Rollout]:
    """Of a task in a round: how today's version and the candidate fared."""
    return [
        Rollout(run="r", side=TaskSplit.GATE, round=number, task=task, is_new=is_new, outcome=outcome)
        for task, number, *outcomes in went
        for is_new, outcome in zip((False, True), outcomes, strict=True)
    ]


@pytest.mark.req("IM-03")
def test_a_tally_counts_what_only_one_of_both_versions_passed_in_whole_rounds() -> None:
    made = rollouts(
        ("a", 0, "failed", "ok"),
        ("b", 0, "ok", "failed"),
        ("a", 1, "failed", "ok"),
        ("b", 1, "ok", "ok"),
        ("a", 2, "failed", "ok"),
        ("b", 2, "failed", "failed"),
        ("a", 3, "ok", "ok"),
        ("b", 3, "infra", "ok"),
    )
    made.append(replace(made[0], side=TaskSplit.EXAM, outcome="ok"))
    pairs = pair_rollouts(made, TaskSplit.GATE, ["b", "a"])
    assert [(pair.old.round, pair.old.task) for pair in pairs] == [(n, task) for n in range(3) for task in "ba"]
    counted = Tally.of(pairs)
    assert counted == Tally(better=3, same=2, worse=1)
    assert (counted.pairs, counted.difference) == (6, pytest.approx(1 / 3))
    assert (Tally().difference, Tally(better=1).difference, Tally(worse=1).difference) == (0, 1, -1)
    assert pair_rollouts(made, TaskSplit.GATE, []) == []


@pytest.mark.req("IM-03")
@pytest.mark.parametrize("number", [1, 2, 20])
def test_wins_in_a_row_are_accepted_once_their_bet_has_paid_what_the_error_asks_for(number: int) -> None:
    error = 0.05 * 6 / (math.pi * number) ** 2
    stake = math.sqrt(2 * math.log(1 / error) / (200 * 0.3))
    wins = math.ceil(math.log(1 / error) / math.log1p(stake))
    gate = Gate(tasks=20, number=number)
    assert gate.error == pytest.approx(error)
    assert gate.verdict(Tally(better=wins, same=20)) is GateVerdict.ACCEPTED
    assert gate.verdict(Tally(better=wins - 1, same=20)) is GateVerdict.OPEN


@pytest.mark.req("IM-03")
@pytest.mark.parametrize(
    ("rounds", "worse", "opens_at", "accepted_at"),
    [(1, 0, 0, 12), (1, 2, 1, 15), (2, 6, 5, 21), (3, 0, 3, 12), (5, 6, 10, 21), (8, 2, 11, 15), (9, 0, 11, 12)],
)
def test_racing_goes_on_only_with_what_can_still_be_shown(
    rounds: int, worse: int, opens_at: int, accepted_at: int
) -> None:
    """So many tasks must have become better after so many rounds, with this many worse ones."""
    gate, pairs = Gate(tasks=20), 20 * rounds
    verdicts = [
        gate.verdict(Tally(better=better, same=pairs - better - worse, worse=worse))
        for better in range(pairs - worse + 1)
    ]
    stopped, going_on = [GateVerdict.HOPELESS] * opens_at, [GateVerdict.OPEN] * (accepted_at - opens_at)
    assert verdicts == [*stopped, *going_on, *[GateVerdict.ACCEPTED] * (len(verdicts) - accepted_at)]


@pytest.mark.req("IM-03")
def test_few_tasks_show_only_what_is_large() -> None:
    shown = [Gate(tasks=tasks).smallest_effect for tasks in (3, FEWEST_TASKS, 20, 50)]
    assert shown == pytest.approx([0.264, 0.145, 0.102, 0.065], abs=5e-4)
    not_worse = [Gate(tasks=tasks, claim=Claim.NOT_WORSE).smallest_effect for tasks in (20, 50)]
    assert not_worse == pytest.approx([0.072, 0.035], abs=5e-4)
    assert Gate(tasks=1, number=20, rounds=1).smallest_effect == 1


@pytest.mark.req("IM-03")
@pytest.mark.parametrize(
    ("tally", "low", "high"),
    [
        (Tally(), -1, 1),
        (Tally(better=1), -1, 1),
        (Tally(same=20), -0.225, 0.225),
        (Tally(better=9, same=1), 0.25, 1),
        (Tally(better=30, same=60, worse=10), 0.031, 0.363),
        (Tally(better=5, same=45, worse=50), -0.602, -0.276),
        (Tally(better=500, worse=100), 0.568, 0.744),
    ],
)
def test_an_exam_has_an_interval_about_what_it_measured(tally: Tally, low: float, high: float) -> None:
    found = exam_interval(tally)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-3)
