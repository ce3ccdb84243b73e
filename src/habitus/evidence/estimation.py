"""Lift: what offering an item changes, and what using it changes, estimated to be shown; `bounds` decides.

Effects may wander: that of today comes from the randomised contrast and the association.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from habitus.evidence.model import Item
from habitus.evidence.running import Counts, Running
from habitus.evidence.sums import Floats, Looks, Period, looks


class Basis(StrEnum):
    """The basis of an estimate."""

    RANDOMISED = "randomised"
    ASSOCIATIONAL = "associational"  # nothing was withheld: what chose the item may be what made the difference


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """A change of the share that goes well, with the interval that holds the truth nine times in ten."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """The units of one arm, by what is known of how they went."""

    explicit: int = 0
    weak: int = 0
    missing: int = 0

    @property
    def total(self) -> int:
        return self.explicit + self.weak + self.missing


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """An item's effects as far as they are known; an effect that nothing speaks for is none."""

    item: Item
    basis: Basis
    offering: Effect | None  # by explicit outcomes alone
    using: Effect | None  # in the units that used it because it was offered
    weak: Effect | None  # of offering, by weak signals alone: to be shown, never to decide
    uptake: Effect | None  # how much likelier it is used when it is offered
    offered: Arm
    withheld: Arm
    tokens: int  # of the offer, in one turn
    used: int
    ignored: int  # of the used: recalled, and no trace of it in what was done

    @property
    def per_1000_tokens(self) -> float | None:
        """The effect of offering it for each thousand tokens of the prompt that it takes."""
        return self.offering.value * 1000 / self.tokens if self.offering and self.tokens > 0 else None


def estimates(running: Running, today: float) -> dict[Item, Estimate]:
    """Of every item that was observed; how fast evidence fades, because models and habits change, is learned."""
    drawn = {item for item, game in running.games.items() if game.offered and game.withheld}
    drawn_weak = {item for item, counts in running.counts.items() if counts.drawn_weak.all()}
    with_word, with_sign = (
        [item for item, counts in running.counts.items() if getattr(counts, name).any()]
        for name in ("explicit", "weak")
    )
    offering = _effects(running, running.explicit, with_word, drawn, today)
    weak = _effects(running, running.weak, with_sign, drawn_weak, today)
    found = {}
    for item, counts in running.counts.items():
        uptake = _uptake(counts)
        found[item] = Estimate(
            item=item,
            basis=Basis.RANDOMISED if item in drawn else Basis.ASSOCIATIONAL,
            offering=offering.get(item),
            using=_using(offering.get(item), uptake) if item in drawn else None,
            weak=weak.get(item),
            uptake=uptake,
            withheld=_arm(counts, 0),
            offered=_arm(counts, 1),
            tokens=round(float(counts.tokens[1] / max(_arm(counts, 1).total, 1))),
            used=int(counts.used.sum()),
            ignored=int(counts.ignored.sum()),
        )
    return found


def _effects(
    running: Running, periods: Sequence[Period], items: Sequence[Item], drawn: Container[Item], today: float
) -> dict[Item, Effect]:
    """Of offering each of these items."""
    if not items:
        return {}
    columns = np.array([running.columns[item] for item in items])
    kinds = np.array([column for feature, column in running.columns.items() if isinstance(feature, int)])
    seen = looks(
        [period for period in periods if period.units[0]], columns, kinds, np.array([item in drawn for item in items])
    )
    effects = fuse(present(seen, today))
    each = zip(items, effects.values, effects.lows, effects.highs, strict=True)
    return {item: _effect(value, low, high) for item, value, low, high in each}


def _arm(counts: Counts, arm: int) -> Arm:
    return Arm(explicit=int(counts.explicit[arm]), weak=int(counts.weak[arm]), missing=int(counts.missing[arm]))


def _uptake(counts: Counts) -> Effect | None:
    """How much likelier an item is used when the draw offers it than when it withholds it."""
    if not counts.drawn.all():
        return None
    withheld, offered = counts.weights_used / counts.weights
    share = (counts.drawn_used + 1) / (counts.drawn + 2)  # as if one more had used it and one had not
    margin = WIDTH * math.sqrt(float((share * (1 - share) * counts.squares / counts.weights**2).sum()))
    return _effect(offered - withheld, offered - withheld - margin, offered - withheld + margin)


