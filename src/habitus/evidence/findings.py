"""All that evidence says at once: of each item its estimate, bound, verdict and plan, and the versions to roll back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from habitus.evidence.bounds import Bound, find_bound
from habitus.evidence.lift import Estimate, estimates
from habitus.evidence.model import Item, Observation
from habitus.evidence.plan import Plan, plan
from habitus.evidence.policy import Judgement, Rollback, judge, rollbacks
from habitus.evidence.running import NO_GAME, Running
from habitus.evidence.table import Table
from habitus.evidence.words import sentence

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
