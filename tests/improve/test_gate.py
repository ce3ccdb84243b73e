"""The gate between a candidate and a proposal: placebo can't pass, what helps does, and error is never spent twice."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.evidence.bounds import ERROR
from habitus.improve.exam import compute_pass_rate_difference_interval, is_exam_passed
from habitus.improve.gate import (
    FEWEST_TASKS,
    MOST_CANDIDATES,
    GateHypothesis,
    GateRule,
    GateVerdict,
    RolloutPairCounts,
    compute_remaining_error_share,
    compute_sign_flip_p_value,
    pair_complete_rounds,
)
from habitus.tasks.rollouts import Rollout, TaskSplit


@pytest.mark.req("IM-03")
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.integers(1, 30))
def test_no_bet_on_what_helps_some_tasks_and_hurts_others_as_much_is_worth_more_than_its_stake(
    effects: list[float], number: int
) -> None:
    """The mean of the capital after a round is exact here: each task's difference is 1, -1 or 0."""
    centred = np.clip(np.array(effects) - max(0, np.mean(effects)), -1, 1)
    centred -= max(0.0, float(np.mean(centred)))
    gate = GateRule(tasks=len(effects), number=number)
    ways = [RolloutPairCounts()]
    chances = [1.0]
    for effect in centred:
        ways = [
            RolloutPairCounts(better=one.better + (d > 0), worse=one.worse + (d < 0))
            for one in ways
            for d in (1.0, -1.0)
        ]
        chances = [chance * (1 + d * effect) / 2 for chance in chances for d in (1.0, -1.0)]
    capitals = [math.exp(gate.compute_log_evidence(one)) for one in ways]
    assert sum(c * p for c, p in zip(capitals, chances, strict=True)) <= 1 + 1e-9


@pytest.mark.req("IM-03")
def test_the_first_candidate_has_a_third_of_the_error_29_more_share_the_rest_and_then_tasks_are_needed() -> None:
    errors = [GateRule(tasks=20, number=number).allowed_error for number in range(1, 2001)]
    assert errors[0] == pytest.approx(0.3 * ERROR)
    assert errors[1:MOST_CANDIDATES] == pytest.approx([0.7 / 29 * ERROR] * 29)
    assert sum(errors) == pytest.approx(ERROR)
    assert errors[MOST_CANDIDATES:] == [0.0] * (2000 - MOST_CANDIDATES)
    assert [compute_remaining_error_share(tried) for tried in (0, 30, 99)] == pytest.approx([1, 0, 0])
    assert GateRule(tasks=500, number=30).problem == ""
    spent = GateRule(tasks=500, number=31)
    assert spent.problem == "30 candidates were tried on these gate tasks, and their error is spent"
    assert spent.smallest_effect == 1
    assert spent.fewest_tasks == 501
    assert spent.explain_shortage_of_tasks(GateVerdict.NOT_SHOWN, RolloutPairCounts()) == spent.problem


def tally(*gains: int, rounds: int = 2, is_repeated: bool = False) -> RolloutPairCounts:
    """Of tasks that got better or worse in so many rounds each, and are the same in the others."""
    better, worse = sum(one for one in gains if one > 0), -sum(one for one in gains if one < 0)
    same = rounds * len(gains) - better - worse
    return RolloutPairCounts(better=better, same=same, worse=worse, gains=list(gains), is_repeated=is_repeated)


@pytest.mark.req("IM-03")
def test_what_is_better_every_time_is_accepted_and_what_changes_nothing_is_not_shown() -> None:
    gate = GateRule(tasks=20)
    assert gate.decide_verdict(tally(*[1] * 20, rounds=1)) is GateVerdict.ACCEPTED
    assert gate.decide_verdict(tally(*[1, 1, 1, -1, -1, -1], *[0] * 14, rounds=1)) is GateVerdict.OPEN
    assert gate.decide_verdict(tally(*[3, -3] * 10, rounds=10)) is GateVerdict.NOT_SHOWN
    assert gate.decide_verdict(tally(*[-1] * 10, *[0] * 10, rounds=1)) is GateVerdict.HOPELESS