def _using(offering: Effect | None, uptake: Effect | None) -> Effect | None:
    """The offer as instrument: what offering changes, it changes in those who use the item because it was offered."""
    if offering is None or uptake is None or uptake.low <= 0:
        return None
    value = offering.value / uptake.value
    unsure = value * (uptake.high - uptake.low) / 2 / uptake.value
    low = value - math.hypot((offering.value - offering.low) / uptake.value, unsure)
    high = value + math.hypot((offering.high - offering.value) / uptake.value, unsure)
    return _effect(value, low, high)


def _effect(*parts: float) -> Effect:
    value, low, high = (min(max(float(part), -1.0), 1.0) for part in parts)
    return Effect(value=value, low=low, high=high)


_RATES = np.array([0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])  # standard deviation of what an effect changes in a year
_USUAL = np.array([0.6, 0.16, 0.1, 0.08, 0.04, 0.015, 0.005])  # how many items wander so, as if a few had been seen
_USUAL_ITEMS = 4.0
_OF_BIAS = 0.25  # of an effect's variance a year: how much the bias wanders
_YEAR = 365.25
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Present:
    """Of each item today: effect and bias of the association, their variances and covariance."""

    effects: Floats
    biases: Floats
    variances: Floats
    bias_variances: Floats
    shared: Floats


def present(looks: Looks, today: float) -> Present:
    items = looks.drawn.shape[1]
    mean = np.zeros((2, items, len(_RATES)))
    spread = np.ones((3, items, len(_RATES)))  # of effect and bias, and their covariance: wide, as nothing is known
    spread[2] = 0
    likelihood = np.zeros((items, len(_RATES)))
    before = looks.days[0]
    for number, day in enumerate(looks.days):
        spread = _widen(spread, day - before)
        mean, spread, likely = _update(mean, spread, looks, number)
        likelihood += likely
        before = day
    spread = _widen(spread, today - before)
    plausible = _plausible(likelihood)
    middle = (plausible * mean).sum(2)
    apart = mean - middle[:, :, None]
    variances = (plausible * (spread[:2] + apart**2)).sum(2)
    return Present(
        effects=middle[0],
        biases=middle[1],
        variances=variances[0],
        bias_variances=variances[1],
        shared=(plausible * (spread[2] + apart[0] * apart[1])).sum(1),
    )


def _widen(spread: Floats, days: float) -> Floats:
    wandered = _RATES**2 * max(days, 0.0) / _YEAR
    return np.stack([spread[0] + wandered, spread[1] + _OF_BIAS * wandered, spread[2]])


def _update(mean: Floats, spread: Floats, looks: Looks, number: int) -> tuple[Floats, Floats, Floats]:
    """The estimate after the scores of one period, and the logarithm of how likely these were."""
    drawn, of_drawn, wide, seen, of_seen, wide_seen, shared = (
        each[number][:, None]
        for each in (
            *(looks.drawn, looks.drawn_information, looks.drawn_spread),
            *(looks.seen, looks.seen_information, looks.seen_spread, looks.shared),
        )
    )
    effect, bias, both = spread
    with_seen, with_bias = effect + both, bias + both  # covariance of effect, and of bias, with their sum
    # The covariance of the two scores, and how far they are from what was expected of them.
    first = of_drawn**2 * effect + looks.noise * wide + _TINY
    cross = of_drawn * of_seen * with_seen + looks.noise * shared
    second = of_seen**2 * (with_seen + with_bias) + looks.noise * wide_seen + _TINY
    one, two = drawn - of_drawn * mean[0], seen - of_seen * (mean[0] + mean[1])
    whole = first * second - cross**2
    inverse = second / whole, -cross / whole, first / whole
    solved = inverse[0] * one + inverse[1] * two, inverse[1] * one + inverse[2] * two
    gains = (of_drawn * effect, of_seen * with_seen), (of_drawn * both, of_seen * with_bias)
    found = np.stack([mean[state] + gain[0] * solved[0] + gain[1] * solved[1] for state, gain in enumerate(gains)])

    def explain(left: tuple[Floats, Floats], right: tuple[Floats, Floats]) -> Floats:
        there = inverse[0] * right[0] + inverse[1] * right[1], inverse[1] * right[0] + inverse[2] * right[1]
        return np.asarray(left[0] * there[0] + left[1] * there[1], dtype=np.float64)

    to_effect, to_bias = gains
    left = [
        effect - explain(to_effect, to_effect),
        bias - explain(to_bias, to_bias),
        both - explain(to_effect, to_bias),
    ]
    return found, np.stack(left), -0.5 * (np.log(whole) + one * solved[0] + two * solved[1])


