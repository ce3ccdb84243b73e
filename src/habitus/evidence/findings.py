"""All that evidence says at once: of each item its estimate, bound, verdict and plan, and the versions to roll back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from habitus.evidence.bounds import Bound, Game, bound, games
from habitus.evidence.lift import HALF_LIFE_DAYS, Estimate, estimates
from habitus.evidence.model import Item, Observation
from habitus.evidence.plan import Plan, plan
from habitus.evidence.policy import Judgement, Rollback, judge, rollbacks
from habitus.evidence.words import sentence


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
    observations: Iterable[Observation], *, withhold: float, half_life_days: float = HALF_LIFE_DAYS
) -> Findings:
    """`withhold` is the share that is withheld from now on, for the plans; nothing else depends on it."""
    rows = list(observations)
    mine: dict[Item, list[Observation]] = {}
    for one in rows:
        mine.setdefault(one.item, []).append(one)
    played = games(rows)
    found = [
        _finding(estimate, played[item], mine[item], withhold)
        for item, estimate in sorted(estimates(rows, half_life_days=half_life_days).items())
    ]
    return Findings(items=tuple(found), rollbacks=tuple(rollbacks(played)))


def _finding(estimate: Estimate, game: Game, mine: Iterable[Observation], withhold: float) -> Finding:
    limit, mine = bound(game), list(mine)
    arms = [one.is_offered for one in mine if one.is_trial]
    apart = f" {len(arms)} of these conversations were trials." if arms else ""
    return Finding(
        item=estimate.item,
        estimate=estimate,
        bound=limit,
        judgement=judge(estimate, limit),
        plan=plan(estimate, game, mine, withhold=withhold),
        sentence=sentence(estimate, limit) + apart,
        trial_offered=arms.count(True),
        trial_withheld=arms.count(False),
    )
