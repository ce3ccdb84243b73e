"""Running sums of all that evidence counts: of a unit that has gone in, no row is needed any more.

Units go in in the order of time, so that more of them can be added later with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from habitus.evidence.bounds import Game
from habitus.evidence.model import Item
from habitus.evidence.sums import Period
from habitus.evidence.table import KINDS, Floats, Table

_FIRST = 64  # units of a portion, until there are too many periods
_PERIODS, _ENTRIES = 24, 6_000_000  # at most, and of all their numbers: with many items there are fewer periods
RECENT_DAYS = 30.0
_NO_DAYS, NO_GAME = np.zeros(0), Game.new()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Running:
    """A period has sums of explicit and of weak outcomes; the last one is open until a portion of units is in it."""

    columns: Mapping[Item | int, int] = field(default_factory=dict)  # the feature of each item and kind of request
    explicit: tuple[Period, ...] = ()
    weak: tuple[Period, ...] = ()
    games: Mapping[Item, Game] = field(default_factory=dict)
    counts: Mapping[Item, Counts] = field(default_factory=dict)
    days: Mapping[Item, Floats] = field(default_factory=dict)  # of explicit outcomes: the first, and the last weeks'
    portion: int = _FIRST  # units of a period
    units: int = 0  # in the open one; none: the next one begins

    def after(self, table: Table) -> Running:
        """With units that came later."""
        place = table.places()
        order = np.argsort(place, kind="stable")
        place, table = place[order], table.where(order)
        kept, begins, row = self, 0, 0
        while begins <= place.max(initial=-1):
            begins += kept.portion - kept.units
            end = int(np.searchsorted(place, begins))
            kept, row = kept._with(table.where(slice(row, end))), end
        return kept

    def _with(self, portion: Table) -> Running:
        """With units that have room in the open period."""
        _, first, unit = np.unique(portion.unit, return_index=True, return_inverse=True)
        rows = replace(portion, unit=unit).narrow()
        known = dict(self.columns)
        own = np.array([known.setdefault(item, len(known)) for item in rows.items], dtype=np.int64)
        of_kind = np.array([known.setdefault(kind, len(known)) for kind in range(KINDS)], dtype=np.int64)
        features = np.zeros((len(first), len(known)))
        features[np.arange(len(first)), of_kind[rows.kind[first]]] = 1
        features[unit[rows.is_offered], own[rows.item[rows.is_offered]]] = 1
        judged, weak = (rows.where(rows.has_outcome & (rows.is_explicit == each)) for each in (True, False))
        explicit, signs = (Period.of(each, features, own) for each in (judged, weak))
        drawn = judged.where(judged.is_random)
        mine = {rows.items[number]: drawn.where(drawn.item == number) for number in np.unique(drawn.item)}
        units = self.units + len(first)
        added = Running(
            columns=known,
            explicit=(*self.explicit[:-1], self.explicit[-1] + explicit) if self.units else (*self.explicit, explicit),
            weak=(*self.weak[:-1], self.weak[-1] + signs) if self.units else (*self.weak, signs),
            games={**self.games, **{item: self.games.get(item, NO_GAME).after(each) for item, each in mine.items()}},
            counts={**self.counts, **{i: _add(self.counts.get(i, _NO_COUNTS), each) for i, each in _counts(rows)}},
            days={**self.days, **{i: _days(self.days.get(i, _NO_DAYS), judged, n) for n, i in enumerate(rows.items)}},
            portion=self.portion,
            units=units % self.portion,
        )
        most = max(2, min(_PERIODS, _ENTRIES // len(known) ** 2))
        return added._join_neighbours() if not added.units and len(added.explicit) >= most else added

    def _join_neighbours(self) -> Running:
        """Each two neighbours in one, and portions twice as large."""
        explicit, weak = (
            tuple(reduce(add, each[place : place + 2]) for place in range(0, len(each), 2))
            for each in (self.explicit, self.weak)
        )
        return replace(self, explicit=explicit, weak=weak, portion=2 * self.portion)


class Counts(NamedTuple):
    """Sums over the units of one item, for each arm: withheld, offered."""

    explicit: Floats
    weak: Floats
    missing: Floats
    tokens: Floats
    used: Floats
    ignored: Floats  # used without a trace
    trials: Floats  # units of paired trials
    drawn: Floats
    drawn_weak: Floats  # drawn, and with a weak outcome
    drawn_used: Floats
    weights: Floats  # of the drawn, one divided by how likely the arm was
    squares: Floats  # of the weights
    weights_used: Floats


_NO_COUNTS = Counts(*np.zeros((len(Counts._fields), 2)))


def _counts(rows: Table) -> Iterator[tuple[Item, Counts]]:
    chance = np.where(rows.is_offered, rows.propensity, 1 - rows.propensity)
    weight = np.divide(1, chance, where=rows.is_random, out=np.zeros(len(chance)))
    columns = (
        rows.has_outcome & rows.is_explicit,
        rows.has_outcome & ~rows.is_explicit,
        ~rows.has_outcome,
        rows.tokens,
        rows.is_used,
        rows.is_ignored,
        rows.is_trial,
        rows.is_random,
        rows.is_random & rows.has_outcome & ~rows.is_explicit,
        rows.is_random & rows.is_used,
        weight,
        weight**2,
        weight * rows.is_used,
    )
    arm = 2 * rows.item + rows.is_offered
    sums = [np.bincount(arm, weights=each, minlength=2 * len(rows.items)).reshape(-1, 2) for each in columns]
    for number, item in enumerate(rows.items):
        yield item, Counts(*(each[number] for each in sums))


def _add(one: Counts, two: Counts) -> Counts:
    return Counts(*map(add, one, two))


def _days(before: Floats, rows: Table, number: int) -> Floats:
    days = np.concatenate([before, -rows.age_days[rows.item == number]])
    return days[(days >= days.max() - RECENT_DAYS) | (days == days.min())] if len(days) else days
