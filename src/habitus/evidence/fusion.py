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
from habitus.evidence.table import Flags, Floats

_SPREADS = np.array([0.0, 0.005, 0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.13, 0.18, 0.25])
_TINY = 1e-6
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
    """Mean and variance of each effect, the bias of the association integrated over."""
    known, contrasts = drawn.is_known, drawn.variances
    associations = seen.variances + _TINY * contrasts  # so that two looks at the very same rows differ a little
    gaps = np.where(known, seen.effects - drawn.effects, 0)
    gap_variances = np.where(known, associations + contrasts - 2 * drawn.shared, np.inf)
    # How much of the association goes into the estimate, so that its error does not depend on the gap.
    share = np.where(known, (contrasts - drawn.shared) / gap_variances, 1)
    rest = np.where(known, (associations * contrasts - drawn.shared**2) / gap_variances, associations)
    plausible, biases, spreads = _bias(gaps, gap_variances, known)
    means = share * (seen.effects - biases) + (1 - share) * drawn.effects
    mean = plausible @ means
    return mean, plausible @ (rest + share**2 * spreads + (means - mean) ** 2)


def _bias(gaps: Floats, variances: Floats, known: Flags) -> tuple[Floats, Floats, Floats]:
    """How plausible each spread of the biases is, and given it the mean and variance of every item's bias."""
    spread = (_SPREADS**2)[:, None]
    precision = 1 / (spread + variances[known])
    of_middle = 1 / (precision.sum(1) + 1 / _USUAL_BIAS**2)
    middle = of_middle * (precision @ gaps[known])
    misfit = (precision * (gaps[known] - middle[:, None]) ** 2).sum(1) + (middle**2 + _SPREADS**2) / _USUAL_BIAS**2
    likelihood = 0.5 * (np.log(precision).sum(1) + np.log(of_middle) - misfit)
    plausible = np.exp(likelihood - likelihood.max()) * np.gradient(_SPREADS)
    own = spread / (spread + variances)  # how far an item's bias is its own gap; not at all where there is none
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
