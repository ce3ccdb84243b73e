"""Sufficient statistics per period for a regression and a randomised contrast, and the observation table they come
from.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from habitus.evidence.model import EvidenceItem, ItemObservation

_RIDGE = 1.0  # one pseudo-unit without effect per item and kind
_TINY = 1e-6
_NOISE, _NOISE_ROWS = 0.2, 10.0  # prior variance of a binary outcome, and its pseudo-units
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PeriodRegressionSums:
    """Sums over units. A feature of a unit is its kind of request, or the chance that it was offered an item.

    The draw of a randomised item is whether it was offered minus its propensity.
    """

    units: Floats  # count, and sums of days, outcomes and squared outcomes
    gram: Floats  # per pair of features: the sum of their products
    moments: Floats  # per feature: sum of outcomes
    payoffs: Floats  # per item: sum of draw times outcome
    assignment_variances: Floats  # per item: sum of the draws' variances
    draw_products: Floats  # per item and feature: sum of draws

    @classmethod
    def from_table(cls, table: ObservationTable, features: Floats, columns: Numbers) -> PeriodRegressionSums:
        """Sum rows that have an outcome; a row of `features` is a unit, and `columns` maps items to features."""
        outcomes, days = (
            _average_rows_per_unit(table, each, len(features)) for each in (table.success, -table.age_days)
        )
        seen = np.bincount(table.unit, minlength=len(features)) > 0
        features = features * seen[:, None]
        drawn = table.select_rows(table.is_offer_randomized)
        draw, column = drawn.is_offered - drawn.propensity, columns[drawn.item]
        draws = np.zeros(features.shape)
        draws[drawn.unit, column] = draw

        def sum_by_column(values: Floats) -> Floats:
            return np.asarray(np.bincount(column, weights=values, minlength=features.shape[1]), dtype=np.float64)

        return cls(
            units=np.array([seen.sum(), days.sum(), outcomes.sum(), outcomes @ outcomes]),
            gram=features.T @ features,
            moments=features.T @ outcomes,
            payoffs=sum_by_column(draw * drawn.success),
            assignment_variances=sum_by_column(drawn.propensity * (1 - drawn.propensity)),
            draw_products=draws.T @ features,
        )

    def pad_for_later_features(self, width: int) -> PeriodRegressionSums:
        """Return the sums padded for features that came later."""
        more = width - len(self.moments)
        if not more:
            return self
        kept = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "units"}
        return PeriodRegressionSums(units=self.units, **{name: np.pad(sums, (0, more)) for name, sums in kept.items()})

    def __add__(self, other: PeriodRegressionSums) -> PeriodRegressionSums:
        width = max(len(self.moments), len(other.moments))
        one, two = self.pad_for_later_features(width), other.pad_for_later_features(width)
        return PeriodRegressionSums(
            **{each.name: getattr(one, each.name) + getattr(two, each.name) for each in fields(self)}
        )


def _average_rows_per_unit(table: ObservationTable, values: Floats, units: int) -> Floats:
    """Return the mean of each unit; 0 for one without rows."""
    rows = np.bincount(table.unit, minlength=units)
    return np.asarray(np.bincount(table.unit, weights=values, minlength=units) / np.maximum(rows, 1), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RidgeFit:
    """A ridge regression of outcomes on features."""

    level: float
    inverse: Floats
    effects: Floats  # of each feature

    @classmethod
    def fit_sums(cls, total: PeriodRegressionSums, kinds: Numbers) -> RidgeFit:
        level = float((total.units[2] + 1) / (total.units[0] + 2))
        inverse: Floats = np.asarray(np.linalg.inv(total.gram + _RIDGE * np.eye(len(total.moments))), dtype=np.float64)
        return cls(level=level, inverse=inverse, effects=inverse @ (total.moments - level * total.gram[kinds].sum(0)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ItemEffectScores:
    """Two scores per item and period: a row is a period, a column an item.

    The mean of a score is its information times the effect; that of the association also contains the item's bias. The
    noise of both is independent: a draw has mean zero whatever the chance of the offer, which is all the other uses.
    """

    days: Floats  # of each period
    noise: float  # residual variance of an outcome; a score's variance is its spread times this
    randomized: Floats  # score of the randomised contrast
    randomized_information: Floats  # also its spread: of draws that happen to be alike, their variance says too little
    association: Floats  # score of the adjusted association
    association_information: Floats
    association_spread: Floats


def compute_item_effect_scores(
    periods: Sequence[PeriodRegressionSums], columns: Numbers, kinds: Numbers, is_drawn: Flags
) -> ItemEffectScores:
    """Score items by their features; an item without outcomes in both variants has no randomised score."""
    total = reduce(add, periods)
    width = len(total.moments)
    fit = RidgeFit.fit_sums(total, kinds)
    # The share of an effect that the data determines, not the ridge.
    told = np.maximum(1 - _RIDGE * np.diag(fit.inverse)[columns], _TINY)
    pull = np.where(told > _TINY, fit.inverse[:, columns] / told, 0)
    own = fit.effects[columns]
    found = []
    for period in (each.pad_for_later_features(width) for each in periods):
        count, _, outcomes, _ = period.units
        features = period.gram[kinds].sum(0)  # the sum of each, because a unit has one kind
        gram = period.gram - np.outer(features, features) / count  # centred on the period's own level
        rest = period.moments - features * outcomes / count - gram @ fit.effects
        level = (outcomes - features @ fit.effects) / count
        pulls = period.draw_products[columns]
        draws = pulls[:, kinds].sum(1)
        information = (pull * gram[:, columns]).sum(0)
        drawn = period.payoffs[columns] - level * draws - pulls @ fit.effects
        found.append(
            (
                drawn * is_drawn,
                period.assignment_variances[columns] * is_drawn,
                pull.T @ rest + information * own / told,
                information,
                np.maximum((pull * (gram @ pull)).sum(0), 0),
            )
        )
    drawn, drawn_information, seen, seen_information, seen_spread = np.swapaxes(np.array(found), 0, 1)
    return ItemEffectScores(
        days=np.array([period.units[1] / period.units[0] for period in periods]),
        noise=_estimate_residual_variance(total, fit, kinds),
        randomized=drawn,
        randomized_information=drawn_information,
        association=seen,
        association_information=seen_information,
        association_spread=seen_spread,
    )


def _estimate_residual_variance(total: PeriodRegressionSums, fit: RidgeFit, kinds: Numbers) -> float:
    count, _, outcomes, squares = total.units
    moments = total.moments - fit.level * total.gram[kinds].sum(0)
    around = squares - 2 * fit.level * outcomes + fit.level**2 * count
    left = around - 2 * fit.effects @ moments + fit.effects @ total.gram @ fit.effects
    freedom = max(float(count) - (len(moments) - _RIDGE * float(np.trace(fit.inverse))), 0.0)
    return (max(float(left), 0.0) + _NOISE * _NOISE_ROWS) / (freedom + _NOISE_ROWS)


Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
KINDS = 16  # distinct kinds of request; more than these share numbers
T = TypeVar("T", bound=Hashable)
_ROWS = (
    *("unit", "item", "kind", "is_offered", "is_used", "is_explicit", "is_ignored", "is_trial"),
    *("propensity", "success", "tokens", "age_days"),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ObservationTable:
    """Observations as columns; items and units are numbered by first appearance, a missing success is nan."""

    items: tuple[EvidenceItem, ...]
    units: int
    unit: Numbers
    item: Numbers
    kind: Numbers
    is_offered: Flags
    is_used: Flags
    is_explicit: Flags
    is_ignored: Flags  # used without a trace
    is_trial: Flags
    propensity: Floats
    success: Floats
    tokens: Floats
    age_days: Floats

    @classmethod
    def from_observations(cls, observations: Iterable[ItemObservation], *, today: float = 0.0) -> ObservationTable:
        """Of two rows about one item in one unit the last counts. Ages are relative to day 0, not today."""
        rows = list(observations)
        units, unit = _number_distinct_values([one.unit for one in rows])
        items, item = _number_distinct_values([one.item for one in rows])
        kinds, kind = _number_distinct_values([one.request_kind for one in rows])
        apart = np.array([zlib.crc32(each.encode("utf-8", "surrogatepass")) % KINDS for each in kinds], dtype=np.int64)
        propensity = _build_array_with_nan([one.propensity for one in rows])
        told = cls(
            items=tuple(items),
            units=len(units),
            unit=unit,
            item=item,
            kind=apart[kind] if kinds else kind,
            is_offered=np.array([one.is_offered for one in rows], dtype=np.bool_),
            is_used=np.array([one.is_used for one in rows], dtype=np.bool_),
            is_explicit=np.array([one.is_explicit for one in rows], dtype=np.bool_),
            is_ignored=np.array([one.is_used and one.has_trace is False for one in rows], dtype=np.bool_),
            is_trial=np.array([one.is_trial for one in rows], dtype=np.bool_),
            propensity=np.clip(np.where(np.isnan(propensity), 1, propensity), 0, 1),
            success=np.clip(_build_array_with_nan([one.success for one in rows]), 0, 1),
            tokens=_build_array_with_nan([one.tokens for one in rows]),
            age_days=_clamp_ages([one.age_days for one in rows]) - today,
        )
        return told.select_rows(told._find_last_row_of_each_unit_and_item())

    def _find_last_row_of_each_unit_and_item(self) -> Numbers:
        """Return the indices of the rows that count, oldest first."""
        _, from_behind = np.unique((self.unit * len(self.items) + self.item)[::-1], return_index=True)
        kept = np.sort(len(self.unit) - 1 - from_behind)
        return kept[np.argsort(-self.age_days[kept], kind="stable")]

    def select_rows(self, chosen: Flags | Numbers | slice) -> ObservationTable:
        """Return some of the rows; the numbering of items, units and kinds stays."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _ROWS})

    def without_unused_items(self) -> ObservationTable:
        """Return the table without items that have no row."""
        left, item = np.unique(self.item, return_inverse=True)
        return replace(self, items=tuple(self.items[number] for number in left), item=item)

    def compute_unit_positions_in_time(self) -> Numbers:
        """Return for each row the position of its unit in time."""
        _, first, number = np.unique(self.unit, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[number]

    @property
    def is_offer_randomized(self) -> Flags:
        """Whether the offer was randomised."""
        return (self.propensity > 0) & (self.propensity < 1)

    @property
    def has_outcome(self) -> Flags:
        return ~np.isnan(self.success)


def _build_array_with_nan(values: Sequence[float | None]) -> Floats:
    """Return an array; None becomes nan."""
    return np.array(values, dtype=np.float64)


def _clamp_ages(days: Sequence[float]) -> Floats:
    """Return ages of at least 0, also if a clock went backwards."""
    return np.maximum(np.nan_to_num(_build_array_with_nan(days), nan=0, posinf=0, neginf=0), 0)


def _number_distinct_values(values: Sequence[T]) -> tuple[list[T], Numbers]:
    """Return the distinct values by first appearance, and the number of each value among them."""
    numbers: dict[T, int] = {}
    found = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), np.array(found, dtype=np.int64)
