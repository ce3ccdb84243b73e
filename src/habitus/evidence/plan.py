"""How long until a verdict at today's rate, and what withholding costs meanwhile."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from habitus.evidence.bounds import ERROR, Game
from habitus.evidence.lift import Estimate
from habitus.evidence.model import Observation

WORTH_KNOWING = 0.1  # the effect that we plan to notice, unless a larger one is likely
_RECENT_DAYS = 30.0
_DETOUR = 1.5  # what it costs not to know the right stake, in the logarithm of capital
_NOISE = 0.25  # the variance of a yes or no that goes either way, before any was seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    effect: float  # that would be noticed
    a_day: float  # units with an explicit outcome
    missing: int | None  # units that are still needed, both arms together; none: for ever, as nothing is withheld
    days: float | None  # until then; none: at today's rate never
    cost_a_day: float  # units that would have gone well, had nothing been withheld; below zero: that were spared


def plan(estimate: Estimate, game: Game, mine: Iterable[Observation], *, withhold: float) -> Plan:
    """Of one item, from its own observations, if this share is withheld from now on."""
    likely = estimate.offering.value if estimate.offering else 0.0
    effect = max(WORTH_KNOWING, abs(likely))
    missing = _missing(game, effect, withhold)
    a_day = _a_day([one.age_days for one in mine if one.is_explicit and one.success is not None])
    days = missing / a_day if a_day and missing is not None else None
    return Plan(effect=effect, a_day=a_day, missing=missing, days=days, cost_a_day=a_day * withhold * likely)


def _a_day(ages: list[float]) -> float:
    """How many came in the last days; a shorter history counts as long as it is, and as a day at least."""
    recent = [age for age in ages if age <= _RECENT_DAYS]
    return len(recent) / min(_RECENT_DAYS, max(1.0, *ages)) if recent else 0.0


def _missing(game: Game, effect: float, withhold: float) -> int | None:
    """How much our capital grows with each unit, and how much of it a verdict still needs."""
    spread = withhold * (1 - withhold)
    noise = (float(np.sum(game.pays**2)) + _NOISE) / (float(np.sum(game.adds)) + 1)
    growth = effect**2 * spread / (2 * noise)
    won, enough = max(0.0, game.fortune(0, up=True), game.fortune(0, up=False)), math.log(2 / ERROR)
    if won >= enough:
        return 0
    return math.ceil((enough + _DETOUR - won) / growth) if growth else None
