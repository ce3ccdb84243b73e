"""All that evidence says at once: of each item its estimate, bound, verdict and plan, and the versions to roll back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from habitus.evidence.bounds import Bound, bound, games
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
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    items: tuple[Finding, ...] = ()
    rollbacks: tuple[Rollback, ...] = ()


def findings(
    observations: Iterable[Observation], *, withhold: float, half_life_days: float = HALF_LIFE_DAYS
) -> Findings:
    """`withhold` is the share that is withheld from now on, for the plans; nothing else depends on it."""
    rows = list(observations)
    of_item: dict[Item, list[Observation]] = {}
    for one in rows:
        of_item.setdefault(one.item, []).append(one)
    estimated, played = estimates(rows, half_life_days=half_life_days), games(rows)
    found = []
    for item, estimate in sorted(estimated.items()):
        game = played[item]
        limit = bound(game)
        found.append(
            Finding(
                item=item,
                estimate=estimate,
                bound=limit,
                judgement=judge(estimate, limit),
                plan=plan(estimate, game, of_item[item], withhold=withhold),
                sentence=sentence(estimate, limit),
            )
        )
    return Findings(items=tuple(found), rollbacks=tuple(rollbacks(played)))