def _plausible(likelihood: Floats) -> Floats:
    """Of each item and rate; how common rates are is fitted to all items."""
    likely = np.exp(likelihood - likelihood.max(1, keepdims=True))
    common, each = _USUAL, likely
    for _ in range(30):
        each = likely * common
        each /= each.sum(1, keepdims=True)
        common = (each.sum(0) + _USUAL_ITEMS * _USUAL) / (len(each) + _USUAL_ITEMS)
    return np.asarray(each, dtype=np.float64)


_SPREADS = np.array([0.005, 0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.13, 0.18, 0.25])
_USUAL_BIAS = 0.08  # before anything was withheld: how far an association is off
_USUAL_EFFECT = 0.15  # what items do
_PRIOR_ITEMS = 4.0  # as if so many had been seen to do so, and to be off so far
WIDTH = NormalDist().inv_cdf(0.95)  # of a 90 % interval, to each side, in standard deviations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Effects:
    """Of each item: an estimate, and the interval that holds the truth nine times in ten."""

    values: Floats
    lows: Floats
    highs: Floats


def fuse(known: Present) -> Effects:
    """The bias of each association is integrated over, then what items do in general is brought in."""
    share = known.shared / known.bias_variances  # how far an effect moves with its bias
    rest = np.maximum(known.variances - share * known.shared, 0)
    plausible, biases, spreads = _bias(known.biases, known.bias_variances)
    means = known.effects + share * (biases - known.biases)
    mean = plausible @ means
    return _with_prior(mean, plausible @ (rest + share**2 * spreads + (means - mean) ** 2))


def _bias(gaps: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
    """How plausible each spread of the biases is, and given it the mean and variance of every item's bias."""
    spread = (_SPREADS**2)[:, None]
    precision = 1 / (spread + variances)
    of_middle = 1 / (precision.sum(1) + 1 / _USUAL_BIAS**2)
    middle = of_middle * (precision @ gaps)
    misfit = (precision * (gaps - middle[:, None]) ** 2).sum(1) + (middle / _USUAL_BIAS) ** 2
    usual = _PRIOR_ITEMS * ((_USUAL_BIAS / _SPREADS) ** 2 + 2 * np.log(_SPREADS))
    likelihood = 0.5 * (np.log(precision).sum(1) + np.log(of_middle) - misfit - usual)
    plausible = np.exp(likelihood - likelihood.max()) * np.gradient(_SPREADS)
    own = spread / (spread + variances)  # how far an item's bias is its own gap
    bias = middle[:, None] + own * (gaps - middle[:, None])
    return plausible / plausible.sum(), bias, spread * (1 - own) + (1 - own) ** 2 * of_middle[:, None]


def _with_prior(means: Floats, variances: Floats) -> Effects:
    """Shrink each item towards what items do, which is fitted to all of them."""
    middle, spread = 0.0, _USUAL_EFFECT**2
    total = len(means) + _PRIOR_ITEMS
    for _ in range(30):
        posterior = 1 / (1 / variances + 1 / spread)
        values = posterior * (means / variances + middle / spread)
        middle = float(values.sum()) / total
        spread = (float(((values - middle) ** 2 + posterior).sum()) + _PRIOR_ITEMS * _USUAL_EFFECT**2) / total
    margins = WIDTH * np.sqrt(posterior)
    return Effects(values=values, lows=values - margins, highs=values + margins)
