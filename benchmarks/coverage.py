"""How well the evidence covers and decides in two worlds that it was not written with.

    python benchmarks/coverage.py [--episodes 10000] [--seeds 20]

`coverage` is how often the 90 % interval holds the truth, `bound_coverage` how often the bound to decide by does at the
end. Items are decided when the bound first leaves out zero, looked at after every exposure; a decision is `wrong` if
it is on the other side of the truth. `ms_an_item` is what all verdicts take, for each item: from sums that are kept and
the units `since`, and in a first pass.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import _report
from _ranks import correlation, ranks
from _strangers import COUNT, ITEMS, WORLDS, Drawn, draw
from _witness import first_sides
from habitus.evidence.findings import NOTHING, findings
from habitus.evidence.table import Table

LARGE = 0.15  # a lift that should be decided
_SPEEDS = (10_000, 100_000)  # exposures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for world in WORLDS:
        for drifts in (False, True):
            each = [_scores(draw(world, arguments.episodes, seed, drifts=drifts)) for seed in range(arguments.seeds)]
            means = {name: round(float(np.nanmean([one[name] for one in each])), 4) for name in each[0]}
            found[f"{world}{'_drift' if drifts else ''}"] = means
            _report.progress(f"{world}{' with drift' if drifts else ''}: {means}")
    found["ms_an_item"] = {str(exposures): _ms_an_item(exposures) for exposures in _SPEEDS}
    _report.show("coverage", arguments, {"habitus": found})


def _scores(drawn: Drawn) -> dict[str, float]:
    rows = list(drawn.observations())
    found = {finding.item: finding for finding in findings(rows, withhold=0.1).items}
    effects = [found[item].estimate.offering for item in ITEMS]
    bounds = [found[item].bound for item in ITEMS]
    values, lows, highs = np.array([(each.value, each.low, each.high) for each in effects if each]).T
    side, _ = first_sides(rows, ITEMS)
    is_large, truth = np.abs(drawn.truth) >= LARGE, drawn.truth
    return {
        "spearman_ties_averaged": correlation(ranks(truth), ranks(values)),
        "coverage": float(np.mean((lows <= truth) & (truth <= highs))),
        "half_width": float(np.mean(highs - lows) / 2),
        "bound_coverage": float(np.mean([b.low <= t <= b.high for b, t in zip(bounds, truth, strict=True)])),
        "large_decided": _share(side[is_large] == np.sign(truth[is_large])),
        "large_wrong": _share(side[is_large] == -np.sign(truth[is_large])),
        "effectless_decided": _share(side[drawn.is_effectless] != 0),
        "known_at_the_end": _share(np.array([b.low > 0 or b.high < 0 for b in bounds])[is_large]),
    }


def _share(flags: Any) -> float:
    return float(np.mean(flags)) if len(flags) else float("nan")


def _ms_an_item(exposures: int) -> dict[str, float]:
    """Of verdicts from sums that are kept, with the units that came since; and of a first pass over everything."""
    rows = list(draw("hard", exposures // 4, 0, drifts=False).observations())[:exposures]
    begun = time.process_time()
    settled, rest = NOTHING.settle(Table.of(rows))
    findings([], withhold=0.1, settled=settled.after(rest))
    first = time.process_time() - begun
    late = {row.unit for row in rows[-len(rest.unit) :]} if len(rest.unit) else set()
    newest = [row for row in rows if row.unit in late]
    begun = time.process_time()
    findings(newest, withhold=0.1, settled=settled)
    kept = time.process_time() - begun
    return {"kept": round(1000 * kept / COUNT, 2), "first": round(1000 * first / COUNT, 2), "since": len(newest)}


if __name__ == "__main__":
    main()
