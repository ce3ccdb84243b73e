"""Running sums of all evidence: once a unit is added, its rows are no longer needed.

They are stored between processes as bytes that hold only numbers and names.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import reduce
from operator import add
from typing import Any, NamedTuple, assert_never

import numpy as np

from habitus.evidence.bounds import ItemBettingEvidenceSums
from habitus.evidence.model import EvidenceItem, ItemKind
from habitus.evidence.regression import KINDS, Flags, Floats, ObservationTable, PeriodRegressionSums

_FIRST = 64  # units per period at first; doubles when there are too many periods
_PERIODS, _ENTRIES = 24, 6_000_000  # upper limits of periods and of matrix entries: many items mean fewer periods
RECENT_DAYS = 30.0
_NO_DAYS, NO_BETTING = np.zeros(0), ItemBettingEvidenceSums.empty()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EvidenceSums:
    """Sums per period, of explicit and of weak outcomes; the last period is open until it has `portion` units."""

    columns: Mapping[EvidenceItem | int, int] = field(default_factory=dict)  # column of each item and kind of request
    explicit: tuple[PeriodRegressionSums, ...] = ()
    weak: tuple[PeriodRegressionSums, ...] = ()
    betting: Mapping[EvidenceItem, ItemBettingEvidenceSums] = field(default_factory=dict)
    counts: Mapping[EvidenceItem, ItemSumsByVariant] = field(default_factory=dict)
    days: Mapping[EvidenceItem, Floats] = field(
        default_factory=dict
    )  # of explicit outcomes: the first, and the recent ones
    portion: int = _FIRST  # units per period
    units: int = 0  # in the open period

    def with_units(self, table: ObservationTable) -> EvidenceSums:
        """Return the sums with later units added."""
        place = table.compute_unit_positions_in_time()
        order = np.argsort(place, kind="stable")
        place, table = place[order], table.select_rows(order)
        kept, begins, row = self, 0, 0
        while begins <= place.max(initial=-1):
            begins += kept.portion - kept.units
            end = int(np.searchsorted(place, begins))
            kept, row = kept._with_units_of_open_period(table.select_rows(slice(row, end))), end
        return kept

    def _with_units_of_open_period(self, portion: ObservationTable) -> EvidenceSums:
        """Return the sums with units added that fit into the open period."""
        _, first, unit = np.unique(portion.unit, return_index=True, return_inverse=True)
        rows = replace(portion, unit=unit).without_unused_items()
        known = dict(self.columns)
        own = np.array([known.setdefault(item, len(known)) for item in rows.items], dtype=np.int64)
        of_kind = np.array([known.setdefault(kind, len(known)) for kind in range(KINDS)], dtype=np.int64)
        features = np.zeros((len(first), len(known)))
        features[np.arange(len(first)), of_kind[rows.kind[first]]] = 1
        # The chance of the offer, not the offer: what the draw adds is the randomised contrast's alone, and the
        # association of an item that is in every menu knows nothing.
        features[unit, own[rows.item]] = np.where(rows.is_offer_randomized, rows.propensity, rows.is_offered)
        judged, weak = (rows.select_rows(rows.has_outcome & (rows.is_explicit == each)) for each in (True, False))
        explicit, signs = (PeriodRegressionSums.from_table(each, features, own) for each in (judged, weak))
        drawn = judged.select_rows(judged.is_offer_randomized)
        mine = {rows.items[number]: drawn.select_rows(drawn.item == number) for number in np.unique(drawn.item)}
        units = self.units + len(first)
        added = EvidenceSums(
            columns=known,
            explicit=(*self.explicit[:-1], self.explicit[-1] + explicit) if self.units else (*self.explicit, explicit),
            weak=(*self.weak[:-1], self.weak[-1] + signs) if self.units else (*self.weak, signs),
            betting={
                **self.betting,
                **{item: self.betting.get(item, NO_BETTING).with_exposures(each) for item, each in mine.items()},
            },
            counts={
                **self.counts,
                **{i: _add_counts(self.counts.get(i, _NO_COUNTS), each) for i, each in _compute_item_counts(rows)},
            },
            days={
                **self.days,
                **{
                    i: _append_recent_outcome_days(self.days.get(i, _NO_DAYS), judged, n)
                    for n, i in enumerate(rows.items)
                },
            },
            portion=self.portion,
            units=units % self.portion,
        )
        most = max(2, min(_PERIODS, _ENTRIES // len(known) ** 2))
        return added._merge_neighbouring_periods() if not added.units and len(added.explicit) >= most else added

    def _merge_neighbouring_periods(self) -> EvidenceSums:
        """Merge each pair of neighbouring periods, and double the portion."""
        explicit, weak = (
            tuple(reduce(add, each[place : place + 2]) for place in range(0, len(each), 2))
            for each in (self.explicit, self.weak)
        )
        return replace(self, explicit=explicit, weak=weak, portion=2 * self.portion)


class ItemSumsByVariant(NamedTuple):
    """Sums over the units of one item, per variant: withheld, offered."""

    explicit: Floats
    weak: Floats
    missing: Floats
    tokens: Floats
    used: Floats
    ignored: Floats  # used without a trace
    trials: Floats  # units of paired trials
    drawn: Floats
    drawn_weak: Floats  # randomised, with a weak outcome
    drawn_used: Floats
    weights: Floats  # inverse probability weights of the randomised units
    squares: Floats  # of the weights
    weights_used: Floats


class EvidenceCountKind(StrEnum):
    """The counts of an item's units that are shown."""

    ALL = "all"
    EXPLICIT = "explicit"
    WEAK = "weak"
    MISSING = "missing"
    USED = "used"
    IGNORED = "ignored"
    TRIALS = "trials"
    # Randomised, with an explicit outcome: those that the bound counts.
    RANDOMIZED = "randomized"


