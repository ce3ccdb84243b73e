"""Observations as columns of numbers: cleaned, one row for an item in a unit, the oldest first."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from habitus.evidence.model import Item, Observation

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
T = TypeVar("T", bound=Hashable)

_ROWS = (
    *("unit", "item", "kind", "is_offered", "is_used", "is_explicit", "is_ignored"),
    *("propensity", "success", "tokens", "age_days"),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """Items, units and kinds of request are numbered as they come; a missing success is nan."""

    items: tuple[Item, ...]
    units: int
    kinds: int
    unit: Numbers
    item: Numbers
    kind: Numbers
    is_offered: Flags
    is_used: Flags
    is_explicit: Flags
    is_ignored: Flags  # used without a trace
    propensity: Floats
    success: Floats
    tokens: Floats
    age_days: Floats

    @classmethod
    def of(cls, observations: Iterable[Observation]) -> Table:
        """Of an item that is told twice about one unit, the last word holds."""
        told = {(one.unit, one.item): one for one in observations}
        rows = sorted(told.values(), key=lambda one: -_age(one.age_days))
        units, unit = _numbered([one.unit for one in rows])
        items, item = _numbered([one.item for one in rows])
        kinds, kind = _numbered([one.request_kind for one in rows])
        return cls(
            items=tuple(items),
            units=len(units),
            kinds=len(kinds),
            unit=unit,
            item=item,
            kind=kind,
            is_offered=np.array([one.is_offered for one in rows], dtype=np.bool_),
            is_used=np.array([one.is_used for one in rows], dtype=np.bool_),
            is_explicit=np.array([one.is_explicit for one in rows], dtype=np.bool_),
            is_ignored=np.array([one.is_used and one.has_trace is False for one in rows], dtype=np.bool_),
            propensity=np.clip(np.nan_to_num([one.propensity for one in rows], nan=1.0), 0.0, 1.0),
            success=np.clip([math.nan if one.success is None else one.success for one in rows], 0.0, 1.0),
            tokens=np.array([one.tokens for one in rows], dtype=np.float64),
            age_days=np.array([_age(one.age_days) for one in rows]),
        )

    def where(self, chosen: Flags) -> Table:
        """Some of the rows; the numbers of items, units and kinds stay."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _ROWS})

    def weights(self, half_life_days: float) -> Floats:
        """What each row counts today: half after a half-life."""
        return np.asarray(0.5 ** (self.age_days / half_life_days), dtype=np.float64)

    def per_item(self, values: Flags | Floats) -> Floats:
        """The sum over the rows of each item."""
        sums = np.bincount(self.item, weights=values, minlength=len(self.items))
        return np.asarray(sums, dtype=np.float64)

    @property
    def is_random(self) -> Flags:
        """Whether the offer was drawn, so that it could have gone either way."""
        return (self.propensity > 0) & (self.propensity < 1)

    @property
    def has_outcome(self) -> Flags:
        return ~np.isnan(self.success)


def _age(days: float) -> float:
    """A clock that went backwards makes nothing younger than new."""
    return max(days, 0.0) if math.isfinite(days) else 0.0


def _numbered(values: Sequence[T]) -> tuple[list[T], Numbers]:
    """The different values as they come, and of each its number among them."""
    numbers: dict[T, int] = {}
    found = [numbers.setdefault(value, len(numbers)) for value in values]
    return list(numbers), np.array(found, dtype=np.int64)
