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

from habitus.evidence.model import EffectEstimate, EvidenceItem
from habitus.evidence.regression import Floats, ItemEffectScores, PeriodRegressionSums, compute_item_effect_scores
from habitus.evidence.sums import EvidenceSums, ItemSumsByVariant


class EstimateBasis(StrEnum):
    """The basis of an estimate."""

    RANDOMISED = "randomised"
    ASSOCIATIONAL = "associational"  # nothing was withheld, so confounding is possible


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantOutcomeCounts:
    """The units of one variant (offered or withheld) by the kind of outcome they have."""

    explicit: int = 0
    weak: int = 0
    missing: int = 0

    @property
    def total(self) -> int:
        return self.explicit + self.weak + self.missing


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemEffectEstimates:
    """The estimated effects of an item; an effect without data is None."""

    item: EvidenceItem
    basis: EstimateBasis
    offering: EffectEstimate | None  # by explicit outcomes alone
    using: EffectEstimate | None  # among units that used it because it was offered
    weak: EffectEstimate | None  # effect of offering by weak signals alone: shown, never decides
    uptake: EffectEstimate | None  # increase of the usage rate when it is offered
    offered: VariantOutcomeCounts
    withheld: VariantOutcomeCounts
    tokens: int  # of the offer, in one turn
    used: int
    ignored: int  # recalled without a trace in what was done

    @property
    def is_never_opened(self) -> bool:
        """Whether it was offered and nobody ever used it: then no number of conversations shows an effect."""
        return not self.used and self.offered.total > 0

    @property
    def per_1000_tokens(self) -> float | None:
        """The effect of offering it per thousand tokens that it takes in the prompt."""
        return self.offering.value * 1000 / self.tokens if self.offering and self.tokens > 0 else None


def estimate_item_effects(sums: EvidenceSums, today: float) -> dict[EvidenceItem, ItemEffectEstimates]:
    """Estimate every observed item. How fast evidence ages is learned, because models and habits change."""
    drawn = {item for item, state in sums.betting.items() if state.offered and state.withheld}
    drawn_weak = {item for item, counts in sums.counts.items() if counts.drawn_weak.all()}
    with_word, with_sign = (
        [item for item, counts in sums.counts.items() if getattr(counts, name).any()] for name in ("explicit", "weak")
    )
    offering = _estimate_offer_effects(sums, sums.explicit, with_word, drawn, today)
    weak = _estimate_offer_effects(sums, sums.weak, with_sign, drawn_weak, today)
    found = {}
    for item, counts in sums.counts.items():
        uptake = _estimate_use_increase_by_offer(counts)
        found[item] = ItemEffectEstimates(
            item=item,
            basis=EstimateBasis.RANDOMISED if item in drawn else EstimateBasis.ASSOCIATIONAL,
            # Without a use there is nothing that could have helped or harmed, whatever the numbers are by chance.
            offering=offering.get(item) if counts.used.any() else None,
            using=_estimate_effect_of_use(offering.get(item), uptake) if item in drawn else None,
            weak=weak.get(item) if counts.used.any() else None,
            uptake=uptake,
            withheld=_get_outcome_counts_of_variant(counts, 0),
            offered=_get_outcome_counts_of_variant(counts, 1),
            tokens=round(float(counts.tokens[1] / max(_get_outcome_counts_of_variant(counts, 1).total, 1))),
            used=int(counts.used.sum()),
            ignored=int(counts.ignored.sum()),
        )
    return found


def _estimate_offer_effects(
    sums: EvidenceSums,
    periods: Sequence[PeriodRegressionSums],
    items: Sequence[EvidenceItem],
    drawn: Container[EvidenceItem],
    today: float,
) -> dict[EvidenceItem, EffectEstimate]:
    """Estimate the effect of offering each of these items."""
    if not items:
        return {}
    columns = np.array([sums.columns[item] for item in items])
    kinds = np.array([column for feature, column in sums.columns.items() if isinstance(feature, int)])
    seen = compute_item_effect_scores(
        [period for period in periods if period.units[0]], columns, kinds, np.array([item in drawn for item in items])
    )
    effects = compute_shrunk_effect_intervals(compute_effect_posteriors_by_kalman_filter(seen, today))
    each = zip(items, effects.values, effects.lows, effects.highs, strict=True)
    return {item: _build_clamped_effect_estimate(value, low, high) for item, value, low, high in each}


