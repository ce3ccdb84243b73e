"""What is decided, said and planned, by evidence that is clear, thin or contradictory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.evidence.bounds import OfferEffectBounds
from habitus.evidence.estimation import EstimateBasis, ItemEffectEstimates, VariantOutcomeCounts
from habitus.evidence.findings import (
    ItemFinding,
    ItemVerdict,
    collect_evidence_findings,
    decide_item_verdict,
    describe_finding,
)
from habitus.evidence.model import EffectEstimate, ItemObservation
from tests.evidence.observed import SKILL, drawn

HELPS = ItemEffectEstimates(
    item=SKILL,
    basis=EstimateBasis.RANDOMISED,
    offering=EffectEstimate(value=0.08, low=0.01, high=0.15),
    using=None,
    weak=None,
    uptake=None,
    offered=VariantOutcomeCounts(explicit=190),
    withheld=VariantOutcomeCounts(explicit=22),
    tokens=310,
    used=40,
    ignored=2,
)


def finding(observations: list[ItemObservation]) -> ItemFinding:
    (found,) = collect_evidence_findings(observations, withhold=0.1).items
    return found


@pytest.mark.req("LA-05")
@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.02, 0.2, ItemVerdict.PROMOTE),
        (-0.2, -0.01, ItemVerdict.RETIRE),
        (-0.2, 0.04, ItemVerdict.DEGRADE),
        (-0.04, 0.3, ItemVerdict.KEEP),
        (-0.2, 0.3, ItemVerdict.UNKNOWN),
        (-1.0, 1.0, ItemVerdict.UNKNOWN),
    ],
)
def test_the_bound_decides(low: float, high: float, verdict: ItemVerdict) -> None:
    judgement = decide_item_verdict(HELPS, OfferEffectBounds(low=low, high=high, offered=190, withheld=22))
    assert judgement.verdict is verdict
    assert judgement.reason.endswith(".")


@pytest.mark.req("LA-05")
def test_what_is_recalled_and_never_followed_is_degraded_unless_it_helps() -> None:
    ignored = replace(HELPS, used=20, ignored=18)
    found = decide_item_verdict(ignored, OfferEffectBounds())
    assert found.verdict is ItemVerdict.DEGRADE
    assert found.reason == "It was recalled 20 times and left no trace in 18 of them."
    assert decide_item_verdict(replace(ignored, used=9, ignored=9), OfferEffectBounds()).verdict is ItemVerdict.UNKNOWN
    assert decide_item_verdict(ignored, OfferEffectBounds(low=0.1)).verdict is ItemVerdict.PROMOTE


@pytest.mark.req("LA-05")
def test_what_is_recalled_without_a_trace_is_counted() -> None:
    rows = [replace(one, has_trace=number % 4 == 0) for number, one in enumerate(drawn(units=80, withheld=0.2))]
    found = finding(rows).estimate
    assert found.used == sum(one.is_used for one in rows)
    assert found.ignored == sum(one.is_used and one.has_trace is False for one in rows)
    assert finding(list(drawn(units=80))).estimate.ignored == 0


@pytest.mark.req("LA-05")
def test_clear_evidence_promotes_and_retires_and_says_so() -> None:
    good, bad = (finding(list(drawn(units=600, with_it=with_it))) for with_it in (0.9, 0.1))
    assert (good.decision.verdict, bad.decision.verdict) == (ItemVerdict.PROMOTE, ItemVerdict.RETIRE)
    assert good.sentence.startswith("Helps: surely ")
    assert bad.sentence.startswith("Harms: surely ")


@pytest.mark.req("LA-05")
@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([replace(one, success=None) for one in drawn(units=9)], "There is no feedback yet."),
        (list(drawn(units=9, withheld=0.0)), "It was never withheld at random."),
        (
            [one for one in drawn(units=9) if one.is_offered],
            "It was offered in 6 conversations and withheld in none that was judged.",
        ),
        (
            [one for one in drawn(units=9) if not one.is_offered],
            "It was withheld in 3 conversations and offered in none that was judged.",
        ),
    ],
)
def test_why_it_is_not_known(rows: list[ItemObservation], reason: str) -> None:
    judgement = finding(rows).decision
    assert (judgement.verdict, judgement.reason) == (ItemVerdict.UNKNOWN, reason)


@pytest.mark.req("SK-11", "LA-05")
def test_a_worse_version_is_to_be_rolled_back() -> None:
    second = replace(SKILL, version=2)
    rows = [*drawn(units=400, with_it=0.8), *drawn(second, units=400, with_it=0.3, seed=2)]
    (found,) = collect_evidence_findings(rows, withhold=0.1).rollbacks
    assert (found.item, found.to) == (second, SKILL)
    assert found.reason == "Version 2 does worse than version 1, by 400 conversations and 400 conversations."
    assert collect_evidence_findings(rows[:400], withhold=0.1).rollbacks == ()


@pytest.mark.req("LA-05")
def test_plain_words() -> None:
    said = "8 more of 100 (1 to 15), from 212 conversations. Costs 310 tokens a turn."
    assert describe_finding(HELPS, OfferEffectBounds()) == f"Helps so far: {said}"
    assert describe_finding(HELPS, OfferEffectBounds(low=0.02)) == f"Helps: surely 2 of 100 or more. So far {said}"
    assert describe_finding(HELPS, OfferEffectBounds(high=-0.03)) == f"Harms: surely 3 of 100 or more. So far {said}"
    harms = replace(HELPS, offering=EffectEstimate(value=-0.08, low=-0.15, high=0.02), tokens=0)
    assert (
        describe_finding(harms, OfferEffectBounds())
        == "Not known yet: so far 8 fewer of 100 (−2 to 15), from 212 conversations."
    )
    seen = replace(HELPS, basis=EstimateBasis.ASSOCIATIONAL, tokens=0)
    assert describe_finding(seen, OfferEffectBounds()) == (
        "Not known: it goes with 8 more of 100 (1 to 15), from 212 conversations, and none was withheld to compare."
    )
    assert describe_finding(replace(seen, offering=None), OfferEffectBounds()) == "Not known yet: no feedback."


@pytest.mark.req("LA-05")
@given(low=st.floats(-1, 1), high=st.floats(-1, 1), ends=st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
def test_surely_is_said_of_the_bound_alone(low: float, high: float, ends: tuple[float, float]) -> None:
    shown = EffectEstimate(value=sum(ends) / 2, low=min(ends), high=max(ends))
    limit = OfferEffectBounds(low=min(low, high), high=max(low, high))
    said = describe_finding(replace(HELPS, offering=shown), limit)
    assert ("surely" in said) == (limit.low > 0 or limit.high < 0)
    assert "so far" in said.lower()
    assert "surely" not in describe_finding(replace(HELPS, offering=shown), OfferEffectBounds())


@pytest.mark.req("LA-05")
def test_a_plan_says_how_long_and_at_what_cost() -> None:
    rows = list(drawn(units=200, withheld=0.1, with_it=0.6))
    found = finding(rows).plan
    assert found.a_day == pytest.approx(20)
    assert found.missing is not None
    assert found.days == pytest.approx(found.missing / 20)
    assert 300 < found.missing < 5000
    known = finding(list(drawn(units=600, with_it=0.9)))
    assert (known.plan.missing, known.plan.days) == (0, 0)
    nothing = collect_evidence_findings(rows, withhold=0.0).items[0].plan
    assert (nothing.missing, nothing.days) == (None, None)


@pytest.mark.full
@pytest.mark.req("LA-05")
def test_a_plan_is_about_right() -> None:
    """As many as it asks for decide an effect of the planned size, more often than not."""
    missing = finding(list(drawn(units=20, withheld=0.2, with_it=0.6))).plan.missing
    assert missing is not None
    decided = [
        finding(list(drawn(units=missing, withheld=0.2, with_it=0.6, without=0.4, seed=seed))).decision.verdict
        for seed in range(3)
    ]
    assert decided.count(ItemVerdict.PROMOTE) >= 2
