"""Decisions about a skill: how far a stage can be relied on, and what follows."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.skills import lifecycle
from habitus.skills.lifecycle import LifecycleTransitionKind, UtilityAssessment
from habitus.skills.model import Stage
from habitus.use_counts import UsageCounts

COUNTS = st.integers(0, 3_000)


def reliability(succeeded: int, failed: int) -> float:
    return lifecycle.compute_success_rate_lower_bound(UsageCounts(succeeded=succeeded, failed=failed))


@pytest.mark.req("SK-06")
@given(st.integers(0, 100_000))
def test_only_successes_give_the_closed_form(count: int) -> None:
    """Beta(1 + n, 1) has the distribution function x**(n + 1)."""
    assert reliability(count, 0) == pytest.approx(0.1 ** (1 / (count + 1)), abs=1e-9)


@pytest.mark.req("SK-06")
@given(st.integers(0, 100_000))
def test_only_failures_give_the_closed_form(count: int) -> None:
    """Beta(1, 1 + n) has the distribution function 1 - (1 - x)**(n + 1)."""
    assert reliability(0, count) == pytest.approx(1 - 0.9 ** (1 / (count + 1)), abs=1e-9)


@pytest.mark.req("SK-06")
@given(st.integers(0, 60), st.integers(0, 60))
def test_small_counts_agree_with_the_binomial_sum(succeeded: int, failed: int) -> None:
    """For whole numbers the distribution function is the tail of a binomial distribution."""
    a, n = succeeded + 1, succeeded + failed + 1
    x = reliability(succeeded, failed)
    tail = math.fsum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
    assert tail == pytest.approx(0.1, abs=1e-8)


@pytest.mark.req("SK-06")
@pytest.mark.parametrize(
    ("succeeded", "failed"), [(10**6, 10**6), (10**6, 10**4), (10**4, 10**6), (3 * 10**5, 10**5), (10**9, 10**9)]
)
def test_large_counts_approach_the_normal_quantile(succeeded: int, failed: int) -> None:
    a, b = succeeded + 1, failed + 1
    mean = a / (a + b)
    deviation = math.sqrt(mean * (1 - mean) / (a + b + 1))
    assert reliability(succeeded, failed) == pytest.approx(mean - 1.2815515655 * deviation, abs=deviation / 50)


@pytest.mark.req("SK-06")
@given(COUNTS, COUNTS)
def test_a_success_never_lowers_and_a_failure_never_raises_it(succeeded: int, failed: int) -> None:
    now = reliability(succeeded, failed)
    assert 0 < now < 1
    assert reliability(succeeded + 1, failed) >= now
    assert reliability(succeeded, failed + 1) <= now


@pytest.mark.req("SK-06")
def test_nothing_known_is_little_trusted_and_use_alone_proves_nothing() -> None:
    assert lifecycle.compute_success_rate_lower_bound(UsageCounts()) == pytest.approx(0.1)
    assert lifecycle.compute_success_rate_lower_bound(UsageCounts(recommended=50, used=50)) == pytest.approx(0.1)


COUNTERS = st.builds(UsageCounts, succeeded=st.integers(0, 40), failed=st.integers(0, 40))
WORTHS = st.builds(
    UtilityAssessment, counters=COUNTERS, helps=st.booleans(), is_useless=st.booleans(), does_harm=st.booleans()
)


@pytest.mark.req("LA-04")
@given(WORTHS, st.booleans())
def test_what_a_bound_proves_comes_before_how_uses_went(worth: UtilityAssessment, is_verified: bool) -> None:
    then = lifecycle.decide_transition(worth, threshold=0.7)
    of_lesson = lifecycle.decide_lesson_transition(worth, is_verified=is_verified, threshold=0.7)
    if worth.does_harm:
        assert (then, of_lesson) == (LifecycleTransitionKind.RETIRE, LifecycleTransitionKind.RETIRE)
    elif worth.is_useless:
        assert (then, of_lesson) == (LifecycleTransitionKind.HIDE, LifecycleTransitionKind.STAY)
    elif worth.helps:
        assert (then, of_lesson) == (LifecycleTransitionKind.CLIMB, LifecycleTransitionKind.CLIMB)
    else:
        serves = lifecycle.compute_success_rate_lower_bound(worth.counters) >= 0.7
        assert (then is LifecycleTransitionKind.CLIMB, of_lesson is LifecycleTransitionKind.CLIMB) == (
            serves,
            serves and is_verified,
        )
        assert not (then is LifecycleTransitionKind.RETIRE and worth.counters.succeeded >= worth.counters.failed)
    assert (
        lifecycle.decide_transition(replace(worth, is_worse=True), threshold=0.7) is LifecycleTransitionKind.ROLL_BACK
    )


@pytest.mark.req("LA-04")
@pytest.mark.parametrize(
    ("succeeded", "failed", "then"),
    [
        (0, 0, LifecycleTransitionKind.STAY),
        (5, 0, LifecycleTransitionKind.STAY),
        (6, 0, LifecycleTransitionKind.CLIMB),
        (18, 2, LifecycleTransitionKind.CLIMB),
        (6, 4, LifecycleTransitionKind.STAY),
        (0, 2, LifecycleTransitionKind.STAY),
        (0, 8, LifecycleTransitionKind.RETIRE),
    ],
)
def test_without_a_bound_judged_uses_of_one_kind_are_enough(
    succeeded: int, failed: int, then: LifecycleTransitionKind
) -> None:
    worth = UtilityAssessment(counters=UsageCounts(succeeded=succeeded, failed=failed))
    assert lifecycle.decide_transition(worth, threshold=0.7) is then


@pytest.mark.req("LA-04")
@pytest.mark.parametrize(
    ("worth", "is_verified", "then"),
    [
        (UtilityAssessment(helps=True), False, LifecycleTransitionKind.CLIMB),
        (UtilityAssessment(helps=True, is_useless=True), False, LifecycleTransitionKind.STAY),
        (UtilityAssessment(counters=UsageCounts(succeeded=6)), True, LifecycleTransitionKind.CLIMB),
        (UtilityAssessment(counters=UsageCounts(succeeded=6)), False, LifecycleTransitionKind.STAY),
        (UtilityAssessment(counters=UsageCounts(succeeded=5)), True, LifecycleTransitionKind.STAY),
        (UtilityAssessment(counters=UsageCounts(failed=6)), True, LifecycleTransitionKind.STAY),
        (UtilityAssessment(helps=True, does_harm=True), True, LifecycleTransitionKind.RETIRE),
    ],
)
def test_a_lesson_climbs_when_it_helps_or_was_verified_and_served(
    worth: UtilityAssessment, is_verified: bool, then: LifecycleTransitionKind
) -> None:
    assert lifecycle.decide_lesson_transition(worth, is_verified=is_verified, threshold=0.7) is then


@pytest.mark.req("LA-04")
def test_a_skill_that_is_exactly_as_reliable_as_is_asked_for_serves() -> None:
    counters = UsageCounts(succeeded=6, failed=1)
    assert lifecycle.is_reliable(counters, lifecycle.compute_success_rate_lower_bound(counters))


@pytest.mark.req("LA-04")
def test_where_nobody_judged_nothing_moves_however_little_is_asked_for() -> None:
    assert (
        lifecycle.decide_transition(UtilityAssessment(counters=UsageCounts(used=50)), threshold=0.0)
        is LifecycleTransitionKind.STAY
    )


@pytest.mark.req("LA-04")
def test_a_skill_climbs_above_all_it_has() -> None:
    assert lifecycle.list_higher_stages({Stage.STEPS}) == (Stage.CHUNKS, Stage.CODE)
    assert lifecycle.list_higher_stages({Stage.STEPS, Stage.CHUNKS}) == (Stage.CODE,)
    assert lifecycle.list_higher_stages({Stage.STEPS, Stage.CODE}) == ()
