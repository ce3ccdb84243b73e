"""How well the evidence tells which items help, where the truth is known because the use is made up.

    python benchmarks/utility.py [--episodes 10000] [--seeds 20]

Every scenario at a tenth, three tenths and all of the episodes. `spearman` and `coverage` of a system are those of the
scenario `hidden` with all episodes: the rank correlation with the true effects, and how often its 90 % interval holds
the truth. Items of the same true effect may stand in any order; `spearman_ties_averaged` expects them side by side,
where no estimate without ties can reach more than 0.935. Decisions are looked at after every episode.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import _report
from _ranks import correlation, ranks
from _simulated_use import COUNT, EFFECTIVE, ITEMS, SCENARIOS, Floats, Use, simulate
from _witness import first_sides
from habitus.evidence.estimation import INTERVAL_WIDTH, estimate_item_effects
from habitus.evidence.findings import add_observations_to_sums
from habitus.evidence.model import EvidenceItem, ItemObservation
from habitus.evidence.regression import compute_item_effect_scores
from habitus.evidence.sums import EvidenceSums
from habitus.memory import model
from habitus.memory.model import Engram, LessonCounters, LessonKind, LessonScope

HEADLINE = "hidden"
LARGE = 0.15  # a lift that should be decided
_BARS = "▁▂▃▄▅▆▇█"
_TENTHS = 10


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Guess:
    """What a system says of each item; nan where it says nothing. Some systems give no interval."""

    values: Floats
    lows: Floats | None = None
    highs: Floats | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    sizes = [arguments.episodes // 10, 3 * arguments.episodes // 10, arguments.episodes]
    systems: dict[str, dict[str, Any]] = defaultdict(lambda: {"scenarios": defaultdict(dict)})
    for scenario in SCENARIOS:
        for size in sizes:
            found = _scenario(scenario, size, arguments.seeds)
            for system, scores in found.items():
                systems[system]["scenarios"][scenario][str(size)] = scores
        _show(scenario, systems)
    for found in systems.values():
        headline = found["scenarios"][HEADLINE][str(arguments.episodes)]
        found |= {name: headline[name] for name in ("spearman", "coverage") if name in headline}
    systems["habitus"]["goals"] = _goals(systems["habitus"]["scenarios"], str(arguments.episodes))
    _report.show("utility", arguments, systems)


def _scenario(name: str, episodes: int, seeds: int) -> dict[str, dict[str, Any]]:
    """Of each system its mean scores over the seeds."""
    scores: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for seed in range(seeds):
        use = simulate(SCENARIOS[name], episodes, seed)
        observations = list(use.observations())
        for system, guess in _guesses(use, observations).items():
            scores[system].append(_scores(guess, use.truth))
        scores["habitus"][-1] |= _decisions(observations, use.truth)
    return {system: _means(each) for system, each in scores.items()}


def _guesses(use: Use, observations: list[ItemObservation]) -> dict[str, Guess]:
    running = add_observations_to_sums(observations)
    drawn, seen = _alone(running)
    offered = np.bincount(use.chosen[use.is_offered], minlength=COUNT)
    worked = np.bincount(use.chosen[use.is_offered], weights=_whole(use), minlength=COUNT)
    used = np.bincount(use.chosen[use.is_used], minlength=COUNT)
    return {
        "habitus": _habitus(running),
        "habitus_randomised_only": drawn,
        "regression_only": seen,
        "memory_worth": Guess(values=(worked + 1) / (offered + 2)),
        "source_utility": Guess(values=np.array([_utility(*each) for each in zip(offered, worked, strict=True)])),
        "use_count": Guess(values=used.astype(np.float64)),
    }


def _whole(use: Use) -> Floats:
    """The success of each offer's conversation."""
    return np.broadcast_to(use.success[:, None], use.chosen.shape)[use.is_offered]


def _habitus(running: EvidenceSums) -> Guess:
    found = estimate_item_effects(running, 0.0)
    effects = [found[item].offering if item in found else None for item in ITEMS]
    columns = [[effect.value, effect.low, effect.high] if effect else [np.nan] * 3 for effect in effects]
    values, lows, highs = np.array(columns).T
    return Guess(values=values, lows=lows, highs=highs)


def _alone(running: EvidenceSums) -> tuple[Guess, Guess]:
    """The randomised contrast, and the association, over all periods."""
    items = list(running.counts)
    columns = np.array([running.columns[item] for item in items])
    kinds = np.array([column for feature, column in running.columns.items() if isinstance(feature, int)])
    games = [running.betting.get(item) for item in items]
    both = compute_item_effect_scores(
        running.explicit, columns, kinds, np.array([bool(g and g.offered and g.withheld) for g in games])
    )
    return (
        _normal(items, both.noise, both.randomized, both.randomized_information, both.randomized_information),
        _normal(items, both.noise, both.association, both.association_information, both.association_spread),
    )


