"""All that evidence says at once: of each item its estimate, bound, verdict and plan, and the versions to roll back.

A verdict is what the bounds allow to be done with an item; only bounds decide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from habitus.evidence.bounds import ERROR, Bound, Game, find_bound, is_worse
from habitus.evidence.estimation import Basis, Effect, Estimate, estimates
from habitus.evidence.model import Item, Observation
from habitus.evidence.running import NO_GAME, RECENT_DAYS, Running
from habitus.evidence.sums import Floats, Table

NOTHING = Running()


class Verdict(StrEnum):
    PROMOTE = "promote"  # it helps
    KEEP = "keep"  # it does no harm worth mentioning
    DEGRADE = "degrade"  # it does not help enough to be offered early
    RETIRE = "retire"  # it does harm
    UNKNOWN = "not known yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str


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
class Rollback:
    """A version that is known to do worse than the one before it."""

    item: Item
    to: Item
    reason: str


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


NEGLIGIBLE = 0.05  # a change of so many in one is not worth a place in the prompt
_OFTEN, _MOSTLY = 10, 0.8  # recalled so often, and so large a share without a trace: it is ignored


def judge(estimate: Estimate, bound: Bound) -> Judgement:
    if bound.high < 0:
        return Judgement(verdict=Verdict.RETIRE, reason=f"It does harm: at least {of_100(-bound.high)} fewer go well.")
    if bound.low > 0:
        return Judgement(verdict=Verdict.PROMOTE, reason=f"It helps: at least {of_100(bound.low)} more go well.")
    if is_ignored(estimate):
        reason = f"It was recalled {estimate.used} times and left no trace in {estimate.ignored} of them."
        return Judgement(verdict=Verdict.DEGRADE, reason=reason)
    if bound.high <= NEGLIGIBLE:
        return Judgement(verdict=Verdict.DEGRADE, reason=f"It helps {of_100(bound.high)} at most.")
    if bound.low >= -NEGLIGIBLE:
        return Judgement(
            verdict=Verdict.KEEP, reason=f"It harms {of_100(-bound.low)} at most; whether it helps is open."
        )
    return Judgement(verdict=Verdict.UNKNOWN, reason=_why_unknown(estimate, bound))


def is_ignored(estimate: Estimate) -> bool:
    """Recalled again and again, and nothing it says was done."""
    return estimate.used >= _OFTEN and estimate.ignored >= _MOSTLY * estimate.used


def _why_unknown(estimate: Estimate, bound: Bound) -> str:
    if not bound.offered + bound.withheld:
        said = estimate.offered.explicit + estimate.withheld.explicit
        return "It was never withheld at random." if said else "Nobody said yet how it went."
    if not bound.withheld:
        return f"It was offered in {units(bound.offered)} and withheld in none that was judged."
    if not bound.offered:
        return f"It was withheld in {units(bound.withheld)} and offered in none that was judged."
    return (
        f"Between {of_100(-bound.low)} fewer and {of_100(bound.high)} more go well, "
        f"by {units(bound.offered)} with it and {bound.withheld} without."
    )


def rollbacks(games: Mapping[Item, Game]) -> list[Rollback]:
    """Of each newest version that was put to the draw, whether the one before it was better."""
    versions: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(games):
        if games[item].offered and games[item].withheld:
            versions.setdefault((item.kind, item.name), []).append(item)
    pairs = [(each[-2], each[-1]) for each in versions.values() if len(each) > 1]
    return [
        Rollback(item=new, to=old, reason=_why_back(new, old, games))
        for old, new in pairs
        if is_worse(games[new], games[old])
    ]


def _why_back(new: Item, old: Item, games: Mapping[Item, Game]) -> str:
    counted = (games[item].offered + games[item].withheld for item in (new, old))
    return "Version {} does worse than version {}, by {} and {}.".format(
        new.version, old.version, *(units(count) for count in counted)
    )


def sentence(estimate: Estimate, bound: Bound) -> str:
    """`Helps so far: 8 more of 100 (1 to 15), from 212 conversations. Costs 310 tokens a turn.`"""
    cost = f" Costs {estimate.tokens:,} tokens a turn." if estimate.tokens else ""
    return f"{_effect(estimate, bound)}{cost}"


def _effect(estimate: Estimate, bound: Bound) -> str:
    offered, withheld = estimate.offered, estimate.withheld
    if estimate.offering is None:
        if estimate.weak is None:
            return "Not known yet: nobody said how it went."
        return f"Not known yet: weak signs alone, {_range(estimate.weak)}, from {units(offered.weak + withheld.weak)}."
    source = f"{_range(estimate.offering)}, from {units(offered.explicit + withheld.explicit)}"
    if estimate.basis is Basis.ASSOCIATIONAL:
        return f"Not known: it goes with {source}, and none was withheld to compare."
    return f"{_claim(estimate.offering, bound)} {source}."


def _claim(effect: Effect, bound: Bound) -> str:
    """Only the bound that decides makes sure; all else is how it looks so far."""
    if bound.low > 0:
        return f"Helps: surely {of_100(bound.low)} or more. So far"
    if bound.high < 0:
        return f"Harms: surely {of_100(-bound.high)} or more. So far"
    if effect.low > 0 or effect.high < 0:
        return "Helps so far:" if effect.low > 0 else "Harms so far:"
    return "Not known yet: so far"


def _range(effect: Effect) -> str:
    """`8 more of 100 (1 to 15)`: counted in the direction of the effect."""
    sign = -1 if effect.value < 0 else 1
    value, *ends = (round(100 * sign * part) for part in (effect.value, effect.low, effect.high))
    low, high = sorted(ends)
    return f"{value} {'fewer' if sign < 0 else 'more'} of 100 ({_with_sign(low)} to {_with_sign(high)})"


def _with_sign(number: int) -> str:
    return f"−{-number}" if number < 0 else str(number)


def of_100(share: float) -> str:
    """A share of a whole as a person counts it; what is smaller than one of a hundred is not nothing."""
    hundredths = 100 * share
    return f"{hundredths:.0f} of 100" if hundredths >= 1 else f"{max(hundredths, 0):.1f} of 100"


def units(count: int) -> str:
    return f"{count:,} conversation{'' if count == 1 else 's'}"
