"""All that evidence says at once: of each item its estimate, bound, verdict and plan, and the versions to roll back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from habitus.evidence.bounds import ERROR, Bound, Game, find_bound
from habitus.evidence.lift import Estimate, estimates
from habitus.evidence.model import Item, Observation
from habitus.evidence.policy import Judgement, Rollback, judge, rollbacks, sentence
from habitus.evidence.running import NO_GAME, RECENT_DAYS, Running
from habitus.evidence.table import Floats, Table

NOTHING = Running()


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    item: Item
    estimate: Estimate
    bound: Bound
    judgement: Judgement
    plan: Plan
    sentence: str  # what is known, in plain words
    trial_offered: int = 0  # of its units, those of paired trials
    trial_withheld: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    items: tuple[Finding, ...] = ()
    rollbacks: tuple[Rollback, ...] = ()


def findings(
    observations: Iterable[Observation], *, withhold: float, settled: Running = NOTHING, today: float = 0.0
) -> Findings:
    """Of what is settled and of these observations, which are of other units.

    `withhold` is the share that is withheld from now on, for the plans; nothing else depends on it.
    """
    running = sums_of(observations, settled=settled, today=today)
    found = [_finding(running, estimate, withhold, today) for _, estimate in sorted(estimates(running, today).items())]
    return Findings(items=tuple(found), rollbacks=tuple(rollbacks(running.games)))


def sums_of(observations: Iterable[Observation], *, settled: Running = NOTHING, today: float = 0.0) -> Running:
    return settled.after(Table.of(observations, today=today))


def _finding(running: Running, estimate: Estimate, withhold: float, today: float) -> Finding:
    item, game = estimate.item, running.games.get(estimate.item, NO_GAME)
    limit, (trial_withheld, trial_offered) = find_bound(game), running.counts[item].trials.astype(int).tolist()
    trials = trial_withheld + trial_offered
    apart = f" {trials} of these conversations were trials." if trials else ""
    return Finding(
        item=item,
        estimate=estimate,
        bound=limit,
        judgement=judge(estimate, limit),
        plan=plan(estimate, game, today - running.days[item], withhold=withhold),
        sentence=sentence(estimate, limit) + apart,
        trial_offered=trial_offered,
        trial_withheld=trial_withheld,
    )


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
