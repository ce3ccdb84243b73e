"""How well the evidence covers and decides in four worlds that it was not written with.

    python benchmarks/coverage.py [--episodes 10000] [--seeds 20] [--first-seed 0]

`coverage` is how often the 90 % interval holds the truth, `bound_coverage` how often the bound to decide by does at
the end. Items are decided when the bound first leaves out zero, looked at after every exposure; a decision is `wrong`
if it is on the other side of the truth. `large_decided_by_known_change` is of a bound that begins anew at the moment
when an effect became today's, which nobody knows in use; it says something in `hard` and `menus`, where effects change
at one moment. `large_shown_*` is the verdict on large effects that stands at the end. `ms_an_item` is what all
verdicts take from the database on, for each item: from sums that are kept and the exposures `since`, and the first
time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import sqlalchemy as sa

import _report
from _ranks import correlation, ranks
from _strangers import COUNT, ITEMS, WORLDS, Drawn, draw
from _witness import first_sides
from habitus import sql
from habitus.app.learning.evidence import EvidenceService
from habitus.evidence.findings import collect_evidence_findings
from habitus.evidence.model import ItemObservation
from habitus.journal import tables
from habitus.journal.journal import Journal
from habitus.redact import Redactor

LARGE = 0.15  # a lift that should be decided
_SPEEDS = (10_000, 100_000)  # exposures
_TODAY = datetime(2030, 1, 1, tzinfo=UTC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--world", choices=WORLDS, help="only this one")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for world in [arguments.world] if arguments.world else WORLDS:
        for drifts in (False, True):
            each = [_scores(draw(world, arguments.episodes, seed, drifts=drifts)) for seed in seeds]
            means = {name: round(float(np.nanmean([one[name] for one in each])), 4) for name in each[0]}
            found[f"{world}{'_drift' if drifts else ''}"] = means
            _report.progress(f"{world}{' with drift' if drifts else ''}: {means}")
    found["ms_an_item"] = {str(exposures): _ms_an_item(exposures) for exposures in _SPEEDS}
    _report.show("coverage", arguments, {"habitus": found})


def _scores(drawn: Drawn) -> dict[str, float]:
    rows = list(drawn.observations())
    found = {finding.item: finding for finding in collect_evidence_findings(rows, withhold=0.1).items}
    seen = np.asarray(drawn.is_chosen.any(0))
    items = [item for item, is_seen in zip(ITEMS, seen, strict=True) if is_seen]
    effects = [found[item].estimate.offering for item in items]
    bounds = [found[item].bound for item in items]
    values, lows, highs = np.array([(each.value, each.low, each.high) for each in effects if each]).T
    side, _ = first_sides(rows, items)
    began = dict(zip(ITEMS, drawn.began.tolist(), strict=True))
    since, _ = first_sides([row for row in rows if int(row.unit) >= began[row.item]], items)
    truth = drawn.truth[seen]
    is_library_too_large_to_scan = np.abs(truth) >= LARGE
    shown = np.array([int(bound.low > 0) - int(bound.high < 0) for bound in bounds])
    return {
        "spearman_ties_averaged": correlation(ranks(truth), ranks(values)),
        "coverage": float(np.mean((lows <= truth) & (truth <= highs))),
        "half_width": float(np.mean(highs - lows) / 2),
        "bound_coverage": float(np.mean([b.low <= t <= b.high for b, t in zip(bounds, truth, strict=True)])),
        "large_decided": _share(side[is_library_too_large_to_scan] == np.sign(truth[is_library_too_large_to_scan])),
        "large_decided_by_known_change": _share(
            since[is_library_too_large_to_scan] == np.sign(truth[is_library_too_large_to_scan])
        ),
        "large_wrong": _share(side[is_library_too_large_to_scan] == -np.sign(truth[is_library_too_large_to_scan])),
        "effectless_decided": _share(side[drawn.is_effectless[seen]] != 0),
        "large_shown_right": _share(
            shown[is_library_too_large_to_scan] == np.sign(truth[is_library_too_large_to_scan])
        ),
        "large_shown_wrong": _share(
            shown[is_library_too_large_to_scan] == -np.sign(truth[is_library_too_large_to_scan])
        ),
    }


def _share(flags: Any) -> float:
    return float(np.mean(flags)) if len(flags) else float("nan")


def _ms_an_item(exposures: int) -> dict[str, float]:
    """Of all verdicts by what a database keeps: the first time, and from sums that are kept."""
    rows = list(draw("hard", exposures // 4, 0, drifts=False).observations())[:exposures]
    engine = sql.create_in_memory_engine()
    _fill(engine, rows)
    journal = Journal(engine, clock=lambda: _TODAY, redactor=Redactor([]), retention=timedelta(days=30))
    evidence = EvidenceService(journal=journal, clock=lambda: _TODAY, share=0.1, refuse_changes=lambda: None)
    spent = []
    for _ in range(3):  # the second time sums are kept
        begun = time.process_time()
        evidence.compute_findings()
        spent.append(round(1000 * (time.process_time() - begun) / COUNT, 2))
    latest = journal.load_latest_cached_evidence_sums(_TODAY).until
    since = sum(len(batch.exposures) for batch in journal.iterate_exposure_batches((), since=latest))
    return {"kept": spent[2], "first": spent[0], "since": since}


def _fill(engine: sa.Engine, rows: Sequence[ItemObservation]) -> None:
    offered, outcomes = [], {}
    for row in rows:
        at = _TODAY - timedelta(days=row.age_days)
        of_unit = {"unit": row.unit, "turn": row.unit, "user": "ann", "origin": "real"}
        of_row = {
            name: getattr(row, name) for name in ("is_offered", "propensity", "request_kind", "tokens", "is_used")
        }
        item = {"kind": row.item.kind.value, "item": row.item.name, "version": 0, "is_steady": False}
        offered.append({**of_unit, **of_row, **item, "is_ignored": False, "at": at})
        went = {"kind": "ok" if row.success else "failed", "weight": 1.0, "source": "user", "caller_id": ""}
        outcomes[row.unit] = {**of_unit, **went, "began_on": at, "at": at}
    with sql.write_transaction(engine) as connection:
        connection.execute(tables.exposures.insert(), offered)
        connection.execute(tables.lasting_outcomes.insert(), list(outcomes.values()))


if __name__ == "__main__":
    main()