def find_rows_of_count_kind(rows: ObservationTable, of: EvidenceCountKind) -> Flags:
    """Return which rows a count counts."""
    kind = EvidenceCountKind
    match of:
        case kind.ALL:
            return np.ones(len(rows.unit), dtype=np.bool_)
        case kind.EXPLICIT:
            return rows.has_outcome & rows.is_explicit
        case kind.WEAK:
            return rows.has_outcome & ~rows.is_explicit
        case kind.MISSING:
            return ~rows.has_outcome
        case kind.USED:
            return rows.is_used
        case kind.IGNORED:
            return rows.is_ignored
        case kind.TRIALS:
            return rows.is_trial
        case kind.RANDOMIZED:
            return rows.is_offer_randomized & rows.has_outcome & rows.is_explicit
        case _:
            assert_never(of)


_NO_COUNTS = ItemSumsByVariant(*np.zeros((len(ItemSumsByVariant._fields), 2)))


def _compute_item_counts(rows: ObservationTable) -> Iterator[tuple[EvidenceItem, ItemSumsByVariant]]:
    chance = np.where(rows.is_offered, rows.propensity, 1 - rows.propensity)
    weight = np.divide(1, chance, where=rows.is_offer_randomized, out=np.zeros(len(chance)))
    explicit, weak, missing, used, ignored, trials = (
        find_rows_of_count_kind(rows, each)
        for each in list(EvidenceCountKind)
        if each.value in ItemSumsByVariant._fields
    )
    columns = (
        explicit,
        weak,
        missing,
        rows.tokens,
        used,
        ignored,
        trials,
        rows.is_offer_randomized,
        rows.is_offer_randomized & weak,
        rows.is_offer_randomized & used,
        weight,
        weight**2,
        weight * used,
    )
    arm = 2 * rows.item + rows.is_offered
    sums = [np.bincount(arm, weights=each, minlength=2 * len(rows.items)).reshape(-1, 2) for each in columns]
    for number, item in enumerate(rows.items):
        yield item, ItemSumsByVariant(*(each[number] for each in sums))


def _add_counts(one: ItemSumsByVariant, two: ItemSumsByVariant) -> ItemSumsByVariant:
    return ItemSumsByVariant(*map(add, one, two))


def _append_recent_outcome_days(before: Floats, rows: ObservationTable, number: int) -> Floats:
    days = np.concatenate([before, -rows.age_days[rows.item == number]])
    return days[(days >= days.max() - RECENT_DAYS) | (days == days.min())] if len(days) else days


_FORM = 7  # increase with every change of the layout or meaning of the sums
_SIDES = ("explicit", "weak")
_GRAMS = {f"{side} gram" for side in _SIDES}
_LEVEL = 3  # of gzip: more takes much longer for little


