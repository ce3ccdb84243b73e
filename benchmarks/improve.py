"""The gate of `skills improve` alone, on simulated tasks, beside the rule "accept when new > old" at equal cost.

    python benchmarks/improve.py [--runs 4000]

Tasks pass at rates drawn from Beta(1.2, 0.8); a candidate adds its points to each, within 0 and 1. `accepted` is the
share of runs in which the gate accepted any candidate, `rollouts` what a candidate took on average, a task and side.
`new_above_old` is the other rule with as many rollouts. In the second table a candidate helps one half of the tasks
and hurts the other, as far as there is room both ways, so that it is worth nothing on others: `exam_error` is the mean
of what the exam says of accepted ones minus that, `gate_says` what the gate measured of them, `new_above_old_claims`
what the best of the candidates scored.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import _report
from habitus.improve.gate import MOST_ROUNDS, Gate, Tally

CANDIDATES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What candidates do to the pass rate of every task, or to one half of the tasks and the other way to the rest."""

    points: float
    tasks: int
    candidates: int = 1
    is_mixed: bool = False

    def changed(self, rates: Any, draw: np.random.Generator) -> Any:
        if not self.is_mixed:
            return np.clip(rates + self.points, 0, 1)
        room = np.minimum(self.points, np.minimum(rates, 1 - rates))
        return rates + draw.choice([-1, 1], size=rates.shape) * room


FIRST = {
    "20 placebo, 10 tasks": World(points=0, tasks=10, candidates=CANDIDATES),
    "20 placebo, 20 tasks": World(points=0, tasks=20, candidates=CANDIDATES),
    "20 placebo, 50 tasks": World(points=0, tasks=50, candidates=CANDIDATES),
    "20 at -10, 10 tasks": World(points=-0.1, tasks=10, candidates=CANDIDATES),
    "20 at -10, 20 tasks": World(points=-0.1, tasks=20, candidates=CANDIDATES),
    "1 at +20, 20 tasks": World(points=0.2, tasks=20),
    "1 at +10, 50 tasks": World(points=0.1, tasks=50),
}
SECOND = {
    f"20 at ±{points}, {tasks} tasks": World(points=points / 100, tasks=tasks, candidates=CANDIDATES, is_mixed=True)
    for points in (10, 20)
    for tasks in (10, 20, 50)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4000)
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {"gate": {}, "mixed": {}}
    for part, worlds in (("gate", FIRST), ("mixed", SECOND)):
        for number, (name, world) in enumerate(worlds.items()):
            found[part][name] = simulate(world, arguments.runs, np.random.default_rng(number))
            _report.progress(f"{name}: {found[part][name]}")
    _report.show("improve", arguments, {"habitus": found})


def simulate(world: World, runs: int, draw: np.random.Generator) -> dict[str, float | None]:
    """All candidates of all runs, one after the other until one is accepted."""
    rates = draw.beta(1.2, 0.8, (runs, world.tasks))
    is_open, rollouts, exams, says = np.ones(runs, dtype=bool), [], [], []
    for number in range(1, world.candidates + 1):
        gate = Gate(tasks=world.tasks, number=number)
        accepted, rounds, measured = race(gate, rates, world.changed(rates, draw), draw)
        rollouts.append(rounds[is_open].mean())
        won = is_open & accepted
        exams.extend(examine(world, int(won.sum()), draw))
        says.extend(measured[won])
        is_open &= ~accepted
    cost = float(np.mean(rollouts))
    scores = best_score(world, rates, max(1, round(cost)), draw)
    return {
        "accepted": round(float(1 - is_open.mean()), 4),
        "rollouts": round(cost, 2),
        "new_above_old": round(float((scores > 0).mean()), 4),
        "gate_says": round(float(np.mean(says)), 4) if says else None,
        "exam_error": round(float(np.mean(exams)), 4) if exams else None,
        "new_above_old_claims": round(float(scores[scores > 0].mean()), 4),
    }


def race(gate: Gate, old: Any, new: Any, draw: np.random.Generator) -> tuple[Any, Any, Any]:
    """Of each run, whether the candidate was accepted, after how many rounds, and the difference measured."""
    runs = len(old)
    accepted, is_open = np.zeros(runs, dtype=bool), np.ones(runs, dtype=bool)
    rounds, measured = np.zeros(runs), np.zeros(runs)
    for tally in play(old, new, draw):
        rounds += is_open
        measured = np.where(is_open, tally.difference, measured)
        accepted |= is_open & gate.is_shown(tally)
        is_open &= ~(accepted | gate.is_hopeless(tally))
    return accepted, rounds, measured


def play(old: Any, new: Any, draw: np.random.Generator, rounds: int = MOST_ROUNDS) -> Iterator[Tally]:
    """The tally of all runs after each round."""
    better = worse = np.zeros(len(old))
    for number in range(1, rounds + 1):
        passed_old, passed_new = draw.random(old.shape) < old, draw.random(new.shape) < new
        better = better + (passed_new & ~passed_old).sum(1)
        worse = worse + (passed_old & ~passed_new).sum(1)
        yield Tally(better=better, same=number * old.shape[1] - better - worse, worse=worse)


def examine(world: World, exams: int, draw: np.random.Generator) -> Any:
    """What as many exams say beyond what a candidate is worth on tasks that nobody has seen."""
    many = draw.beta(1.2, 0.8, 200_000 if exams else 1)
    worth = 0.0 if world.is_mixed else float((world.changed(many, draw) - many).mean())
    rates = draw.beta(1.2, 0.8, (exams, max(1, world.tasks // 2)))
    *_, last = play(rates, world.changed(rates, draw), draw)
    return last.difference - worth


def best_score(world: World, rates: Any, rounds: int, draw: np.random.Generator) -> Any:
    """Of each run the best difference among its candidates, with so many rollouts a task and side."""
    best = np.full(len(rates), -1.0)
    for _ in range(world.candidates):
        *_, last = play(rates, world.changed(rates, draw), draw, rounds)
        best = np.maximum(best, last.difference)
    return best


if __name__ == "__main__":
    main()
