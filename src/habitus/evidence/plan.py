"""How long until a verdict at today's rate, and what withholding costs meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass

from habitus.evidence.bounds import ERROR, Game
from habitus.evidence.lift import Estimate
from habitus.evidence.running import RECENT_DAYS
from habitus.evidence.table import Floats

WORTH_KNOWING = 0.1  # the effect that we plan to notice, unless a larger one is likely
_DETOUR = 1.5  # what it costs not to know the right stake, in the logarithm of capital
_NOISE = 0.25  # the variance of a yes or no that goes either way, before any was seen


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    effect: float  # that would be noticed
    a_day: float  # units with an explicit outcome
    missing: int | None  # units that are still needed, both arms together; none: for ever, as nothing is withheld
    days: float | None  # until then; none: at today's rate never
    cost_a_day: float  # units that would have gone well, had nothing been withheld; below zero: that were spared


def plan(estimate: Estimate, game: Game, ages: Floats, *, withhold: float) -> Plan:
    """Of one item, from the ages of its explicit outcomes in days, if this share is withheld from now on."""
    likely = estimate.offering.value if estimate.offering else 0.0
    effect = max(WORTH_KNOWING, abs(likely))
    missing = _missing(game, effect, withhold)
    a_day = _a_day(ages)
    days = missing / a_day if a_day and missing is not None else None
    return Plan(effect=effect, a_day=a_day, missing=missing, days=days, cost_a_day=a_day * withhold * likely)


def _a_day(ages: Floats) -> float:
    """How many came in the last days; a shorter history counts as long as it is, and as a day at least."""
    return float((ages <= RECENT_DAYS).sum() / min(RECENT_DAYS, ages.max(initial=1.0)))


def _missing(game: Game, effect: float, withhold: float) -> int | None:
    """How much our capital grows with each unit, and how much of it a verdict still needs."""
    spread = withhold * (1 - withhold)
    noise = (game.squares + _NOISE) / (game.adds + 1)
    growth = effect**2 * spread / (2 * noise)
    won, enough = max(0.0, game.fortune(0, up=True), game.fortune(0, up=False)), math.log(2 / ERROR)
    if won >= enough:
        return 0
    return math.ceil((enough + _DETOUR - won) / growth) if growth else None