def _get_outcome_counts_of_variant(counts: ItemSumsByVariant, arm: int) -> VariantOutcomeCounts:
    return VariantOutcomeCounts(
        explicit=int(counts.explicit[arm]), weak=int(counts.weak[arm]), missing=int(counts.missing[arm])
    )


def _estimate_use_increase_by_offer(counts: ItemSumsByVariant) -> EffectEstimate | None:
    """Return how much likelier an item is used when the assignment offers it than when it withholds it."""
    if not counts.drawn.all():
        return None
    withheld, offered = counts.weights_used / counts.weights
    share = (counts.drawn_used + 1) / (counts.drawn + 2)  # as if one more had used it and one had not
    margin = INTERVAL_WIDTH * math.sqrt(float((share * (1 - share) * counts.squares / counts.weights**2).sum()))
    return _build_clamped_effect_estimate(offered - withheld, offered - withheld - margin, offered - withheld + margin)


def _estimate_effect_of_use(offering: EffectEstimate | None, uptake: EffectEstimate | None) -> EffectEstimate | None:
    """Estimate the effect of use with the offer as instrument: it acts only through those who use the item."""
    if offering is None or uptake is None or uptake.low <= 0:
        return None
    value = offering.value / uptake.value
    unsure = value * (uptake.high - uptake.low) / 2 / uptake.value
    low = value - math.hypot((offering.value - offering.low) / uptake.value, unsure)
    high = value + math.hypot((offering.high - offering.value) / uptake.value, unsure)
    return _build_clamped_effect_estimate(value, low, high)


def _build_clamped_effect_estimate(*parts: float) -> EffectEstimate:
    value, low, high = (min(max(float(part), -1.0), 1.0) for part in parts)
    return EffectEstimate(value=value, low=low, high=high)


_RATES = np.array([0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6])  # standard deviation of an effect's drift per year
_USUAL = np.array([0.7, 0.03, 0.04, 0.06, 0.07, 0.06, 0.04])  # prior share of items with each drift rate
# Pseudo-items behind that prior. With more, a few items whose effects all change at once can't outweigh it.
_USUAL_ITEMS = 0.5
_OF_BIAS = 0.25  # variance of the bias's drift relative to the effect's
_YEAR = 365.25
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ItemEffectPosteriors:
    """Per item, as of today: effect and bias of the association, their variances and covariance."""

    effects: Floats
    biases: Floats
    variances: Floats
    bias_variances: Floats
    shared: Floats


def compute_effect_posteriors_by_kalman_filter(looks: ItemEffectScores, today: float) -> ItemEffectPosteriors:
    items = looks.randomized.shape[1]
    mean = np.zeros((2, items, len(_RATES)))
    spread = np.ones((3, items, len(_RATES)))  # effect, bias, covariance: a vague prior
    spread[2] = 0
    likelihood = np.zeros((items, len(_RATES)))
    before = looks.days[0]
    for number, day in enumerate(looks.days):
        spread = _add_drift_variance(spread, day - before)
        mean, spread, likely = _update_effect_state(mean, spread, looks, number)
        likelihood += likely
        before = day
    spread = _add_drift_variance(spread, today - before)
    plausible = _compute_drift_rate_posteriors(likelihood)
    middle = (plausible * mean).sum(2)
    apart = mean - middle[:, :, None]
    variances = (plausible * (spread[:2] + apart**2)).sum(2)
    return ItemEffectPosteriors(
        effects=middle[0],
        biases=middle[1],
        variances=variances[0],
        bias_variances=variances[1],
        shared=(plausible * (spread[2] + apart[0] * apart[1])).sum(1),
    )


def _add_drift_variance(spread: Floats, days: float) -> Floats:
    wandered = _RATES**2 * max(days, 0.0) / _YEAR
    return np.stack([spread[0] + wandered, spread[1] + _OF_BIAS * wandered, spread[2]])