@pytest.mark.req("IM-03")
def test_ten_repeats_of_one_task_are_one_piece_of_evidence() -> None:
    """One task of eight that flips in all of nine rounds was accepted when every rollout counted alone."""
    gate, two = GateRule(tasks=8), tally(10, 10, *[0] * 6, rounds=10)
    assert gate.is_claim_shown_on_gate_tasks(tally(10, *[0] * 7, rounds=10))
    assert gate.is_claim_shown_on_gate_tasks(two)
    assert gate.decide_verdict(two) is GateVerdict.NOT_SHOWN
    assert gate.explain_shortage_of_tasks(GateVerdict.NOT_SHOWN, two) == (
        "it shows on these tasks, but on too few of them: more tasks are needed"
    )
    assert gate.decide_verdict(tally(*[5] * 8, rounds=10)) is GateVerdict.ACCEPTED


@pytest.mark.req("IM-03")
def test_two_rounds_that_agree_on_every_task_end_the_gate() -> None:
    gate = GateRule(tasks=20)
    six = tally(*[2] * 6, *[0] * 14, is_repeated=True)
    assert gate.decide_verdict(six) is GateVerdict.REPEATED
    assert gate.explain_shortage_of_tasks(GateVerdict.REPEATED, six).endswith("more tasks are needed")
    assert gate.decide_verdict(tally(*[2] * 6, *[0] * 14)) is GateVerdict.OPEN
    assert gate.decide_verdict(tally(*[2] * 7, *[0] * 13, is_repeated=True)) is GateVerdict.ACCEPTED
    assert gate.decide_verdict(tally(*[2] * 7, -2, *[0] * 12, is_repeated=True)) is GateVerdict.REPEATED


@pytest.mark.req("IM-03")
@given(st.lists(st.integers(-4, 4), max_size=10))
def test_the_test_over_tasks_counts_all_signs(gains: list[int]) -> None:
    sums = [sum(s * abs(g) for s, g in zip(signs, gains, strict=True)) for signs in product((-1, 1), repeat=len(gains))]
    assert compute_sign_flip_p_value(gains) == pytest.approx(sum(one >= sum(gains) for one in sums) / len(sums))


@pytest.mark.req("IM-03")
def test_what_one_candidate_passes_with_the_twentieth_does_not() -> None:
    seen = tally(*[2] * 8, *[0] * 12, is_repeated=True)
    assert GateRule(tasks=20).decide_verdict(seen) is GateVerdict.ACCEPTED
    assert GateRule(tasks=20, number=20).decide_verdict(seen) is GateVerdict.REPEATED


@pytest.mark.req("IM-03")
def test_not_worse_by_three_points_takes_many_tasks_and_one_that_is_lost_entirely_counts() -> None:
    gate = GateRule(tasks=160, claim=GateHypothesis.NOT_WORSE)
    assert gate.fewest_tasks == 158
    assert gate.problem == ""
    assert gate.decide_verdict(tally(*[0] * 160, is_repeated=True)) is GateVerdict.ACCEPTED
    assert gate.decide_verdict(tally(*[0] * 159, -2, is_repeated=True)) is GateVerdict.REPEATED
    few = GateRule(tasks=20, claim=GateHypothesis.NOT_WORSE)
    assert few.problem == (
        "to show that a version is not worse by 3 points takes 158 gate tasks or more, and there are 20"
    )
    assert GateRule(tasks=6).problem == "to show that one is better takes 7 gate tasks or more, and there are 6"
    assert GateRule(tasks=9, number=2).problem.startswith("to show that one is better takes 11 gate tasks")


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
    pairs = pair_complete_rounds(made, TaskSplit.GATE, ["b", "a"])
    assert [(pair.old.round, pair.old.task) for pair in pairs] == [(n, task) for n in range(3) for task in "ba"]
    counted = RolloutPairCounts.from_pairs(pairs)
    assert counted == RolloutPairCounts(better=3, same=2, worse=1, gains=[-1, 3])
    assert (counted.pairs, counted.rounds) == (6, 3)
    assert RolloutPairCounts.from_pairs(pairs[:2] * 2) == RolloutPairCounts(
        better=2, worse=2, gains=[-2, 2], is_repeated=True
    )
    assert RolloutPairCounts.from_pairs(pairs[:2]) == RolloutPairCounts(
        better=1, worse=1, gains=[-1, 1]
    )  # one round repeats nothing
    assert RolloutPairCounts.from_pairs([*pairs[2:4], *pairs[:2], *pairs[:2]]).is_repeated
    assert not RolloutPairCounts.from_pairs([*pairs[:2], *pairs[:2], *pairs[2:4]]).is_repeated
    assert pair_complete_rounds(made, TaskSplit.GATE, []) == []


