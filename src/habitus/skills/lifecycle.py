"""Decisions about a skill as pure functions: the state it is in and how far a stage can be relied on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from habitus.skills.model import Counters, State

_LOW = 0.1  # reliability is the lower 10 % bound


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The state of a skill with the reason, in words for a person."""

    state: State
    reason: str = ""


def standing(
    *, problem: str | None, distrusted_for: str, held_for: str, disabled_by: str, closed_gates: Sequence[str]
) -> Standing:
    """The first thing that keeps a skill from use decides what a listing calls it."""
    if problem is not None:
        return Standing(state=State.BROKEN, reason=problem)
    if distrusted_for:
        return Standing(state=State.UNTRUSTED, reason=distrusted_for)
    if held_for:
        return Standing(state=State.HELD, reason=held_for)
    if disabled_by:
        return Standing(state=State.DISABLED, reason=disabled_by)
    if closed_gates:
        return Standing(state=State.GATED, reason="; ".join(closed_gates))
    return _OK


_OK = Standing(state=State.OK)


class Transition(StrEnum):
    """What becomes of a skill when its worth is known; a person decides about each, and each can be taken back."""

    STAY = "stay"
    ROLL_BACK = "roll back"  # to the version before
    HIDE = "hide"  # off the menu; people can still call it
    RETIRE = "retire"  # switched off


def transition(*, does_harm: bool, is_useless: bool, is_worse: bool) -> Transition:
    """By what bounds prove of a version, never by counts: a better one before it comes back before all else."""
    if is_worse:
        return Transition.ROLL_BACK
    if does_harm:
        return Transition.RETIRE
    return Transition.HIDE if is_useless else Transition.STAY


def is_judged(counters: Counters) -> bool:
    """Whether anybody could say how a use went."""
    return bool(counters.succeeded or counters.failed)


def reliability(counters: Counters) -> float:
    """Lower 10 % bound of Beta(1 + succeeded, 1 + failed): low while little is known, high only after proof."""
    a, b = 1.0 + counters.succeeded, 1.0 + counters.failed
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if _beta_cdf(a, b, middle) < _LOW:
            low = middle
        else:
            high = middle
    return low


def _beta_cdf(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function by its continued fraction, on the side where it converges fast."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta_cdf(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _continued_fraction(a, b, x) / a


def _continued_fraction(a: float, b: float, x: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 / max(abs(1.0 - (a + b) * x / (a + 1.0)), tiny)
    if 1.0 - (a + b) * x / (a + 1.0) < 0:
        d = -d
    total = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            c = 1.0 + term / c
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = c if abs(c) > tiny else tiny
            total *= d * c
        if abs(d * c - 1.0) < 1e-12:
            break
    return total
