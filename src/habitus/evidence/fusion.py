"""From two looks at an effect to one estimate: the randomised contrast, shrunk towards the association.

How far the association is off is learned from the items that have both: each item's bias is drawn from a normal
distribution, whose mean and spread are integrated over. What items do in general is learned from all of them.
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
_USUAL_EFFECT, _PRIOR_ITEMS = 0.15, 4.0  # what items do, as if so many had been seen
WIDTH = NormalDist().inv_cdf(0.95)  # of a 90 % interval, to each side, in standard deviations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Effects:
    """Of each item: an estimate, and the interval that holds the truth nine times in ten."""

    values: Floats
    lows: Floats
    highs: Floats


def fuse(seen: Association, drawn: Contrast, freshness: Floats) -> Effects:
    """`freshness` is what the newest outcome of each item counts: what was not tried lately is known less well."""
    means, variances = _without_bias(seen, drawn)
    return _with_prior(means, variances / freshness)


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
