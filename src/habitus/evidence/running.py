"""Running sums of all that evidence counts: of a unit that has gone in, no row is needed any more.

They are kept between two processes as bytes, from which nothing but numbers and names is read back.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from habitus.evidence.bounds import Game
from habitus.evidence.model import Item, ItemKind
from habitus.evidence.sums import KINDS, Floats, Period, Table

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


_FORM = 2  # to be raised with every change of what the sums are sums of
_SIDES = ("explicit", "weak")
_FAST = 1  # of zlib: what is read with every question is made anew only now and then


def pack(running: Running, about: Mapping[str, Any]) -> bytes:
    """With whatever else has to be known about them: a line of JSON, then the numbers, eight bytes each."""
    items = [feature for feature in running.columns if isinstance(feature, Item)]
    features = [[each.kind, each.name, each.version] if isinstance(each, Item) else each for each in running.columns]
    days = [running.days[item] for item in items]
    arrays = {
        "counts": np.array([running.counts[item] for item in items]),
        "days": np.concatenate([np.zeros(0), *days]),
        "ends": np.cumsum([len(each) for each in days], dtype=np.int64),
    }
    for each in fields(Game):
        arrays[f"game {each.name}"] = np.array([getattr(running.games.get(i, NO_GAME), each.name) for i in items])
    for side in _SIDES:
        periods = [period.widen(len(running.columns)) for period in getattr(running, side)]
        for each in fields(Period):
            arrays[f"{side} {each.name}"] = np.array([getattr(period, each.name) for period in periods])
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    words = {"form": _FORM, "features": features, "portion": running.portion, "units": running.units, "shapes": shapes}
    numbers = b"".join(array.tobytes() for array in arrays.values())
    return zlib.compress(json.dumps({**words, **about}).encode() + b"\n" + numbers, _FAST)


def unpack(packed: bytes) -> tuple[Running, dict[str, Any]] | None:
    """None where the bytes are damaged, or of a release that sums otherwise."""
    try:
        line, _, numbers = zlib.decompress(packed).partition(b"\n")
        words = json.loads(line)
        return (_running(words, _arrays(words["shapes"], numbers)), words) if words["form"] == _FORM else None
    except (ValueError, KeyError, TypeError, IndexError, zlib.error):
        return None


def _arrays(shapes: list[tuple[str, str, list[int]]], numbers: bytes) -> dict[str, Any]:
    arrays, place = {}, 0
    for name, kind, shape in shapes:
        array = np.frombuffer(numbers, kind, int(np.prod(shape)), place).reshape(shape)
        arrays[name], place = array, place + array.nbytes
    return arrays


def _running(words: Mapping[str, Any], arrays: Mapping[str, Any]) -> Running:
    features = [
        each if isinstance(each, int) else Item(kind=ItemKind(each[0]), name=each[1], version=each[2])
        for each in words["features"]
    ]
    items = [each for each in features if isinstance(each, Item)]
    periods = {side: _rows(Period, side, arrays) for side in _SIDES}
    return Running(
        columns={feature: number for number, feature in enumerate(features)},
        explicit=periods["explicit"],
        weak=periods["weak"],
        games=dict(zip(items, _rows(Game, "game", arrays), strict=True)),
        counts={item: Counts(*each) for item, each in zip(items, arrays["counts"], strict=True)},
        days=dict(zip(items, np.split(arrays["days"], arrays["ends"])[:-1], strict=True)),
        portion=words["portion"],
        units=words["units"],
    )


def _rows(kind: Any, prefix: str, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    columns = {each.name: arrays[f"{prefix} {each.name}"] for each in fields(kind)}
    numbers = range(len(next(iter(columns.values()))))
    return tuple(kind(**{name: values[number] for name, values in columns.items()}) for number in numbers)
