"""What is shown: effects with their intervals, from good evidence and from evidence that is hardly any."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.evidence import estimation
from habitus.evidence.estimation import EstimateBasis, ItemEffectEstimates, VariantOutcomeCounts
from habitus.evidence.findings import add_observations_to_sums, collect_evidence_findings
from habitus.evidence.model import EvidenceItem, ItemKind, ItemObservation
from tests.evidence.observed import SKILL, drawn

OTHER = EvidenceItem(kind=ItemKind.LESSON, name="other")


def estimates(observations: Iterable[ItemObservation]) -> dict[EvidenceItem, ItemEffectEstimates]:
    return estimation.estimate_item_effects(add_observations_to_sums(observations), 0.0)


anything = st.builds(
    ItemObservation,
    unit=st.sampled_from("abcdef"),
    item=st.sampled_from([SKILL, replace(SKILL, version=2), OTHER]),
    is_offered=st.booleans(),
    propensity=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, math.nan]),
    is_used=st.booleans(),
    has_trace=st.sampled_from([None, True, False]),
    success=st.sampled_from([None, 0.0, 0.4, 1.0, 7.0, math.nan]),
    is_explicit=st.booleans(),
    request_kind=st.sampled_from(["", "x"]),
    tokens=st.integers(0, 10**6),
    age_days=st.sampled_from([0.0, -3.0, 40.0, 1e9, math.inf, math.nan]),
)


@pytest.mark.req("LA-05")
@given(st.lists(anything, max_size=40))
def test_whatever_was_observed_every_number_is_one(observations: list[ItemObservation]) -> None:
    found = collect_evidence_findings(observations, withhold=0.1)
    assert [finding.item for finding in found.items] == sorted({one.item for one in observations})
    for finding in found.items:
        estimate = finding.estimate
        for effect in (estimate.offering, estimate.using, estimate.weak, estimate.uptake):
            assert effect is None or -1 <= effect.low <= effect.value <= effect.high <= 1
        assert -1 <= finding.bound.low <= finding.bound.high <= 1
        numbers = [*dataclasses.astuple(finding.plan), estimate.per_1000_tokens]
        assert all(number is None or math.isfinite(number) for number in numbers)
        assert "nan" not in f"{finding.sentence}{finding.decision.reason}"


@pytest.mark.req("LA-05")
def test_an_effect_is_found_where_half_were_withheld() -> None:
    found = estimates([*drawn(with_it=0.8, without=0.5), *drawn(OTHER, seed=2)])
    skill, other = found[SKILL], found[OTHER]
    assert skill.basis is EstimateBasis.RANDOMISED
    assert skill.offering is not None
    assert other.offering is not None
    assert 0.15 < skill.offering.low < 0.3 < skill.offering.high < 0.45
    assert other.offering.low < 0 < other.offering.high
    assert skill.per_1000_tokens == pytest.approx(skill.offering.value / 0.31)
    assert (skill.offered.explicit + skill.withheld.explicit, skill.tokens) == (400, 310)


@pytest.mark.req("LA-05")
def test_an_only_item_is_told_as_surely_as_its_draw_allows() -> None:
    effect = estimates(replace(one, request_kind="") for one in drawn())[SKILL].offering
    assert effect is not None
    assert 0.12 < effect.high - effect.low < 0.17


@pytest.mark.req("LA-05")
def test_using_is_told_by_the_offer_not_by_who_chose_to_use() -> None:
    estimate = estimates(drawn(with_it=0.9, without=0.4, uptake=0.4, units=2000))[SKILL]
    assert estimate.offering is not None
    assert estimate.using is not None
    assert estimate.offering.low < 0.2 < estimate.offering.high
    assert estimate.using.low < 0.5 < estimate.using.high
    assert estimate.using.high - estimate.using.low < 0.3


@pytest.mark.req("LA-05")
def test_nothing_is_said_of_using_what_nobody_used() -> None:
    assert estimates(drawn(uptake=0.0))[SKILL].using is None


@pytest.mark.req("LA-05")
def test_without_any_withheld_an_estimate_is_associational_and_unsure() -> None:
    offered = [one for one in drawn(with_it=0.9, without=0.5, withheld=0.3) if one.is_offered]
    others = [replace(one, item=OTHER, unit=f"other {one.unit}") for one in drawn(with_it=0.4, withheld=0.0)]
    estimate = estimates([*offered, *others])[SKILL]
    assert (estimate.basis, estimate.withheld, estimate.using) == (
        EstimateBasis.ASSOCIATIONAL,
        VariantOutcomeCounts(),
        None,
    )
    both = estimates(drawn(with_it=0.9, without=0.5, withheld=0.3))[SKILL]
    assert estimate.offering is not None
    assert both.offering is not None
    assert estimate.offering.high - estimate.offering.low > 1.5 * (both.offering.high - both.offering.low)


@pytest.mark.req("LA-05")
def test_the_association_s_bias_is_learned_from_the_items_that_were_withheld() -> None:
    """Chosen for hard requests, which nobody sees: the association says harm where the draw says nothing."""
    rows: list[ItemObservation] = []
    for number in range(12):
        item = EvidenceItem(kind=ItemKind.LESSON, name=f"hard {number}")
        rows += drawn(item, with_it=0.35, without=0.35, units=200, seed=number)
    rows += [
        replace(one, item=OTHER, unit=f"easy {one.unit}", propensity=1.0)
        for one in drawn(OTHER, withheld=0.0, with_it=0.7, units=1500)
    ]
    hard = [estimate.offering for item, estimate in estimates(rows).items() if item != OTHER]
    assert sum(effect is not None and effect.low <= 0 <= effect.high for effect in hard) >= 10


@pytest.mark.req("LA-05")
def test_an_interval_holds_the_effect_of_today_where_few_items_turned_at_once() -> None:
    items = [replace(SKILL, name=name) for name in ("helped", "harmed")]
    held: list[bool] = []
    for seed in range(10):
        chance, rows = random.Random(seed), []
        for unit in range(600):
            is_offered = [chance.random() < 0.8 for _ in items]
            lifts = (0.15, -0.15) if unit < 300 else (-0.15, 0.15)
            level = 0.5 + sum(lift * (one - 0.8) for lift, one in zip(lifts, is_offered, strict=True))
            plain = next(iter(drawn(units=1, with_it=level, without=level, seed=chance.randrange(2**32))))
            rows += [
                replace(plain, unit=str(unit), item=item, is_offered=one, propensity=0.8, age_days=(600 - unit) / 50)
                for item, one in zip(items, is_offered, strict=True)
            ]
        rows = [replace(one, is_used=one.is_offered) for one in rows]
        effects = [estimates(rows)[item].offering for item in items]
        held += [one is not None and one.low <= lift <= one.high for one, lift in zip(effects, lifts, strict=True)]
    assert sum(held) >= 17


@pytest.mark.req("LA-05")
def test_weak_outcomes_are_estimated_apart_and_decide_nothing() -> None:
    weak = [replace(one, is_explicit=False) for one in drawn(with_it=1.0, without=0.0)]
    (finding,) = collect_evidence_findings(weak, withhold=0.1).items
    assert finding.estimate.offering is None
    assert finding.estimate.weak is not None
    assert finding.estimate.weak.low > 0.7
    assert finding.decision.verdict == "not known yet"
    mixed = estimates([*weak, *drawn(OTHER)])
    beside, alone = mixed[OTHER].offering, estimates(drawn(OTHER))[OTHER].offering
    assert mixed[SKILL].offering is None
    assert beside is not None
    assert alone is not None
    assert dataclasses.astuple(beside) == pytest.approx(dataclasses.astuple(alone), abs=0.01)  # periods end elsewhere


@pytest.mark.req("LA-05")
def test_missing_outcomes_are_counted_by_arm() -> None:
    rows = [replace(one, success=None) if one.is_offered else one for one in drawn(units=100)]
    estimate = estimates(rows)[SKILL]
    withheld = sum(not one.is_offered for one in rows)
    assert (estimate.offered, estimate.withheld) == (
        VariantOutcomeCounts(missing=100 - withheld),
        VariantOutcomeCounts(explicit=withheld),
    )
    assert estimate.basis is EstimateBasis.ASSOCIATIONAL


@pytest.mark.req("LA-05")
def test_the_last_word_on_a_unit_holds_and_counts_once() -> None:
    rows = list(drawn(units=60))
    corrected = [replace(one, success=1.0) for one in rows]
    assert estimates([*rows, *corrected]) == estimates(corrected)


@pytest.mark.req("LA-05")
def test_how_fast_evidence_fades_is_learned_and_a_clock_going_backwards_makes_nothing_newer_than_new() -> None:
    old = [replace(one, age_days=one.age_days + 360, unit=f"old {one.unit}") for one in drawn(with_it=0.9)]
    new, same = list(drawn(with_it=0.3, seed=2)), list(drawn(with_it=0.9, seed=2))
    changed, steady = (estimates([*old, *each])[SKILL].offering for each in (new, same))
    assert changed is not None
    assert steady is not None
    assert changed.high < 0  # the past is forgotten where it no longer holds
    alone, stale = (estimates(each)[SKILL].offering for each in (same, old))
    assert alone is not None
    assert stale is not None
    assert steady.high - steady.low < alone.high - alone.low  # and counts where it does
    assert stale.high - stale.low > 1.2 * (alone.high - alone.low)  # what was not tried lately is known less well
    assert estimates(replace(one, age_days=-5.0) for one in new) == estimates(replace(one, age_days=0.0) for one in new)
