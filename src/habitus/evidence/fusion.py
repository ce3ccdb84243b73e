"""From two looks at an effect to one estimate: the randomised contrast, shrunk towards the association.

How far the association is off is learned from the items that have both: each item's bias is drawn from a normal
distribution, whose mean and spread are integrated over. Then a prior fitted to all items: some do nothing at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from habitus.evidence.association import Association
from habitus.evidence.contrast import Contrast
from habitus.evidence.table import Floats

_SPREADS = np.array([0.0, 0.005, 0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.13, 0.18, 0.25])
_USUAL_BIAS = 0.08  # before anything was withheld: how far an association may be off
_USUAL_EFFECT, _PRIOR_ITEMS = 0.15, 4.0  # what an item that does something does, as if so many had been seen
_NORMAL = NormalDist()
WIDTH = _NORMAL.inv_cdf(0.95)  # of a 90 % interval, to each side, in standard deviations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Effects:
    """Of each item: an estimate, and the interval that holds the truth nine times in ten."""

    values: Floats
    lows: Floats
    highs: Floats


def fuse(seen: Association, drawn: Contrast) -> Effects:
    means, variances = _without_bias(seen, drawn)
    return _with_prior(means, variances)


def _without_bias(seen: Association, drawn: Contrast) -> tuple[Floats, Floats]:
    """Mean and variance of each effect, whatever it is, the bias of the association integrated over."""
    known = drawn.is_known
    gap = np.where(known, seen.effects - drawn.effects, 0)
    gap_variance = np.maximum(seen.variances + drawn.variances - 2 * drawn.shared, 1e-9)
    share = np.where(known, (drawn.variances - drawn.shared) / gap_variance, 1)  # of the association in the estimate
    rest = np.where(known, (seen.variances * drawn.variances - drawn.shared**2) / gap_variance, seen.variances)
    weights, biases, spreads = _bias(gap[known], gap_variance[known], gap, np.where(known, gap_variance, np.inf))
    means = share * (seen.effects - biases) + (1 - share) * drawn.effects
    variances = rest + share**2 * spreads
    mean = weights @ means
    return mean, weights @ (variances + (means - mean) ** 2)


def _bias(known: Floats, variances: Floats, gaps: Floats, gap_variances: Floats) -> tuple[Floats, Floats, Floats]:
    """How plausible each spread of the biases is, and given it the mean and variance of every item's bias."""
    spread = (_SPREADS**2)[:, None]
    precision = 1 / (spread + variances)
    of_middle = 1 / (precision.sum(1) + 1 / _USUAL_BIAS**2)
    middle = of_middle * (precision @ known)
    residual = (precision * (known - middle[:, None]) ** 2).sum(1) + middle**2 / _USUAL_BIAS**2
    plausible = 0.5 * (np.log(precision).sum(1) + np.log(of_middle) - residual) - 0.5 * (_SPREADS / _USUAL_BIAS) ** 2
    weights = np.exp(plausible - plausible.max()) * np.gradient(_SPREADS)
    pull = spread / (spread + gap_variances)  # towards the item's own gap; none where there is none
    mean = middle[:, None] + pull * (gaps - middle[:, None])
    variance = spread * (1 - pull) + (1 - pull) ** 2 * of_middle[:, None]
    return weights / weights.sum(), mean, variance


def _with_prior(means: Floats, variances: Floats) -> Effects:
    """Fit the prior, then of each item the median of what remains likely, and an interval in case it does something."""
    active, middle, spread = 0.5, 0.0, _USUAL_EFFECT**2
    for _ in range(60):
        odds = _log_density(means - middle, variances + spread) - _log_density(means, variances)
        chance = 1 / (1 + (1 - active) / active * np.exp(np.clip(-odds, -500, 500)))
        mean, variance = _posterior(means, variances, middle, spread)
        total = chance.sum() + _PRIOR_ITEMS
        active = total / (len(means) + 2 * _PRIOR_ITEMS)
        middle = float(chance @ mean / total)
        spread = float(chance @ ((mean - middle) ** 2 + variance) + _PRIOR_ITEMS * _USUAL_EFFECT**2) / total
    mean, variance = _posterior(means, variances, middle, spread)
    deviation = np.sqrt(variance)
    lows, highs = np.clip(mean - WIDTH * deviation, -1, 1), np.clip(mean + WIDTH * deviation, -1, 1)
    medians = np.array([_median(*each) for each in zip(chance, mean, deviation, strict=True)])
    return Effects(values=np.clip(medians, lows, highs), lows=lows, highs=highs)


def _posterior(means: Floats, variances: Floats, middle: float, spread: float) -> tuple[Floats, Floats]:
    variance = 1 / (1 / variances + 1 / spread)
    return variance * (means / variances + middle / spread), variance


def _log_density(gaps: Floats, variances: Floats) -> Floats:
    return np.asarray(-0.5 * (gaps**2 / variances + np.log(variances)), dtype=np.float64)


def _median(chance: float, mean: float, deviation: float) -> float:
    """Of an effect that is normal with this chance, and nothing otherwise."""
    below = chance * _NORMAL.cdf(-mean / deviation)
    if below > 0.5:
        return float(mean + deviation * _NORMAL.inv_cdf(0.5 / chance))
    if below + (1 - chance) >= 0.5:
        return 0.0
    return float(mean + deviation * _NORMAL.inv_cdf((chance - 0.5) / chance))
