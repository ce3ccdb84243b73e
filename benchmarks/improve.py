"""Gate and exam of `skills improve` alone, on simulated tasks, in three regimes of noise.

    python benchmarks/improve.py [--runs 2000] [--seed 0]

Tasks have their `own rates` of passing, from Beta(1.2, 0.8); or nearly the same outcome each time (Beta(0.12, 0.08),
`near-deterministic`); or always the same (`deterministic`, as at temperature 0). A worthless edit draws the rates of
20 % of the tasks anew. With own rates an edit adds its points to each task, within 0 and 1; in the other regimes it
turns as many failing tasks into passing ones (or the other way) as these points are of all tasks.

`accepted` is the share of runs in which the gate accepted any candidate, `rounds` what one took on average. `covered`
is how often the exam's 95 % interval holds the effect on new tasks, `proposed` how often an exam that follows an
acceptance has its centre above zero.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import _report
from habitus.improve.exam import compute_pass_rate_difference_interval
from habitus.improve.gate import MOST_ROUNDS, GateRule, RolloutPairCounts, compute_sign_flip_p_value

CANDIDATES = 20
REROLLED = 0.2
REGIMES = ("own rates", "near-deterministic", "deterministic")
GOALS = {"worthless": 0.05, "harmful": 0.005, "covered": 0.93, "first": 0.90, "thirtieth": 0.65}


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Tasks of one regime, and what edits do to them: points, or none for a worthless edit that re-rolls some."""

    regime: str
    tasks: int
    points: float | None = None

    def draw_rates(self, runs: int, draw: np.random.Generator, tasks: int = 0) -> Any:
        shape = (runs, tasks or self.tasks)
        match self.regime:
            case "own rates":
                return draw.beta(1.2, 0.8, shape)
            case "near-deterministic":
                return draw.beta(0.12, 0.08, shape)
            case _:
                return (draw.random(shape) < 0.6).astype(float)

    def change_rates(self, rates: Any, draw: np.random.Generator) -> Any:
        if self.points is None:
            return np.where(
                draw.random(rates.shape) < REROLLED, self.draw_rates(len(rates), draw, rates.shape[1]), rates
            )
        if self.regime == "own rates":
            return np.clip(rates + self.points, 0, 1)
        is_passing, share = rates >= 0.5, 0.6 if self.points < 0 else 0.4
        may_turn = is_passing if self.points < 0 else ~is_passing
        return np.where(may_turn & (draw.random(rates.shape) < abs(self.points) / share), 1 - rates, rates)

    def effect_on_new_tasks(self, draw: np.random.Generator) -> float:
        rates = self.draw_rates(1000, draw, 400)
        return float((self.change_rates(rates, draw) - rates).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    found: dict[str, dict[str, Any]] = {regime: {} for regime in REGIMES}
    for number, regime in enumerate(REGIMES):
        draw = np.random.default_rng(arguments.seed + number)
        for name, result in measure_regime(regime, arguments.runs, draw):
            found[regime][name] = result
            _report.progress(f"{regime}, {name}: {result}")
    _report.show("improve", arguments, {"habitus": {**found, "goals": list_goals(found)}})


def measure_regime(regime: str, runs: int, draw: np.random.Generator) -> Iterator[tuple[str, dict[str, float]]]:
    for tasks in (20, 50):
        yield f"20 worthless, {tasks} tasks", try_candidates(World(regime=regime, tasks=tasks), CANDIDATES, runs, draw)
    harmful = World(regime=regime, tasks=20, points=-0.1)
    yield "20 at -10, 20 tasks", try_candidates(harmful, CANDIDATES, runs, draw)
    for tasks in (20, 40, 80):
        for number in (1, 30):
            world = World(regime=regime, tasks=tasks, points=0.2)
            accepted, rounds = race(GateRule(tasks=tasks, number=number), world, world.draw_rates(runs, draw), draw)
            yield (
                f"+20 as candidate {number}, {tasks} tasks",
                {"accepted": round(float(accepted.mean()), 4), "rounds": round(float(rounds.mean()), 1)},
            )
    for tasks in (4, 10, 20, 40):
        for points in (None, 0.2, -0.1):
            world = World(regime=regime, tasks=tasks, points=points)
            effect = "worthless" if points is None else f"{100 * points:+.0f}"
            yield f"exam of {tasks} tasks, {effect}", examine(world, runs, draw)


def list_goals(found: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Return whether each goal is met in every regime that it holds for."""

    def every(measure: str, *words: str) -> list[float]:
        rows = (row for rows in found.values() for row in rows.items())
        return [result[measure] for name, result in rows if all(word in name for word in words)]

    own = found["own rates"]
    return {
        "any of 20 worthless accepted <= 5 %": max(every("accepted", "worthless,")) <= GOALS["worthless"],
        "any of 20 at -10 accepted <= 0.5 %": max(every("accepted", "at -10")) <= GOALS["harmful"],
        "exam covers >= 93 %": min(every("covered", "exam")) >= GOALS["covered"],
        "own rates: +20 as candidate 1 >= 90 %": own["+20 as candidate 1, 20 tasks"]["accepted"] >= GOALS["first"],
        "own rates: +20 as candidate 30 >= 65 %": own["+20 as candidate 30, 20 tasks"]["accepted"]
        >= GOALS["thirtieth"],
    }


def try_candidates(world: World, candidates: int, runs: int, draw: np.random.Generator) -> dict[str, float]:
    """Try candidates one after the other in every run until one is accepted."""
    rates, is_open, rounds = world.draw_rates(runs, draw), np.ones(runs, dtype=bool), []
    for number in range(1, candidates + 1):
        accepted, took = race(GateRule(tasks=world.tasks, number=number), world, rates, draw)
        rounds.append(took[is_open].mean())
        is_open &= ~accepted
    return {"accepted": round(float(1 - is_open.mean()), 4), "rounds": round(float(np.mean(rounds)), 1)}


def race(gate: GateRule, world: World, old: Any, draw: np.random.Generator) -> tuple[Any, Any]:
    """Return for each run whether the candidate was accepted, and after how many rounds its gate ended."""
    new, runs = world.change_rates(old, draw), len(old)
    accepted, is_open, rounds = np.zeros(runs, dtype=bool), np.ones(runs, dtype=bool), np.zeros(runs)
    for tally in play(old, new, draw, gate.rounds):
        rounds += is_open
        # The exact test over tasks is slow, and asked only where it decides.
        for run in np.flatnonzero(is_open & (gate.is_claim_shown_on_gate_tasks(tally) | tally.is_repeated)):
            accepted[run] = compute_sign_flip_p_value(tally.gains[run].tolist()) <= gate.allowed_error_of_task_test
        is_open &= ~(accepted | tally.is_repeated | gate.is_acceptance_hopeless(tally))
    return accepted, rounds


def play(old: Any, new: Any, draw: np.random.Generator, rounds: int) -> Iterator[RolloutPairCounts]:
    """Yield the tally of all runs after each round."""
    better = worse = np.zeros(len(old))
    gains, before = np.zeros(old.shape, dtype=np.int64), None
    for number in range(1, rounds + 1):
        passed = np.stack([draw.random(old.shape) < old, draw.random(new.shape) < new])
        difference = passed[1].astype(np.int64) - passed[0]
        better, worse = better + (difference > 0).sum(1), worse + (difference < 0).sum(1)
        gains = gains + difference
        is_repeated = np.zeros(len(old), dtype=bool) if before is None else (passed == before).all((0, 2))
        before = passed
        same = number * old.shape[1] - better - worse
        yield RolloutPairCounts(better=better, same=same, worse=worse, gains=gains, is_repeated=is_repeated)


def examine(world: World, runs: int, draw: np.random.Generator) -> dict[str, float]:
    """Return how often the interval holds the effect on new tasks, its mean width, and how often it is proposed."""
    rates, effect = world.draw_rates(runs, draw), world.effect_on_new_tasks(draw)
    *_, last = play(rates, world.change_rates(rates, draw), draw, MOST_ROUNDS)
    means = last.gains / MOST_ROUNDS
    found = [compute_pass_rate_difference_interval(row.tolist()) for row in means]
    return {
        "covered": round(float(np.mean([one.low <= effect <= one.high for one in found])), 4),
        "width": round(float(np.mean([one.high - one.low for one in found])), 2),
        "proposed": round(float((means.mean(1) > 0).mean()), 4),
    }


if __name__ == "__main__":
    main()
