"""Verdicts: what the bounds allow to be done with an item, and evidence in plain words. Only bounds decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from habitus.evidence.bounds import Bound, Game, is_worse
from habitus.evidence.lift import Basis, Effect, Estimate
from habitus.evidence.model import Item

NEGLIGIBLE = 0.05  # a change of so many in one is not worth a place in the prompt
_OFTEN, _MOSTLY = 10, 0.8  # recalled so often, and so large a share without a trace: it is ignored


class Verdict(StrEnum):
    PROMOTE = "promote"  # it helps
    KEEP = "keep"  # it does no harm worth mentioning
    DEGRADE = "degrade"  # it does not help enough to be offered early
    RETIRE = "retire"  # it does harm
    UNKNOWN = "not known yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str


def judge(estimate: Estimate, bound: Bound) -> Judgement:
    if bound.high < 0:
        return Judgement(verdict=Verdict.RETIRE, reason=f"It does harm: at least {of_100(-bound.high)} fewer go well.")
    if bound.low > 0:
        return Judgement(verdict=Verdict.PROMOTE, reason=f"It helps: at least {of_100(bound.low)} more go well.")
    if is_ignored(estimate):
        reason = f"It was recalled {estimate.used} times and left no trace in {estimate.ignored} of them."
        return Judgement(verdict=Verdict.DEGRADE, reason=reason)
    if bound.high <= NEGLIGIBLE:
        return Judgement(verdict=Verdict.DEGRADE, reason=f"It helps {of_100(bound.high)} at most.")
    if bound.low >= -NEGLIGIBLE:
        return Judgement(
            verdict=Verdict.KEEP, reason=f"It harms {of_100(-bound.low)} at most; whether it helps is open."
        )
    return Judgement(verdict=Verdict.UNKNOWN, reason=_why_unknown(estimate, bound))


def is_ignored(estimate: Estimate) -> bool:
    """Recalled again and again, and nothing it says was done."""
    return estimate.used >= _OFTEN and estimate.ignored >= _MOSTLY * estimate.used


def _why_unknown(estimate: Estimate, bound: Bound) -> str:
    if not bound.offered + bound.withheld:
        said = estimate.offered.explicit + estimate.withheld.explicit
        return "It was never withheld at random." if said else "Nobody said yet how it went."
    if not bound.withheld:
        return f"It was offered in {units(bound.offered)} and withheld in none that was judged."
    if not bound.offered:
        return f"It was withheld in {units(bound.withheld)} and offered in none that was judged."
    return (
        f"Between {of_100(-bound.low)} fewer and {of_100(bound.high)} more go well, "
        f"by {units(bound.offered)} with it and {bound.withheld} without."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollback:
    """A version that is known to do worse than the one before it."""

    item: Item
    to: Item
    reason: str


def rollbacks(games: Mapping[Item, Game]) -> list[Rollback]:
    """Of each newest version that was put to the draw, whether the one before it was better."""
    versions: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(games):
        if games[item].offered and games[item].withheld:
            versions.setdefault((item.kind, item.name), []).append(item)
    pairs = [(each[-2], each[-1]) for each in versions.values() if len(each) > 1]
    return [
        Rollback(item=new, to=old, reason=_why_back(new, old, games))
        for old, new in pairs
        if is_worse(games[new], games[old])
    ]


def _why_back(new: Item, old: Item, games: Mapping[Item, Game]) -> str:
    counted = (games[item].offered + games[item].withheld for item in (new, old))
    return "Version {} does worse than version {}, by {} and {}.".format(
        new.version, old.version, *(units(count) for count in counted)
    )


def sentence(estimate: Estimate, bound: Bound) -> str:
    """`Helps so far: 8 more of 100 (1 to 15), from 212 conversations. Costs 310 tokens a turn.`"""
    cost = f" Costs {estimate.tokens:,} tokens a turn." if estimate.tokens else ""
    return f"{_effect(estimate, bound)}{cost}"


def _effect(estimate: Estimate, bound: Bound) -> str:
    offered, withheld = estimate.offered, estimate.withheld
    if estimate.offering is None:
        if estimate.weak is None:
            return "Not known yet: nobody said how it went."
        return f"Not known yet: weak signs alone, {_range(estimate.weak)}, from {units(offered.weak + withheld.weak)}."
    source = f"{_range(estimate.offering)}, from {units(offered.explicit + withheld.explicit)}"
    if estimate.basis is Basis.ASSOCIATIONAL:
        return f"Not known: it goes with {source}, and none was withheld to compare."
    return f"{_claim(estimate.offering, bound)} {source}."


def _claim(effect: Effect, bound: Bound) -> str:
    """Only the bound that decides makes sure; all else is how it looks so far."""
    if bound.low > 0:
        return f"Helps: surely {of_100(bound.low)} or more. So far"
    if bound.high < 0:
        return f"Harms: surely {of_100(-bound.high)} or more. So far"
    if effect.low > 0 or effect.high < 0:
        return "Helps so far:" if effect.low > 0 else "Harms so far:"
    return "Not known yet: so far"


def _range(effect: Effect) -> str:
    """`8 more of 100 (1 to 15)`: counted in the direction of the effect."""
    sign = -1 if effect.value < 0 else 1
    value, *ends = (round(100 * sign * part) for part in (effect.value, effect.low, effect.high))
    low, high = sorted(ends)
    return f"{value} {'fewer' if sign < 0 else 'more'} of 100 ({_with_sign(low)} to {_with_sign(high)})"


def _with_sign(number: int) -> str:
    return f"−{-number}" if number < 0 else str(number)


def of_100(share: float) -> str:
    """A share of a whole as a person counts it; what is smaller than one of a hundred is not nothing."""
    hundredths = 100 * share
    return f"{hundredths:.0f} of 100" if hundredths >= 1 else f"{max(hundredths, 0):.1f} of 100"


def units(count: int) -> str:
    return f"{count:,} conversation{'' if count == 1 else 's'}"
