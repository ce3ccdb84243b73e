"""Findings: of each item its estimate, bound, verdict and plan, and the versions to roll back. Only bounds decide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlencode

from habitus.evidence.bounds import (
    ERROR,
    ItemBettingEvidenceSums,
    OfferEffectBounds,
    find_effect_bound,
    is_version_worse_than_predecessor,
)
from habitus.evidence.estimation import EstimateBasis, ItemEffectEstimates, estimate_item_effects
from habitus.evidence.model import EffectEstimate, EvidenceItem, ItemObservation
from habitus.evidence.regression import Floats, ObservationTable
from habitus.evidence.sums import NO_BETTING, RECENT_DAYS, EvidenceCountKind, EvidenceSums

NO_SUMS = EvidenceSums()


class ItemVerdict(StrEnum):
    PROMOTE = "promote"  # it helps
    KEEP = "keep"  # it does no harm worth mentioning
    DEGRADE = "degrade"  # it does not help enough to be ranked high
    RETIRE = "retire"  # it does harm
    UNKNOWN = "not known yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemVerdictWithReason:
    verdict: ItemVerdict
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemFinding:
    IN_JSON: ClassVar = ("links",)

    item: EvidenceItem
    estimate: ItemEffectEstimates
    bound: OfferEffectBounds
    decision: ItemVerdictWithReason
    plan: WithholdingForecast
    sentence: str  # what is known, in plain words
    trial_offered: int = 0  # of its units, those of paired trials
    trial_withheld: int = 0

    @property
    def links(self) -> Mapping[str, str]:
        """The address of exactly the conversations that each count counts, below the root of REST; `sentence` is for
        the count that the sentence states.
        """
        about = {"kind": self.item.kind.value, "name": self.item.name, "version": self.item.version}
        linked = _LINKED_COUNTS | (
            {"sentence": stated} if (stated := _get_filter_of_counted_conversations(self.estimate)) else {}
        )
        return {name: f"/evidence/rows?{urlencode({**about, **of})}" for name, of in linked.items()}


_LINKED_COUNTS: dict[str, dict[str, str]] = {
    "used": {"of": EvidenceCountKind.USED.value},
    "ignored": {"of": EvidenceCountKind.IGNORED.value},
} | {
    f"{prefix}{variant}{suffix}": {"of": of.value, "offered": "true" if variant == "offered" else "false"}
    for variant in ("offered", "withheld")
    for prefix, suffix, of in (
        ("", "", EvidenceCountKind.ALL),
        ("", "_explicit", EvidenceCountKind.EXPLICIT),
        ("", "_weak", EvidenceCountKind.WEAK),
        ("", "_missing", EvidenceCountKind.MISSING),
        ("trial_", "", EvidenceCountKind.TRIALS),
        ("bound_", "", EvidenceCountKind.RANDOMIZED),
    )
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WorseVersionFinding:
    """A version that is shown to do worse than its predecessor."""

    item: EvidenceItem
    to: EvidenceItem
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceFindings:
    items: tuple[ItemFinding, ...] = ()
    rollbacks: tuple[WorseVersionFinding, ...] = ()


def collect_evidence_findings(
    observations: Iterable[ItemObservation], *, withhold: float, settled: EvidenceSums = NO_SUMS, today: float = 0.0
) -> EvidenceFindings:
    """Return the findings from settled sums and these observations, which are of other units.

    `withhold` is the share withheld from now on; only the plans depend on it.
    """
    sums = add_observations_to_sums(observations, settled=settled, today=today)
    found = [
        _build_item_finding(sums, estimate, withhold, today)
        for _, estimate in sorted(estimate_item_effects(sums, today).items())
    ]
    return EvidenceFindings(items=tuple(found), rollbacks=tuple(find_versions_worse_than_predecessor(sums.betting)))


def add_observations_to_sums(
    observations: Iterable[ItemObservation], *, settled: EvidenceSums = NO_SUMS, today: float = 0.0
) -> EvidenceSums:
    return settled.with_units(ObservationTable.from_observations(observations, today=today))


def _build_item_finding(
    sums: EvidenceSums, estimate: ItemEffectEstimates, withhold: float, today: float
) -> ItemFinding:
    item, betting = estimate.item, sums.betting.get(estimate.item, NO_BETTING)
    limit, (trial_withheld, trial_offered) = find_effect_bound(betting), sums.counts[item].trials.astype(int).tolist()
    trials = trial_withheld + trial_offered
    apart = f" {trials} of these conversations were trials." if trials else ""
    return ItemFinding(
        item=item,
        estimate=estimate,
        bound=limit,
        decision=decide_item_verdict(estimate, limit),
        plan=forecast_withholding_of_item(estimate, betting, today - sums.days[item], withhold=withhold),
        sentence=describe_finding(estimate, limit) + apart,
        trial_offered=trial_offered,
        trial_withheld=trial_withheld,
    )


WORTH_KNOWING = 0.1  # the effect to plan for, unless a larger one is likely
_DETOUR = 1.5  # log evidence lost by not knowing the best stake
_LONGEST_WAIT_DAYS = 120.0
_TRIAL_SHARE = 0.5  # of a trial's conversations that go without the item
_NOISE = 0.25  # prior variance of a binary outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class WithholdingForecast:
    effect: float  # that would be noticed
    a_day: float  # units with an explicit outcome
    missing: int | None  # units still needed, both variants together; None: nothing is withheld
    days: float | None  # until then; None: never at the current rate
    cost_a_day: float  # expected successes lost by withholding; negative: gained
    trials: int = 0  # conversations of `skills trial` that would answer it instead, both variants together

    @property
    def is_waiting_time_practical(self) -> bool:
        """Whether withholding answers within a time that somebody would wait for."""
        return self.days is not None and self.days <= _LONGEST_WAIT_DAYS


def forecast_withholding_of_item(
    estimate: ItemEffectEstimates, betting: ItemBettingEvidenceSums, ages: Floats, *, withhold: float
) -> WithholdingForecast:
    """Plan one item from the ages of its explicit outcomes in days, if this share is withheld from now on."""
    likely = estimate.offering.value if estimate.offering else 0.0
    effect = max(WORTH_KNOWING, abs(likely))
    missing = estimate_remaining_units_to_verdict(betting, effect, withhold)
    a_day = _compute_daily_outcome_rate(ages)
    days = missing / a_day if a_day and missing is not None else None
    return WithholdingForecast(
        effect=effect,
        a_day=a_day,
        missing=missing,
        days=days,
        cost_a_day=a_day * withhold * likely,
        trials=estimate_remaining_units_to_verdict(betting, effect, _TRIAL_SHARE) or 0,
    )


def _compute_daily_outcome_rate(ages: Floats) -> float:
    """Return explicit outcomes per day in the recent past; a history shorter than a day counts as a day."""
    return float((ages <= RECENT_DAYS).sum() / min(RECENT_DAYS, ages.max(initial=1.0)))


def estimate_remaining_units_to_verdict(betting: ItemBettingEvidenceSums, effect: float, withhold: float) -> int | None:
    """Return how many units the evidence still needs for a verdict, from its expected growth per unit."""
    spread = withhold * (1 - withhold)
    noise = (betting.squared_payoffs + _NOISE) / (betting.assignment_variance + 1)
    growth = effect**2 * spread / (2 * noise)
    won, enough = (
        max(0.0, betting.compute_log_evidence(0, up=True), betting.compute_log_evidence(0, up=False)),
        math.log(2 / ERROR),
    )
    if won >= enough:
        return 0
    return math.ceil((enough + _DETOUR - won) / growth) if growth else None


NEGLIGIBLE = 0.05  # a smaller change of the success rate is not worth a place in the prompt
_OFTEN, _MOSTLY = 10, 0.8  # recalls, and share of them without a trace, of an ignored item


def decide_item_verdict(estimate: ItemEffectEstimates, bound: OfferEffectBounds) -> ItemVerdictWithReason:
    if estimate.is_never_opened:
        return ItemVerdictWithReason(verdict=ItemVerdict.UNKNOWN, reason=_explain_item_never_opened(estimate))
    if bound.high < 0:
        return ItemVerdictWithReason(
            verdict=ItemVerdict.RETIRE,
            reason=f"It does harm: at least {format_share_of_100(-bound.high)} fewer succeed.",
        )
    if bound.low > 0:
        return ItemVerdictWithReason(
            verdict=ItemVerdict.PROMOTE, reason=f"It helps: at least {format_share_of_100(bound.low)} more succeed."
        )
    if is_item_used_without_trace(estimate):
        reason = f"It was recalled {estimate.used} times and left no trace in {estimate.ignored} of them."
        return ItemVerdictWithReason(verdict=ItemVerdict.DEGRADE, reason=reason)
    if bound.high <= NEGLIGIBLE:
        return ItemVerdictWithReason(
            verdict=ItemVerdict.DEGRADE, reason=f"It helps {format_share_of_100(bound.high)} at most."
        )
    if bound.low >= -NEGLIGIBLE:
        return ItemVerdictWithReason(
            verdict=ItemVerdict.KEEP,
            reason=f"It harms {format_share_of_100(-bound.low)} at most; whether it helps is open.",
        )
    return ItemVerdictWithReason(verdict=ItemVerdict.UNKNOWN, reason=_explain_unknown_verdict(estimate, bound))


def is_item_used_without_trace(estimate: ItemEffectEstimates) -> bool:
    """Return whether it was recalled again and again and nothing it says was done."""
    return estimate.used >= _OFTEN and estimate.ignored >= _MOSTLY * estimate.used


def _explain_item_never_opened(estimate: ItemEffectEstimates) -> str:
    return (
        f"It was opened in none of {format_conversation_count(estimate.offered.total)}, so it can't have "
        "helped or harmed."
    )


def _explain_unknown_verdict(estimate: ItemEffectEstimates, bound: OfferEffectBounds) -> str:
    if not bound.offered + bound.withheld:
        said = estimate.offered.explicit + estimate.withheld.explicit
        return "It was never withheld at random." if said else "There is no feedback yet."
    if not bound.withheld:
        return f"It was offered in {format_conversation_count(bound.offered)} and withheld in none that was judged."
    if not bound.offered:
        return f"It was withheld in {format_conversation_count(bound.withheld)} and offered in none that was judged."
    return (
        f"Between {format_share_of_100(-bound.low)} fewer and {format_share_of_100(bound.high)} more succeed, "
        f"by {format_conversation_count(bound.offered)} with it and {bound.withheld} without."
    )


def find_versions_worse_than_predecessor(
    betting: Mapping[EvidenceItem, ItemBettingEvidenceSums],
) -> list[WorseVersionFinding]:
    """Return each newest randomised version whose predecessor was better."""
    versions: dict[tuple[str, str], list[EvidenceItem]] = {}
    for item in sorted(betting):
        if betting[item].offered and betting[item].withheld:
            versions.setdefault((item.kind, item.name), []).append(item)
    pairs = [(each[-2], each[-1]) for each in versions.values() if len(each) > 1]
    return [
        WorseVersionFinding(item=new, to=old, reason=_explain_worse_version(new, old, betting))
        for old, new in pairs
        if is_version_worse_than_predecessor(betting[new], betting[old])
    ]


def _explain_worse_version(
    new: EvidenceItem, old: EvidenceItem, betting: Mapping[EvidenceItem, ItemBettingEvidenceSums]
) -> str:
    counted = (betting[item].offered + betting[item].withheld for item in (new, old))
    return "Version {} does worse than version {}, by {} and {}.".format(
        new.version, old.version, *(format_conversation_count(count) for count in counted)
    )


def describe_finding(estimate: ItemEffectEstimates, bound: OfferEffectBounds) -> str:
    """Return one line: `Helps so far: 8 more of 100 (1 to 15), from 212 conversations. Costs 310 tokens a turn.`"""
    cost = f" Costs {estimate.tokens:,} tokens a turn." if estimate.tokens else ""
    return f"{_describe_effect(estimate, bound)}{cost}"


def _describe_effect(estimate: ItemEffectEstimates, bound: OfferEffectBounds) -> str:
    offered, withheld = estimate.offered, estimate.withheld
    if estimate.is_never_opened:
        return f"Not known: {_explain_item_never_opened(estimate)[0].lower()}{_explain_item_never_opened(estimate)[1:]}"
    if estimate.offering is None:
        if estimate.weak is None:
            return "Not known yet: no feedback."
        counted = format_conversation_count(offered.weak + withheld.weak)
        return f"Not known yet: weak signs alone, {format_effect_range(estimate.weak)}, from {counted}."
    source = (
        f"{format_effect_range(estimate.offering)}, from "
        f"{format_conversation_count(offered.explicit + withheld.explicit)}"
    )
    if estimate.basis is EstimateBasis.ASSOCIATIONAL:
        return f"Not known: it goes with {source}, and none was withheld to compare."
    return f"{_choose_certainty_wording(estimate.offering, bound)} {source}."


def _get_filter_of_counted_conversations(estimate: ItemEffectEstimates) -> Mapping[str, str]:
    """Return which conversations `describe_finding` counts; empty if it states no number."""
    if estimate.is_never_opened:
        return _LINKED_COUNTS["offered"]
    if estimate.offering is None:
        return {} if estimate.weak is None else {"of": EvidenceCountKind.WEAK.value}
    return {"of": EvidenceCountKind.EXPLICIT.value}


def _choose_certainty_wording(effect: EffectEstimate, bound: OfferEffectBounds) -> str:
    """Say "surely" only where the bound decides; everything else is "so far"."""
    if bound.low > 0:
        return f"Helps: surely {format_share_of_100(bound.low)} or more. So far"
    if bound.high < 0:
        return f"Harms: surely {format_share_of_100(-bound.high)} or more. So far"
    if effect.low > 0 or effect.high < 0:
        return "Helps so far:" if effect.low > 0 else "Harms so far:"
    return "Not known yet: so far"


def format_effect_range(effect: EffectEstimate) -> str:
    """Return `8 more of 100 (1 to 15)`, counted in the direction of the effect."""
    sign = -1 if effect.value < 0 else 1
    value, *ends = (round(100 * sign * part) for part in (effect.value, effect.low, effect.high))
    low, high = sorted(ends)
    interval = f"{_format_with_minus_sign(low)} to {_format_with_minus_sign(high)}"
    return f"{value} {'fewer' if sign < 0 else 'more'} of 100 ({interval})"


def _format_with_minus_sign(number: int) -> str:
    return f"−{-number}" if number < 0 else str(number)


def format_share_of_100(share: float) -> str:
    """Return a share as `8 of 100`, with a decimal below one."""
    hundredths = 100 * share
    return f"{hundredths:.0f} of 100" if hundredths >= 1 else f"{max(hundredths, 0):.1f} of 100"


def format_conversation_count(count: int) -> str:
    return f"{count:,} conversation{'' if count == 1 else 's'}"
