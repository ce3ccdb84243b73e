"""The exam: an accepted candidate on tasks that were never used for it, looked at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from habitus.evidence.bounds import ERROR
from habitus.improve.gate import MARGIN, GateClaim


@dataclass(frozen=True, kw_only=True, slots=True)
class DifferenceInterval:
    """The difference of pass rates on tasks like these lies in between."""

    low: float
    high: float


def compute_interval(means: Sequence[float]) -> DifferenceInterval:
    """Return the 95 % interval for the difference on new tasks, from the mean difference of each task.

    Student's t, as wide as if one more task had been won entirely and one lost: without these two, tasks that all
    repeat their answer would seem to leave no doubt.
    """
    found = np.array(means, dtype=np.float64)
    widened = np.array([*means, 1.0, -1.0])
    width = _compute_t_quantile(len(widened) - 1) * float(widened.std(ddof=1)) / math.sqrt(len(widened))
    centre = float(found.mean())
    return DifferenceInterval(low=max(-1.0, centre - width), high=min(1.0, centre + width))


def is_exam_passed(difference: float, claim: GateClaim) -> bool:
    """Return whether the exam's centre supports the claim on tasks that the candidate never met."""
    return difference > (-MARGIN if claim is GateClaim.NOT_WORSE else 0.0)


def _compute_t_quantile(freedom: int) -> float:
    """Return the two-sided 95 % quantile of Student's t, by the Cornish-Fisher expansion."""
    z = NormalDist().inv_cdf(1 - ERROR / 2)
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