def _update_effect_state(
    mean: Floats, spread: Floats, looks: ItemEffectScores, number: int
) -> tuple[Floats, Floats, Floats]:
    """Return the state after the scores of one period, and the log likelihood of these."""
    drawn, of_drawn, wide, seen, of_seen, wide_seen = (
        each[number][:, None]
        for each in (
            *(looks.randomized, looks.randomized_information, looks.randomized_information),
            *(looks.association, looks.association_information, looks.association_spread),
        )
    )
    effect, bias, both = spread
    with_seen, with_bias = effect + both, bias + both  # covariance of effect and of bias with their sum
    # The covariance of the two scores, and how far they are from what was expected of them.
    first = of_drawn**2 * effect + looks.noise * wide + _TINY
    cross = of_drawn * of_seen * with_seen
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


def _compute_drift_rate_posteriors(likelihood: Floats) -> Floats:
    """Return the posterior weight of each drift rate per item; how common rates are is fitted to all items."""
    likely = np.exp(likelihood - likelihood.max(1, keepdims=True))
    common, each = _USUAL, likely
    for _ in range(30):
        each = likely * common
        each /= each.sum(1, keepdims=True)
        common = (each.sum(0) + _USUAL_ITEMS * _USUAL) / (len(each) + _USUAL_ITEMS)
    return np.asarray(each, dtype=np.float64)


_SPREADS = np.array([0.005, 0.01, 0.02, 0.03, 0.045, 0.065, 0.09, 0.13, 0.18, 0.25])
_USUAL_BIAS = 0.08  # prior standard deviation of an association's bias
_USUAL_EFFECT = 0.15  # prior standard deviation of effects
_PRIOR_ITEMS = 4.0  # pseudo-items behind both priors
INTERVAL_WIDTH = NormalDist().inv_cdf(0.95)  # half-width of a 90 % interval in standard deviations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ItemEffectIntervals:
    """Per item: an estimate and its 90 % interval."""

    values: Floats
    lows: Floats
    highs: Floats


def compute_shrunk_effect_intervals(known: ItemEffectPosteriors) -> ItemEffectIntervals:
    """Integrate over the bias of each association, then shrink to what items do in general."""
    share = known.shared / known.bias_variances  # regression of effect on bias
    rest = np.maximum(known.variances - share * known.shared, 0)
    plausible, biases, spreads = _estimate_association_bias(known.biases, known.bias_variances)
    means = known.effects + share * (biases - known.biases)
    mean = plausible @ means
    return _shrink_effects_towards_mean(mean, plausible @ (rest + share**2 * spreads + (means - mean) ** 2))


def _estimate_association_bias(gaps: Floats, variances: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the weight of each spread of the biases, and given it the mean and variance of every item's bias."""
    spread = (_SPREADS**2)[:, None]
    precision = 1 / (spread + variances)
    of_middle = 1 / (precision.sum(1) + 1 / _USUAL_BIAS**2)
    middle = of_middle * (precision @ gaps)
    misfit = (precision * (gaps - middle[:, None]) ** 2).sum(1) + (middle / _USUAL_BIAS) ** 2
    usual = _PRIOR_ITEMS * ((_USUAL_BIAS / _SPREADS) ** 2 + 2 * np.log(_SPREADS))
    likelihood = 0.5 * (np.log(precision).sum(1) + np.log(of_middle) - misfit - usual)
    plausible = np.exp(likelihood - likelihood.max()) * np.gradient(_SPREADS)
    own = spread / (spread + variances)  # weight of the item's own gap
    bias = middle[:, None] + own * (gaps - middle[:, None])
    return plausible / plausible.sum(), bias, spread * (1 - own) + (1 - own) ** 2 * of_middle[:, None]


def _shrink_effects_towards_mean(means: Floats, variances: Floats) -> ItemEffectIntervals:
    """Shrink each item towards the mean effect of all items (empirical Bayes)."""
    middle, spread = 0.0, _USUAL_EFFECT**2
    total = len(means) + _PRIOR_ITEMS
    for _ in range(30):
        posterior = 1 / (1 / variances + 1 / spread)
        values = posterior * (means / variances + middle / spread)
        middle = float(values.sum()) / total
        spread = (float(((values - middle) ** 2 + posterior).sum()) + _PRIOR_ITEMS * _USUAL_EFFECT**2) / total
    margins = INTERVAL_WIDTH * np.sqrt(posterior)
    return ItemEffectIntervals(values=values, lows=values - margins, highs=values + margins)


def compute_t_quantile(freedom: int, share: float) -> float:
    """Return a quantile of Student's t, by the Cornish-Fisher expansion."""
    z = NormalDist().inv_cdf(share)
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
