"""What decides: a bound that may be looked at after every conversation, and is still rarely wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.evidence.bounds import (
    ERROR,
    ItemBettingEvidenceSums,
    ItemExposurePayoffs,
    OfferEffectBounds,
    find_effect_bound,
    is_version_worse_than_predecessor,
    predict_success_of_each_exposure,
)
from habitus.evidence.findings import NO_SUMS, add_observations_to_sums, collect_evidence_findings
from habitus.evidence.model import ItemObservation
from habitus.evidence.regression import Floats, ObservationTable
from habitus.evidence.sums import NO_BETTING, EvidenceSums, deserialize_sums, serialize_sums
from tests.evidence.observed import SKILL, drawn

ENOUGH = math.log(2 / ERROR)


def bound_of(observations: list[ItemObservation]) -> OfferEffectBounds:
    return find_effect_bound(add_observations_to_sums(observations).betting.get(SKILL, NO_BETTING))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Witness(ItemBettingEvidenceSums):
    """A game that remembers each play."""

    plays: tuple[ItemExposurePayoffs, ...] = ()

    def with_exposures(self, rows: ObservationTable) -> Witness:
        expected, went = predict_success_of_each_exposure(rows, self.outcomes_by_kind)
        return Witness(
            log_capitals=self.log_capitals,
            outcomes_by_kind=went,
            plays=(*self.plays, ItemExposurePayoffs.from_rows(rows, expected)),
        )


def fortunes(observations: Iterable[ItemObservation], effect: float) -> list[Floats]:
    """Our capital after every exposure, staked on either side."""
    kept = add_observations_to_sums(
        observations,
        settled=EvidenceSums(
            betting={SKILL: Witness(log_capitals=NO_BETTING.log_capitals, outcomes_by_kind=NO_BETTING.outcomes_by_kind)}
        ),
    )
    game = kept.betting[SKILL]
    assert isinstance(game, Witness)
    columns = {
        name: [getattr(each, name) for each in game.plays]
        for name in ("payoffs", "assignment_variances", "max_stake_up", "max_stake_down")
    }
    whole = ItemExposurePayoffs(**{name: np.concatenate(each) for name, each in columns.items()})
    return [whole.compute_log_evidence_after_each_exposure(effect, up=up) for up in (True, False)]


@pytest.mark.full
@pytest.mark.req("LA-05")
def test_looking_after_every_conversation_seldom_condemns_what_does_nothing() -> None:
    ever = 0
    for seed in range(100):
        capital = fortunes(drawn(units=300, withheld=0.2, with_it=0.6, without=0.6, seed=seed), 0)
        ever += max(each.max() for each in capital) >= ENOUGH
    assert ever <= 100 * ERROR


@pytest.mark.req("LA-05")
def test_a_bound_holds_the_truth_and_leaves_out_zero_where_there_is_enough() -> None:
    helps = bound_of(list(drawn(units=1000, withheld=0.3, with_it=0.8, without=0.5)))
    assert 0 < helps.low < 0.3 < helps.high
    harms = bound_of(list(drawn(units=1000, withheld=0.3, with_it=0.4, without=0.7)))
    assert harms.low < -0.3 < harms.high < 0
    assert (helps.offered + helps.withheld, harms.offered > harms.withheld) == (1000, True)


@pytest.mark.req("LA-05")
@given(st.integers(1, 200))
def test_good_and_bad_are_treated_alike(units: int) -> None:
    rows = list(drawn(units=units, with_it=0.8, withheld=0.3))
    found, mirrored = bound_of(rows), bound_of([replace(one, success=1 - (one.success or 0)) for one in rows])
    assert (found.low, found.high) == pytest.approx((-mirrored.high, -mirrored.low), abs=1e-4)


@pytest.mark.req("LA-05")
@pytest.mark.parametrize("is_offered", [True, False])
def test_one_arm_decides_nothing_however_well_it_went(is_offered: bool) -> None:
    """As when only those who were offered it say how it went, and it goes better and better."""
    rows = [one for one in drawn(units=300) if one.is_offered == is_offered]
    better = [replace(one, success=float(number > len(rows) / 2)) for number, one in enumerate(rows)]
    assert (bound_of(better).low, bound_of(better).high) == (-1, 1)


@pytest.mark.req("LA-05")
def test_only_drawn_and_explicit_exposures_of_the_version_itself_count() -> None:
    rows = list(drawn(units=300, with_it=0.7))
    noise = [
        *(replace(one, propensity=1.0, unit=f"sure {one.unit}", success=0.0) for one in rows),
        *(replace(one, propensity=0.0, unit=f"never {one.unit}", success=0.0) for one in rows),
        *(replace(one, is_explicit=False, unit=f"weak {one.unit}", success=0.0) for one in rows),
        *(replace(one, item=replace(SKILL, version=2), unit=f"two {one.unit}", success=0.0) for one in rows),
    ]
    assert astuple(bound_of([*noise, *rows])) == pytest.approx(astuple(bound_of(rows)), abs=1e-5)


@pytest.mark.full
@pytest.mark.req("LA-05")
@given(st.lists(st.integers(0, 400), max_size=4))
def test_sums_that_are_kept_and_added_to_are_those_of_one_pass(ends: list[int]) -> None:
    rows = [
        replace(one, unit=f"u{n}", item=item, is_explicit=n % 3 > 0, success=None if n % 7 == 0 else one.success)
        for item in (SKILL, replace(SKILL, version=2))
        for n, one in enumerate(drawn(item, units=400, with_it=0.7))
        if item is SKILL or n > 150
    ]
    kept, begins = NO_SUMS, 0
    for end in (*sorted(ends), 400):
        part = add_observations_to_sums([one for one in rows if begins <= int(one.unit[1:]) < end], settled=kept)
        packed = serialize_sums(part, {"end": end})
        unpacked = deserialize_sums(packed)
        assert unpacked is not None
        assert unpacked[1]["end"] == end
        kept, begins = unpacked[0], end
        assert deserialize_sums(packed[:-30]) is None  # a damaged file is no file
    once, added = (found(running) for running in (add_observations_to_sums(rows), kept))
    assert added == pytest.approx(once)


def found(running: EvidenceSums) -> dict[str, float]:
    """Every number that is found, by a name."""
    numbers: dict[str, float] = {}
    for one in collect_evidence_findings([], withhold=0.1, settled=running).items:
        for part in (one.estimate.offering, one.estimate.using, one.estimate.weak, one.bound, one.plan):
            values = asdict(part) if part else {}
            numbers |= {f"{one.item.version} {type(part)} {name}": value or 0.0 for name, value in values.items()}
    return numbers


@pytest.mark.req("LA-05")
def test_a_bound_is_neither_aged_nor_dependent_on_the_order_in_which_it_was_told() -> None:
    rows = list(drawn(units=200, with_it=0.8))
    older = [replace(one, age_days=one.age_days + 1000) for one in reversed(rows)]
    assert astuple(bound_of(older)) == pytest.approx(astuple(bound_of(rows)), abs=1e-5)


@pytest.mark.req("SK-11", "LA-05")
def test_a_version_is_worse_only_where_both_were_drawn_often_enough() -> None:
    def version(number: int, units: int, with_it: float) -> list[ItemObservation]:
        item = replace(SKILL, version=number)
        return list(drawn(item, units=units, with_it=with_it, seed=number))

    def worse(first: list[ItemObservation], second: list[ItemObservation]) -> bool:
        found = add_observations_to_sums([*first, *second]).betting
        return is_version_worse_than_predecessor(found[replace(SKILL, version=2)], found[SKILL])

    assert worse(version(1, 400, 0.8), version(2, 400, 0.3))
    assert not worse(version(1, 400, 0.8), version(2, 10, 0.3))
    assert not worse(version(1, 400, 0.8), version(2, 400, 0.8))
    assert not worse(version(1, 400, 0.3), version(2, 400, 0.8))


def test_capital_is_never_negative_whatever_the_draw_was() -> None:
    rows = [
        replace(one, propensity=chance, unit=f"{one.unit} {chance}", success=float(one.is_offered))
        for chance in (0.001, 0.3, 0.999)
        for one in drawn(units=50)
    ]
    for effect in (-1.0, 0.0, 1.0):
        assert all(np.isfinite(each).all() for each in fortunes(rows, effect))
