"""Evidence in plain words: how many of a hundred, how sure, from how many conversations, and at what cost."""

from __future__ import annotations

from habitus.evidence.bounds import Bound
from habitus.evidence.lift import Basis, Effect, Estimate


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
