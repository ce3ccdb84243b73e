"""From two looks at an effect to one estimate: the randomised contrast, shrunk towards the association.

How far the association is off is learned from the items that have both: each item's bias is drawn from a normal
distribution, whose mean and spread are integrated over. What items do in general is learned from all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from habitus.evidence.drift import Present
from habitus.evidence.table import Floats

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