def _normal(items: list[EvidenceItem], noise: float, *scores: Floats) -> Guess:
    score, information, spread = (each.sum(0) for each in scores)
    known = information > 0
    places = np.array([ITEMS.index(item) for item in items])[known]
    values, margins = np.full(COUNT, np.nan), np.full(COUNT, np.nan)
    values[places] = score[known] / information[known]
    margins[places] = INTERVAL_WIDTH * np.sqrt(noise * spread[known]) / information[known]
    return Guess(values=values, lows=values - margins, highs=values + margins)


def _utility(offered: int, worked: float) -> float:
    """What LP-06 says of a lesson with these counts."""
    counters = LessonCounters(retrievals=int(offered), helpful=round(worked))
    return model.compute_lesson_utility(
        Engram(id="", text="", kind=LessonKind.LESSON, scope=LessonScope.GLOBAL, counters=counters)
    )


def _scores(guess: Guess, truth: Floats) -> dict[str, float]:
    """Of the items that were ever chosen; a system that says nothing of one takes it for useless."""
    chosen = ~np.isnan(truth)
    values, true = np.nan_to_num(guess.values[chosen]), truth[chosen]
    scores = {"spearman": _spearman(true, values), "spearman_ties_averaged": correlation(ranks(true), ranks(values))}
    if guess.lows is not None and guess.highs is not None:
        known = chosen & ~np.isnan(guess.lows)
        covered = (guess.lows[known] <= truth[known]) & (truth[known] <= guess.highs[known])
        scores |= {"coverage": _mean(covered), "half_width": _mean((guess.highs - guess.lows)[known] / 2)}
    return scores


def _spearman(true: Floats, values: Floats) -> float:
    """Items without effect have no order among themselves: they may stand as the values have them."""
    places = np.empty(len(true))
    places[np.lexsort((values, true))] = np.arange(len(true))
    return correlation(places, ranks(values))


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _decisions(observations: list[ItemObservation], truth: Floats) -> dict[str, Any]:
    """Whether the bound ever left out zero, when first, and on which side."""
    side, when = first_sides(observations, ITEMS)
    is_library_too_large_to_scan = np.abs(np.nan_to_num(truth)) >= LARGE
    right = np.where(side == np.sign(truth), when, np.inf)[is_library_too_large_to_scan]
    effectless = when[EFFECTIVE:]
    tenths = np.arange(1, _TENTHS + 1) / _TENTHS
    return {
        "effectless_ever_decided": _mean(effectless < np.inf),
        "large_decided": _mean(right < np.inf),
        "large_decided_wrongly": _mean(
            side[is_library_too_large_to_scan] == -np.sign(truth[is_library_too_large_to_scan])
        ),
        "large_decided_by_tenth": [_mean(right <= tenth) for tenth in tenths],
    }


def _means(each: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean over the seeds that have the score; a score that none has is left out."""
    means: dict[str, Any] = {}
    for name in each[0]:
        values = np.array([scores[name] for scores in each], dtype=np.float64)
        known = ~np.isnan(values.reshape(len(values), -1)).any(1)
        if known.any():
            means[name] = np.round(values[known].mean(0), 4).tolist()
    return means


def _goals(scenarios: Mapping[str, Any], size: str) -> dict[str, Any]:
    hidden, independent = scenarios[HEADLINE][size], scenarios["independent"][size]
    goals = {
        "hidden_spearman": (hidden["spearman"], 0.90, 1.0),
        "hidden_coverage": (hidden["coverage"], 0.87, 0.93),
        "independent_spearman": (independent["spearman"], 0.95, 1.0),
        "effectless_ever_decided": (hidden["effectless_ever_decided"], 0.0, 0.05),
        "large_decided": (hidden["large_decided"], 0.75, 1.0),
    }
    return {
        name: {"value": value, "least": least, "most": most, "met": least <= value <= most}
        for name, (value, least, most) in goals.items()
    }


def _show(scenario: str, systems: Mapping[str, Mapping[str, Any]]) -> None:
    """A row for each system: its rank correlation as the episodes grow, and what its interval covers."""
    sizes = list(systems["habitus"]["scenarios"][scenario])
    _report.progress(f"\n{scenario:26}{'spearman at ' + ', '.join(sizes):44}coverage")
    for system, found in systems.items():
        each = [found["scenarios"][scenario][size] for size in sizes]
        ranks = [scores.get("spearman") for scores in each]
        covered = " ".join(f"{100 * scores['coverage']:4.0f} %" for scores in each if "coverage" in scores)
        told = " ".join("   - " if rank is None else f"{rank:5.2f}" for rank in ranks)
        _report.progress(f"  {system:24}{told}  {_bars([rank or 0 for rank in ranks]):22}{covered}")
    decided = systems["habitus"]["scenarios"][scenario][sizes[-1]]
    if "large_decided" in decided:
        _report.progress(
            f"  decided: {100 * decided['large_decided']:.0f} % of the large effects "
            f"{_bars(decided['large_decided_by_tenth'])}, {100 * decided['effectless_ever_decided']:.1f} % of none"
        )


def _bars(shares: list[float]) -> str:
    return "".join(_BARS[min(int(max(share, 0) * len(_BARS)), len(_BARS) - 1)] for share in shares)


if __name__ == "__main__":
    main()