@pytest.mark.req("IM-03")
@pytest.mark.parametrize("number", [1, 2, 20])
def test_wins_are_evidence_on_these_tasks_once_their_bet_has_paid_what_the_error_asks_for(number: int) -> None:
    error = 0.05 * (0.3 if number == 1 else 0.7 / 29)
    stake = math.sqrt(2 * math.log(1 / error) / (200 * 0.3))
    wins = math.ceil(math.log(1 / error) / math.log1p(stake))
    gate = GateRule(tasks=20, number=number)
    assert gate.is_claim_shown_on_gate_tasks(RolloutPairCounts(better=wins, same=20))
    assert not gate.is_claim_shown_on_gate_tasks(RolloutPairCounts(better=wins - 1, same=20))


@pytest.mark.req("IM-03")
def test_racing_goes_on_only_with_what_can_still_be_shown() -> None:
    gate = GateRule(tasks=20)

    def first_open(rounds: int, worse: int) -> int:
        """So many pairs must have become better after so many rounds, with this many worse ones."""
        pairs = 20 * rounds
        found = [
            bool(
                gate.is_acceptance_hopeless(RolloutPairCounts(better=better, same=pairs - better - worse, worse=worse))
            )
            for better in range(pairs - worse + 1)
        ]
        assert found == sorted(found, reverse=True)
        return found.index(False)

    assert [first_open(rounds, worse) for rounds, worse in ((1, 4), (3, 6), (5, 10), (8, 10), (9, 0))] == [
        0,
        3,
        11,
        21,
        12,
    ]


@pytest.mark.req("IM-03")
def test_few_tasks_show_only_what_is_large() -> None:
    shown = [GateRule(tasks=tasks).smallest_effect for tasks in (7, FEWEST_TASKS, 20, 80)]
    assert shown == sorted(shown, reverse=True)
    assert shown == pytest.approx([0.190, 0.159, 0.112, 0.056], abs=5e-4)
    assert GateRule(tasks=20, number=2).smallest_effect > GateRule(tasks=20).smallest_effect
    assert GateRule(tasks=1, number=20, rounds=1).smallest_effect == 1


@pytest.mark.req("IM-03")
@pytest.mark.parametrize(
    ("means", "low", "high"),
    [
        ([0.0] * 4, -0.66, 0.66),
        ([0.0] * 10, -0.271, 0.271),
        ([0.2] * 10, -0.079, 0.479),
        ([1.0] * 10, 0.633, 1.0),
        ([-1.0, *[0.0] * 19], -0.216, 0.116),
        ([0.1] * 40, 0.032, 0.168),
    ],
)
def test_an_exam_has_an_interval_over_its_tasks(means: list[float], low: float, high: float) -> None:
    found = compute_pass_rate_difference_interval(means)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-3)
    assert found.low <= np.mean(means) <= found.high


@pytest.mark.req("IM-03")
@pytest.mark.parametrize(("tasks", "quantile"), [(4, 2.5678), (10, 2.2009), (20, 2.0796), (40, 2.0195)])
def test_an_exams_interval_is_students_with_two_tasks_more(tasks: int, quantile: float) -> None:
    """The quantiles are those of the tables, but for four tasks the expansion's, 0.1 % below."""
    means = [0.02 * (number % 5 - 2) for number in range(tasks)]
    width = quantile * np.std([*means, 1, -1], ddof=1) / math.sqrt(tasks + 2)
    found = compute_pass_rate_difference_interval(means)
    assert (found.low, found.high) == pytest.approx((np.mean(means) - width, np.mean(means) + width), abs=2e-5)
    assert (
        compute_pass_rate_difference_interval([1.0] * 4).high,
        compute_pass_rate_difference_interval([-1.0] * 4).low,
    ) == (1.0, -1.0)


@pytest.mark.req("IM-03")
def test_an_exam_is_passed_above_zero_and_for_a_shorter_version_within_the_margin() -> None:
    assert [is_exam_passed(found, GateHypothesis.BETTER) for found in (-0.01, 0.0, 0.01)] == [False, False, True]
    assert [is_exam_passed(found, GateHypothesis.NOT_WORSE) for found in (-0.04, -0.03, 0.0)] == [False, False, True]
