"""The adjusted association: how it went where an item was offered, set off against requests of the same kind and
against the other items that were offered with it. It is precise, and biased by whatever chose the item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from habitus.evidence.table import Flags, Floats, Numbers, Table

_RIDGE = 1.0  # as if each item and kind had been seen once more, doing nothing
_TINY, _UNKNOWN = 1e-9, 1e3
_NOISE, _NOISE_ROWS = 0.2, 10.0  # the variance of a yes or no, as if so many had been seen before the first
_KINDS = 50  # of requests that are told apart: the commonest
_AT_ONCE = 4096  # units, so that many of them take time and not memory


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Association:
    effects: Floats  # of each item
    variances: Floats
    expected: Floats  # of each row: how it would have gone without its item's own effect
    leverage: Floats  # of each row: how far its outcome moves its item's effect
    noise: Floats  # of each row: the variance of its outcome around what was expected


def association(table: Table, weights: Floats) -> Association:
    """A weighted ridge regression of the units' outcomes on kinds of request and offered items."""
    outcomes, weight = _by_unit(table, weights)
    level = float(weight @ outcomes / weight.sum())
    kind = _common(table.kind)
    kinds = int(kind.max()) + 1
    width = kinds + len(table.items)
    gram, moments = _RIDGE * np.eye(width), np.zeros(width)
    for block in _blocks(table, kind, kinds):
        weighted = block.features * weight[block.units, None]
        gram += weighted.T @ block.features
        moments += weighted.T @ (outcomes[block.units] - level)
    inverse = np.linalg.inv(gram)
    solution = inverse @ moments
    told = np.maximum(1 - _RIDGE * np.diag(inverse)[kinds:], _TINY)  # the share of an effect that is not the ridge's
    fitted, squares, leverage = np.empty(table.units), np.zeros(len(told)), np.empty(len(table.unit))
    for block in _blocks(table, kind, kinds):
        fitted[block.units] = level + block.features @ solution
        pull = (block.features * weight[block.units, None]) @ (inverse[:, kinds:] / told)
        squares += (pull**2).sum(0)
        leverage[block.rows] = pull[table.unit[block.rows] - block.units.start, table.item[block.rows]]
    freedom = max(float(weight.sum()) - (width - _RIDGE * float(np.trace(inverse))), 0.0)
    noise = (float(weight @ (outcomes - fitted) ** 2) + _NOISE * _NOISE_ROWS) / (freedom + _NOISE_ROWS)
    return Association(
        effects=solution[kinds:] / told,
        variances=np.where(told > _TINY, noise * squares, _UNKNOWN),
        expected=fitted[table.unit] - solution[kinds + table.item] * table.is_offered,
        leverage=leverage,
        noise=np.full(len(table.unit), noise),
    )


def _by_unit(table: Table, weights: Floats) -> tuple[Floats, Floats]:
    """The mean outcome of each unit and what the unit counts; one without a row counts nothing."""
    rows = np.bincount(table.unit, minlength=table.units)
    some = np.maximum(rows, 1)
    outcomes = np.bincount(table.unit, weights=table.success, minlength=table.units) / some
    weight = np.bincount(table.unit, weights=weights, minlength=table.units) / some
    return outcomes, weight


def _common(kind: Numbers) -> Numbers:
    """The commonest kinds by their rank, and one for all the rest."""
    rank = np.argsort(np.argsort(-np.bincount(kind), kind="stable"), kind="stable")
    return np.minimum(rank[kind], _KINDS)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Block:
    """Some of the units: their rows in the table, and the features of each."""

    units: slice
    rows: Flags
    features: Floats


def _blocks(table: Table, kind: Numbers, kinds: int) -> Iterator[_Block]:
    for start in range(0, table.units, _AT_ONCE):
        units = slice(start, min(start + _AT_ONCE, table.units))
        rows = (table.unit >= units.start) & (table.unit < units.stop)
        unit, offered = table.unit[rows] - start, table.is_offered[rows]
        features = np.zeros((units.stop - start, kinds + len(table.items)))
        features[unit, kind[rows]] = 1
        features[unit[offered], kinds + table.item[rows][offered]] = 1
        yield _Block(units=units, rows=rows, features=features)
