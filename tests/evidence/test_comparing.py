"""The sequential test of a comparison in use: rarely wrong, however often it is looked at, whatever the exam said."""

from __future__ import annotations

import random

import pytest

from habitus.evidence.comparing import ComparisonVerdict, compare_versions_in_use
from habitus.evidence.model import EffectEstimate, EvidenceItem, ItemKind, ItemObservation

CHANGE = EvidenceItem(kind=ItemKind.CHANGE, name="brew-tea@user", version=2)
OPTIMISTIC = EffectEstimate(value=0.15, low=0.02, high=0.28)


def conversations(seed: int, number: int, effect: float) -> list[ItemObservation]:
    """A fifth got the old version, of which half succeed."""
    lots = random.Random(seed)
    made = []
    for age in range(number, 0, -1):
        is_new = lots.random() >= 0.2
        success = float(lots.random() < 0.5 + effect * is_new)
        one = ItemObservation(
            unit=f"c{age}", item=CHANGE, is_offered=is_new, propensity=0.8, success=success, age_days=float(age)
        )
        made.append(one)
    return made


@pytest.mark.req("IM-07")
@pytest.mark.parametrize("exam", [None, OPTIMISTIC])
def test_a_change_without_effect_is_hardly_ever_decided(exam: EffectEstimate | None) -> None:
    changes, wrong = 60, 0
    for seed in range(changes):
        made = conversations(seed, 240, 0.0)
        looks = (compare_versions_in_use(made[:count], exam=exam).verdict for count in range(40, 241, 40))
        wrong += any(one in (ComparisonVerdict.BETTER, ComparisonVerdict.WORSE) for one in looks)
    # Both directions together are wrong in at most a tenth; so many would be a chance of 1 in 1,000.
    assert wrong <= 14


@pytest.mark.req("IM-07")
def test_harm_in_use_is_found_whatever_the_exam_said_and_help_without_one() -> None:
    assert compare_versions_in_use(conversations(1, 400, -0.4), exam=OPTIMISTIC).verdict is ComparisonVerdict.WORSE
    assert compare_versions_in_use(conversations(1, 400, 0.4)).verdict is ComparisonVerdict.BETTER


@pytest.mark.req("IM-07")
def test_the_exam_is_shown_with_what_use_says() -> None:
    alone = compare_versions_in_use(conversations(1, 400, -0.4)).estimate
    both = compare_versions_in_use(conversations(1, 400, -0.4), exam=OPTIMISTIC).estimate
    nothing = compare_versions_in_use([], exam=OPTIMISTIC).estimate
    assert alone is not None
    assert both is not None
    assert nothing is not None
    assert alone.value < both.value < nothing.value == pytest.approx(0.15)
    assert (
        compare_versions_in_use([]).sentence
        == "Not known yet: 0 conversations judged with the new version and 0 with the old."
    )


@pytest.mark.req("IM-07")
@pytest.mark.parametrize("exam", [OPTIMISTIC, EffectEstimate(value=0.3, low=0.22, high=0.38)])
def test_a_decision_is_said_with_the_numbers_that_decided_it(exam: EffectEstimate) -> None:
    """The exam moves the estimate, but what harms in use is not said to have helped."""
    worse = compare_versions_in_use(conversations(1, 400, -0.2), exam=exam)
    assert worse.verdict is ComparisonVerdict.WORSE
    assert worse.in_use is not None
    assert worse.in_use.high < 0
    assert worse.sentence.startswith("Harms: ")
    assert " fewer of 100" in worse.sentence
    only_new = [one for one in conversations(1, 40, 0.0) if one.is_offered]
    assert ", by the exam and " in compare_versions_in_use(only_new, exam=exam).sentence
