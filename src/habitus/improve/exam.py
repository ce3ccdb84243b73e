"""The exam: an accepted candidate on tasks that were never used for it, looked at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from habitus.evidence.bounds import ERROR
from habitus.evidence.estimation import compute_t_quantile
from habitus.improve.gate import MARGIN, GateHypothesis


@dataclass(frozen=True, kw_only=True, slots=True)
class PassRateDifferenceInterval:
    """The difference of pass rates on tasks like these lies in between."""

    low: float
    high: float


def compute_pass_rate_difference_interval(means: Sequence[float]) -> PassRateDifferenceInterval:
    """Return the 95 % interval for the difference on new tasks, from the mean difference of each task.

    Student's t, as wide as if one more task had been won entirely and one lost: without these two, tasks that all
    repeat their answer would seem to leave no doubt.
    """
    found = np.array(means, dtype=np.float64)
    widened = np.array([*means, 1.0, -1.0])
    width = compute_t_quantile(len(widened) - 1, 1 - ERROR / 2) * float(widened.std(ddof=1)) / math.sqrt(len(widened))
    centre = float(found.mean())
    return PassRateDifferenceInterval(low=max(-1.0, centre - width), high=min(1.0, centre + width))


def is_exam_passed(difference: float, claim: GateHypothesis) -> bool:
    """Return whether the exam's centre supports the claim on tasks that the candidate never met."""
    return difference > (-MARGIN if claim is GateHypothesis.NOT_WORSE else 0.0)
