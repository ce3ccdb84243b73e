"""Running sums of how units went, period by period: all that a regression and a randomised contrast need, and no row.

Sums of two periods add up. When there are too many, neighbours are joined, so that what is kept does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import add

import numpy as np

from habitus.evidence.table import Flags, Floats, Numbers, Table

_RIDGE = 1.0  # as if each item and kind had been seen once more, doing nothing
_TINY = 1e-6
_NOISE, _NOISE_ROWS = 0.2, 10.0  # the variance of a yes or no, as if so many had been seen before the first
_SAME_ROWS = 0.999  # of a covariance: two looks at the very same rows differ a little


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Period:
    """Sums over units. A feature of a unit is its kind of request, or an item that it was offered.

    Where an item was drawn, its draw is whether it was offered less how likely that was.
    """

    units: Floats  # how many, the sum of their days, of their outcomes, and of the squares of these
    gram: Floats  # of each two features: the units that have both
    moments: Floats  # of each feature: the outcomes
    pays: Floats  # of each item: draw times outcome
    chances: Floats  # of each item: the variances of its draws
    squares: Floats  # of each item: its draws squared
    pulls: Floats  # of each item and feature: the draws

    @classmethod
    def of(cls, table: Table, features: Floats, columns: Numbers) -> Period:
        """Of rows with an outcome; a row of `features` is a unit, and `columns` has the feature of each item."""
        outcomes, days = (_means(table, each, len(features)) for each in (table.success, -table.age_days))
        seen = np.bincount(table.unit, minlength=len(features)) > 0
        features = features * seen[:, None]
        drawn = table.where(table.is_random)
        draw, column = drawn.is_offered - drawn.propensity, columns[drawn.item]
        draws = np.zeros(features.shape)
        draws[drawn.unit, column] = draw

        def sum_by_column(values: Floats) -> Floats:
            return np.asarray(np.bincount(column, weights=values, minlength=features.shape[1]), dtype=np.float64)

        return cls(
            units=np.array([seen.sum(), days.sum(), outcomes.sum(), outcomes @ outcomes]),
            gram=features.T @ features,
            moments=features.T @ outcomes,
            pays=sum_by_column(draw * drawn.success),
            chances=sum_by_column(drawn.propensity * (1 - drawn.propensity)),
            squares=sum_by_column(draw**2),
            pulls=draws.T @ features,
        )

    def widen(self, width: int) -> Period:
        """With room for features that came later."""
        more = width - len(self.moments)
        if not more:
            return self
        kept = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "units"}
        return Period(units=self.units, **{name: np.pad(sums, (0, more)) for name, sums in kept.items()})

    def __add__(self, other: Period) -> Period:
        width = max(len(self.moments), len(other.moments))
        one, two = self.widen(width), other.widen(width)
        return Period(**{each.name: getattr(one, each.name) + getattr(two, each.name) for each in fields(self)})


def _means(table: Table, values: Floats, units: int) -> Floats:
    """Of each unit; one without a row has none."""
    rows = np.bincount(table.unit, minlength=units)
    return np.asarray(np.bincount(table.unit, weights=values, minlength=units) / np.maximum(rows, 1), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Fit:
    """A ridge regression of outcomes on features."""

    level: float
    inverse: Floats
    effects: Floats  # of each feature

    @classmethod
    def of(cls, total: Period) -> Fit:
        level = float((total.units[2] + 1) / (total.units[0] + 2))
        inverse: Floats = np.asarray(np.linalg.inv(total.gram + _RIDGE * np.eye(len(total.moments))), dtype=np.float64)
        return cls(level=level, inverse=inverse, effects=inverse @ (total.moments - level * np.diag(total.gram)))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Looks:
    """Two looks at each item in each period: a row is a period, a column an item.

    A score's mean is its information times the effect; that of the association has the item's bias in it, too.
    """

    days: Floats  # of each period
    noise: float  # the variance of an outcome around what was expected: scores have it so many times
    drawn: Floats  # score of the randomised contrast
    drawn_information: Floats
    drawn_spread: Floats
    seen: Floats  # score of the adjusted association
    seen_information: Floats
    seen_spread: Floats
    shared: Floats  # the covariance of both


def looks(periods: Sequence[Period], columns: Numbers, kinds: Numbers, is_drawn: Flags) -> Looks:
    """Of items by their features; of those without outcomes in both arms the draw tells nothing."""
    total = reduce(add, periods)
    width = len(total.moments)
    fit = Fit.of(total)
    told = np.maximum(1 - _RIDGE * np.diag(fit.inverse)[columns], _TINY)  # of an effect, the share not the ridge's
    pull = np.where(told > _TINY, fit.inverse[:, columns] / told, 0)
    own = fit.effects[columns]
    found = []
    for period in (each.widen(width) for each in periods):
        count, _, outcomes, _ = period.units
        features = np.diag(period.gram)
        gram = period.gram - np.outer(features, features) / count  # around the level of the period itself
        rest = period.moments - features * outcomes / count - gram @ fit.effects
        level = (outcomes - features @ fit.effects) / count
        pulls = period.pulls[columns]
        draws = pulls[:, kinds].sum(1)
        information = (pull * gram[:, columns]).sum(0)
        drawn = period.pays[columns] - level * draws - pulls @ fit.effects + own * period.chances[columns]
        shared = ((pulls - np.outer(draws, features) / count) * pull.T).sum(1)
        found.append(
            (
                drawn * is_drawn,
                period.chances[columns] * is_drawn,
                period.squares[columns] * is_drawn,
                pull.T @ rest + information * own / told,
                information,
                np.maximum((pull * (gram @ pull)).sum(0), 0),
                shared * is_drawn * _SAME_ROWS,
            )
        )
    drawn, drawn_information, drawn_spread, seen, seen_information, seen_spread, shared = np.swapaxes(
        np.array(found), 0, 1
    )
    return Looks(
        days=np.array([period.units[1] / period.units[0] for period in periods]),
        noise=_noise(total, fit),
        drawn=drawn,
        drawn_information=drawn_information,
        drawn_spread=drawn_spread,
        seen=seen,
        seen_information=seen_information,
        seen_spread=seen_spread,
        shared=shared,
    )


def _noise(total: Period, fit: Fit) -> float:
    count, _, outcomes, squares = total.units
    moments = total.moments - fit.level * np.diag(total.gram)
    around = squares - 2 * fit.level * outcomes + fit.level**2 * count
    left = around - 2 * fit.effects @ moments + fit.effects @ total.gram @ fit.effects
    freedom = max(float(count) - (len(moments) - _RIDGE * float(np.trace(fit.inverse))), 0.0)
    return (max(float(left), 0.0) + _NOISE * _NOISE_ROWS) / (freedom + _NOISE_ROWS)
