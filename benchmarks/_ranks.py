"""Rank correlation, where equal values share the mean of their places."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[place], dtype=np.float64)


def correlation(one: Floats, other: Floats) -> float:
    """Nan where one of them is the same everywhere."""
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else float("nan")
