"""Anytime-valid bound (a confidence sequence) on what offering an item changes.

Under the hypothesis that offering has this effect, a bet on the random assignment is fair, whatever is known about the
outcome: the evidence (an e-value) is multiplied by `1 + stake * ((success - expected) * (offered - propensity) -
propensity * (1 - propensity) * effect)` after each randomised exposure, and its mean stays one. By Ville's inequality
it ever reaches 40 with probability 1/40 at most. Nothing is shrunk, aged, or taken from another version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from habitus.evidence.regression import KINDS, Flags, Floats, ObservationTable

ERROR = 0.05  # probability that a bound is ever wrong
_STAKES = np.geomspace(0.1, 3.2, 11)
_USUAL_STAKE = 0.9  # most weight on those that show effects of 0.1 to 0.4
_STAKE_SPREAD = 0.7
_OUTCOME_VARIANCE = 0.2  # the usual one; the best stake is the effect divided by it
_AS_USUAL = 4  # pseudo-units by which a kind of request starts at the overall rate
_SAFE = 0.95  # of the stake at which one loss ends all evidence
_NEAR = np.array([0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0])
_EFFECTS = np.concatenate([-_NEAR[::-1], [0], _NEAR])  # the grid of hypothetical effects
_GRID = np.linspace(-1, 1, 201)
_PARTS = np.linspace(0, 1, 33)  # of the way between two grid points
_HALVINGS = 20  # bisection steps
_AT_ONCE = 16  # factors multiplied per logarithm, which is the slow part


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferEffectBounds:
    """Bounds on the effect of offering, valid at this and every earlier look."""

    low: float = -1.0
    high: float = 1.0
    offered: int = 0  # units per variant
    withheld: int = 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ItemExposurePayoffs:
    """Randomised exposures of one item in order of time: the payoff of each, and how much the effect adds to it."""

    payoffs: Floats
    assignment_variances: Floats
    max_stake_up: Floats  # the largest stake whose factor stays positive
    max_stake_down: Floats

    @classmethod
    def from_rows(cls, rows: ObservationTable, expected: Floats) -> ItemExposurePayoffs:
        """`expected` is the predicted success of each exposure, between 0 and 1, from what was known before it."""
        chance, adds = rows.propensity, rows.propensity * (1 - rows.propensity)
        return cls(
            payoffs=(rows.success - expected) * (rows.is_offered - chance),
            assignment_variances=adds,
            max_stake_up=_SAFE / (np.maximum(expected * (1 - chance), (1 - expected) * chance) + adds),
            max_stake_down=_SAFE / (np.maximum(expected * chance, (1 - expected) * (1 - chance)) + adds),
        )

    def compute_evidence_factors_of_exposures(self, effects: Floats, *, up: bool) -> Floats:
        """Return the factor by which each exposure changes the evidence of each stake against each effect."""
        gains = self.payoffs[:, None] - self.assignment_variances[:, None] * effects
        stakes = np.minimum(_STAKES, (self.max_stake_up if up else self.max_stake_down)[:, None])
        return np.asarray(1 + stakes[:, None, :] * (gains if up else -gains)[:, :, None], dtype=np.float64)

    def compute_log_evidence_after_each_exposure(self, effect: float, *, up: bool) -> Floats:
        """Return the log evidence after every exposure against the hypothesis that the effect is at most `effect`."""
        return _mix_log_evidence_over_stakes(
            np.log(self.compute_evidence_factors_of_exposures(np.array([effect]), up=up)[:, 0]).cumsum(0)
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ItemBettingEvidenceSums:
    """Sums over the exposures of one item: log evidence by direction, by hypothetical effect, and by stake."""

    log_capitals: Floats
    outcomes_by_kind: Floats  # per kind of request: units, and successes
    offered: int = 0
    withheld: int = 0
    squared_payoffs: float = 0.0  # sum
    assignment_variance: float = 0.0

    @classmethod
    def empty(cls) -> ItemBettingEvidenceSums:
        return cls(log_capitals=np.zeros((2, len(_EFFECTS), len(_STAKES))), outcomes_by_kind=np.zeros((2, KINDS)))

    def with_exposures(self, rows: ObservationTable) -> ItemBettingEvidenceSums:
        """Return the state after more randomised exposures, in order of time."""
        expected, went = predict_success_of_each_exposure(rows, self.outcomes_by_kind)
        plays = ItemExposurePayoffs.from_rows(rows, expected)
        won = np.stack(
            [
                _compute_log_of_product(plays.compute_evidence_factors_of_exposures(_EFFECTS, up=up))
                for up in (False, True)
            ]
        )
        return ItemBettingEvidenceSums(
            log_capitals=self.log_capitals + won,
            outcomes_by_kind=went,
            offered=self.offered + int(rows.is_offered.sum()),
            withheld=self.withheld + int((~rows.is_offered).sum()),
            squared_payoffs=self.squared_payoffs + float(plays.payoffs @ plays.payoffs),
            assignment_variance=self.assignment_variance + float(plays.assignment_variances.sum()),
        )

    def compute_log_evidence(self, effect: float, *, up: bool, expected: float = 0.0) -> float:
        """Return the log evidence against an effect that is at most (`up`) or at least (not `up`) this.

        Between two grid points the logarithm is concave, so linear interpolation is conservative. `expected` is an
        effect that was known to be likely before the first exposure: it sets the stakes, and nothing else.
        """
        place = min(int(np.searchsorted(_EFFECTS, effect, side="right")), len(_EFFECTS) - 1)
        below, above = _EFFECTS[place - 1], _EFFECTS[place]
        part = (effect - below) / (above - below)
        capital = self.log_capitals[int(up)]
        return float(
            _mix_log_evidence_over_stakes(
                capital[place - 1] * (1 - part) + capital[place] * part, _compute_log_prior_of_stakes(expected)
            )
        )


def predict_success_of_each_exposure(rows: ObservationTable, went: Floats) -> tuple[Floats, Floats]:
    """Predict each exposure from those before it, mostly of its own kind; also return the updated counts."""
    is_kind = rows.kind[:, None] == np.arange(KINDS)
    each = np.stack([is_kind, is_kind * rows.success[:, None]], axis=1)
    after = went + each.cumsum(0)
    before = after - each
    whole, of_kind = before.sum(2), before[np.arange(len(rows.kind)), :, rows.kind]
    overall = (whole[:, 1] + 1) / (whole[:, 0] + 2)
    return (of_kind[:, 1] + _AS_USUAL * overall) / (of_kind[:, 0] + _AS_USUAL), after[-1]


def _compute_log_of_product(factors: Floats) -> Floats:
    """Return the logarithm of the product over all exposures."""
    starts = np.arange(0, len(factors), _AT_ONCE)
    return np.asarray(np.log(np.multiply.reduceat(factors, starts)).sum(0), dtype=np.float64)


def _compute_log_prior_of_stakes(expected: float = 0.0) -> Floats:
    """Return the log prior weight of each stake: most near the best one for the expected effect."""
    centre = min(max(abs(expected) / _OUTCOME_VARIANCE, _STAKES[0]), _STAKES[-1]) if expected else _USUAL_STAKE
    trust = np.exp(-0.5 * (np.log(_STAKES / centre) / _STAKE_SPREAD) ** 2)
    return np.asarray(np.log(trust / trust.sum()), dtype=np.float64)


_SHARES = _compute_log_prior_of_stakes()


def _mix_log_evidence_over_stakes(capitals: Floats, shares: Floats = _SHARES) -> Floats:
    """Return the log of the evidence mixed over all stakes."""
    return np.asarray(np.logaddexp.reduce(capitals + shares, axis=-1), dtype=np.float64)


def find_effect_bound(betting: ItemBettingEvidenceSums) -> OfferEffectBounds:
    """Return the bound; unbounded while one variant has no outcomes, because then they may be missing by variant."""
    if not (betting.offered and betting.withheld):
        return OfferEffectBounds(offered=betting.offered, withheld=betting.withheld)
    enough = math.log(2 / ERROR)  # half of the error per direction
    return OfferEffectBounds(
        low=_find_largest_refuted_effect(betting.log_capitals[1], enough),
        high=-_find_largest_refuted_effect(betting.log_capitals[0, ::-1], enough),  # the grid is symmetric around zero
        offered=betting.offered,
        withheld=betting.withheld,
    )


def _find_largest_refuted_effect(capital: Floats, enough: float) -> float:
    """Return the largest effect refuted along with all smaller ones, to a thousandth of a grid step."""
    place = _find_index_of_first_false(_mix_log_evidence_over_stakes(capital) >= enough)
    if not place:
        return -1.0
    low, width = 0.0, 1.0
    for _ in range(2):
        parts = (low + width * _PARTS)[:, None]
        among = _mix_log_evidence_over_stakes(capital[place - 1] * (1 - parts) + capital[place] * parts)
        low += width * float(_PARTS[_find_index_of_first_false(among >= enough) - 1])
        width *= float(_PARTS[1])
    return float(_EFFECTS[place - 1] * (1 - low) + _EFFECTS[place] * low)


def _find_index_of_first_false(flags: Flags) -> int:
    """Return the index of the first False, else the last index."""
    return int(np.argmin(flags[:-1])) if not flags[:-1].all() else len(flags) - 1


def search_largest_refuted_effect(is_refuted: Callable[[float], bool]) -> float:
    """Return the largest effect that is refuted along with all smaller ones; -1 if none is."""
    low, high = -1.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def is_version_worse_than_predecessor(
    version: ItemBettingEvidenceSums, predecessor: ItemBettingEvidenceSums, *, error: float = ERROR
) -> bool:
    """Return whether a version is shown to help less than its predecessor, each against its own withheld units.

    If it were as good, some effect would be neither too large for the one nor too small for the other, so betting
    against it on both sides would gain nothing. Between grid points the smaller gain of both counts.
    """
    against_version = [version.compute_log_evidence(effect, up=False) for effect in _GRID[:-1]]
    against_predecessor = [predecessor.compute_log_evidence(effect, up=True) for effect in _GRID[1:]]
    return min(a + b for a, b in zip(against_version, against_predecessor, strict=True)) >= math.log(1 / error)