def serialize_sums(sums: EvidenceSums, about: Mapping[str, Any]) -> bytes:
    """Serialise sums and `about`: a line of JSON, then the numbers, eight bytes each."""
    items = [feature for feature in sums.columns if isinstance(feature, EvidenceItem)]
    features = [
        [each.kind, each.name, each.version] if isinstance(each, EvidenceItem) else each for each in sums.columns
    ]
    days = [sums.days[item] for item in items]
    arrays = {
        "counts": np.array([sums.counts[item] for item in items]),
        "days": np.concatenate([np.zeros(0), *days]),
        "ends": np.cumsum([len(each) for each in days], dtype=np.int64),
    }
    for each in fields(ItemBettingEvidenceSums):
        arrays[f"betting {each.name}"] = np.array([getattr(sums.betting.get(i, NO_BETTING), each.name) for i in items])
    above = np.triu_indices(len(sums.columns))
    for side in _SIDES:
        periods = [period.pad_for_later_features(len(sums.columns)) for period in getattr(sums, side)]
        for each in fields(PeriodRegressionSums):
            values = (getattr(period, each.name) for period in periods)
            # A gram matrix is symmetric.
            kept = [value[above] if each.name == "gram" else value for value in values]
            arrays[f"{side} {each.name}"] = np.array(kept)
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    words = {"form": _FORM, "features": features, "portion": sums.portion, "units": sums.units, "shapes": shapes}
    packed = io.BytesIO()
    # Compressed one after the other, because all arrays together take a hundred megabytes.
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=_LEVEL, mtime=0) as file:
        file.write(json.dumps({**words, **about}).encode() + b"\n")
        for array in arrays.values():
            file.write(array.tobytes())
    return packed.getvalue()


def deserialize_sums(packed: bytes) -> tuple[EvidenceSums, dict[str, Any]] | None:
    """Return the sums; None if the bytes are damaged or from a release with another layout."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            words = json.loads(file.readline())
            return (_sums_from_arrays(words, _read_arrays(file, words)), words) if words["form"] == _FORM else None
    except (ValueError, KeyError, TypeError, IndexError, EOFError, OSError, zlib.error):
        return None


def _read_arrays(file: gzip.GzipFile, words: Mapping[str, Any]) -> dict[str, Any]:
    """Read the arrays one after the other, so that at most one half of the matrices is in memory beside the whole."""
    arrays = {}
    for name, kind, shape in words["shapes"]:
        content = file.read(int(np.prod(shape)) * np.dtype(kind).itemsize)
        array = np.frombuffer(content, kind).reshape(shape)
        arrays[name] = _build_symmetric_matrices(array, len(words["features"])) if name in _GRAMS else array
    # Reading on to the end compares the checksum.
    file.read()
    return arrays


def _sums_from_arrays(words: Mapping[str, Any], arrays: Mapping[str, Any]) -> EvidenceSums:
    features = [
        each if isinstance(each, int) else EvidenceItem(kind=ItemKind(each[0]), name=each[1], version=each[2])
        for each in words["features"]
    ]
    items = [each for each in features if isinstance(each, EvidenceItem)]
    periods = {side: _build_objects_from_columns(PeriodRegressionSums, side, arrays) for side in _SIDES}
    return EvidenceSums(
        columns={feature: number for number, feature in enumerate(features)},
        explicit=periods["explicit"],
        weak=periods["weak"],
        betting=dict(zip(items, _build_objects_from_columns(ItemBettingEvidenceSums, "betting", arrays), strict=True)),
        counts={item: ItemSumsByVariant(*each) for item, each in zip(items, arrays["counts"], strict=True)},
        days=dict(zip(items, np.split(arrays["days"], arrays["ends"])[:-1], strict=True)),
        portion=words["portion"],
        units=words["units"],
    )


def _build_symmetric_matrices(halves: Floats, width: int) -> Floats:
    """Return symmetric matrices from their upper halves."""
    rows, columns = np.triu_indices(width)
    whole = np.zeros((len(halves), width, width))
    for matrix, half in zip(whole, halves, strict=True):
        matrix[rows, columns] = matrix[columns, rows] = half
    return whole


def _build_objects_from_columns(kind: Any, prefix: str, arrays: Mapping[str, Any]) -> tuple[Any, ...]:
    columns = {each.name: arrays[f"{prefix} {each.name}"] for each in fields(kind)}
    numbers = range(len(next(iter(columns.values()))))
    return tuple(kind(**{name: values[number] for name, values in columns.items()}) for number in numbers)
