"""The adjusted association: how it went where an item was offered, set off against requests of the same kind and
against the other items that were offered with it. It is precise, and biased by whatever chose the item."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from habitus.evidence.table import Floats, Table

_RIDGE = 1.0  # as if each item and kind had been seen once more, doing nothing
_TINY, _UNKNOWN = 1e-9, 1e3
_NOISE, _NOISE_ROWS = 0.2, 10.0  # the variance of a yes or no, as if so many had been seen before the first


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Association:
    effects: Floats  # of each item
    variances: Floats
    expected: Floats  # of each row: how it would have gone without its item's own effect
    leverage: Floats  # of each row: how far its outcome moves its item's effect
    noise: Floats  # of each row: the variance of its outcome around what was expected


def association(table: Table, weights: Floats) -> Association:
    """A weighted ridge regression of the units' outcomes on kinds of request and offered items."""
    kinds, count = table.kinds, len(table.items)
    outcomes, weight = _by_unit(table, weights)
    features = np.zeros((table.units, kinds + count))
    features[table.unit, table.kind] = 1
    features[table.unit[table.is_offered], kinds + table.item[table.is_offered]] = 1
    level = float(weight @ outcomes / weight.sum())
    weighted = features * weight[:, None]
    inverse = np.linalg.inv(weighted.T @ features + _RIDGE * np.eye(kinds + count))
    solution = inverse @ (weighted.T @ (outcomes - level))
    fitted = level + features @ solution
    freedom = weight.sum() - (kinds + count - _RIDGE * np.trace(inverse))
    squares = float(weight @ (outcomes - fitted) ** 2)
    noise = (squares + _NOISE * _NOISE_ROWS) / (max(freedom, 0.0) + _NOISE_ROWS)
    told = np.maximum(1 - _RIDGE * np.diag(inverse)[kinds:], _TINY)  # the share of an effect that is not the ridge's
    pull = weighted @ (inverse[:, kinds:] / told)
    return Association(
        effects=solution[kinds:] / told,
        variances=np.where(told > _TINY, noise * (pull**2).sum(0), _UNKNOWN),
        expected=fitted[table.unit] - solution[kinds + table.item] * table.is_offered,
        leverage=pull[table.unit, table.item],
        noise=np.full(len(table.unit), noise),
    )


def _by_unit(table: Table, weights: Floats) -> tuple[Floats, Floats]:
    """The mean outcome of each unit and what the unit counts; one without a row counts nothing."""
    rows = np.bincount(table.unit, minlength=table.units)
    some = np.maximum(rows, 1)
    outcomes = np.bincount(table.unit, weights=table.success, minlength=table.units) / some
    weight = np.bincount(table.unit, weights=weights, minlength=table.units) / some
    return outcomes, weight
