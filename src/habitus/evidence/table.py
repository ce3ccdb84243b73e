"""Observations as columns of numbers: cleaned, one row for an item in a unit, the oldest first."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from habitus.evidence.model import Item, Observation

Floats = NDArray[np.float64]
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
