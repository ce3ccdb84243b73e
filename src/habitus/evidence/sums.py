"""Running sums of how units went, period by period: all that a regression and a randomised contrast need, and no
row. They are made from observations as columns of numbers, one row for an item in a unit, the oldest first.
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

from habitus.evidence.model import Item, Observation

_RIDGE = 1.0  # as if each item and kind had been seen once more, doing nothing
_TINY = 1e-6
_NOISE, _NOISE_ROWS = 0.2, 10.0  # the variance of a yes or no, as if so many had been seen before the first
_SAME_ROWS = 0.999  # of a covariance: two looks at the very same rows differ a little
Floats = NDArray[np.float64]


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


Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
KINDS = 16  # of requests that are told apart; of more, some share a number
T = TypeVar("T", bound=Hashable)
_ROWS = (
    *("unit", "item", "kind", "is_offered", "is_used", "is_explicit", "is_ignored", "is_trial"),
    *("propensity", "success", "tokens", "age_days"),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """Items and units are numbered as they come, kinds of request everywhere alike; a missing success is nan."""

    items: tuple[Item, ...]
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
    def of(cls, observations: Iterable[Observation], *, today: float = 0.0) -> Table:
        """Of an item that is told twice about one unit, the last word holds. Ages are counted from day 0, not today."""
        rows = list(observations)
        units, unit = _number_values([one.unit for one in rows])
        items, item = _number_values([one.item for one in rows])
        kinds, kind = _number_values([one.request_kind for one in rows])
        apart = np.array([zlib.crc32(each.encode("utf-8", "surrogatepass")) % KINDS for each in kinds], dtype=np.int64)
        propensity = _numbers([one.propensity for one in rows])
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
            success=np.clip(_numbers([one.success for one in rows]), 0, 1),
            tokens=_numbers([one.tokens for one in rows]),
            age_days=_ages([one.age_days for one in rows]) - today,
        )
        return told.where(told._last_words())

    def _last_words(self) -> Numbers:
        """The rows to keep, the oldest first."""
        _, from_behind = np.unique((self.unit * len(self.items) + self.item)[::-1], return_index=True)
        kept = np.sort(len(self.unit) - 1 - from_behind)
        return kept[np.argsort(-self.age_days[kept], kind="stable")]

    def where(self, chosen: Flags | Numbers | slice) -> Table:
        """Some of the rows; the numbers of items, units and kinds stay."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _ROWS})

    def narrow(self) -> Table:
        """Without the items that no row is about."""
        left, item = np.unique(self.item, return_inverse=True)
        return replace(self, items=tuple(self.items[number] for number in left), item=item)

    def places(self) -> Numbers:
        """Of each row the place of its unit in the order of time."""
        _, first, number = np.unique(self.unit, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[number]

    @property
    def is_random(self) -> Flags:
        """Whether the offer was drawn, so that it could have gone either way."""
        return (self.propensity > 0) & (self.propensity < 1)

    @property
    def has_outcome(self) -> Flags:
        return ~np.isnan(self.success)


def _numbers(values: Sequence[float | None]) -> Floats:
    """None is nan."""
    return np.array(values, dtype=np.float64)


def _ages(days: Sequence[float]) -> Floats:
    """A clock that went backwards makes nothing younger than new."""
    return np.maximum(np.nan_to_num(_numbers(days), nan=0, posinf=0, neginf=0), 0)


def _number_values(values: Sequence[T]) -> tuple[list[T], Numbers]:
    """The different values as they come, and of each its number among them."""
    numbers: dict[T, int] = {}
    found = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), np.array(found, dtype=np.int64)
