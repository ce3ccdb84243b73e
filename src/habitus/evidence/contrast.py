"""The randomised contrast: how it went where the draw offered an item, less how it went where the draw withheld it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from habitus.evidence.table import Flags, Floats, Table


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contrast:
    """Of each item; where an arm is empty nothing is known, and the numbers are zeros."""

    effects: Floats
    variances: Floats
    shared: Floats  # the covariance with another linear estimate of the same rows
    is_known: Flags


def contrast(table: Table, values: Floats, weights: Floats, noise: Floats, leverage: Floats) -> Contrast:
    """Of values with these variances, each arm weighted by inverse propensity.

    `leverage` is how far each row moves the estimate whose covariance is asked for.
    """
    count = len(table.items)
    rows = table.is_random
    item, offered, chance = table.item[rows], table.is_offered[rows], table.propensity[rows]
    pull = np.where(offered, weights[rows] / chance, -weights[rows] / (1 - chance))
    totals = [np.bincount(item, weights=np.where(arm, np.abs(pull), 0), minlength=count) for arm in (offered, ~offered)]
    is_known = (totals[0] > 0) & (totals[1] > 0)
    total = np.where(offered, totals[0][item], totals[1][item])
    share = np.where(is_known[item], pull / np.where(total > 0, total, 1), 0)

    def summed(each: Floats) -> Floats:
        return np.asarray(np.bincount(item, weights=share * each, minlength=count), dtype=np.float64)

    return Contrast(
        effects=summed(values[rows]),
        variances=summed(share * noise[rows]),
        shared=summed(leverage[rows] * noise[rows]),
        is_known=is_known,
    )
