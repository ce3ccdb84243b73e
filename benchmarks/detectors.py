"""How well the detectors find runs that people labelled as loops and blind retries, and how often they cry wolf.

    python benchmarks/detectors.py --traces F --meta M [--label "Resource Abuse"] [--clean F2]

Beside them stand two trivial systems, each with the threshold that suits the labels best: `length` (the run has at
least n events) and `error_count` (at least n failures). Prints one JSON object; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus.events import AgentEvent
from habitus.learning import detectors
from habitus.learning.transcripts import Transcript, read_transcripts

Events = Sequence[AgentEvent]


def main() -> None:
    arguments = _arguments()
    labelled = _labelled(arguments.traces, arguments.meta, arguments.label)
    clean = _error_free(arguments.clean) if arguments.clean else []
    print(f"{len(labelled)} labelled traces, {len(clean)} error-free ones", file=sys.stderr)
    report = {
        "benchmark": "detectors",
        "args": {key: str(value) if isinstance(value, Path) else value for key, value in vars(arguments).items()},
        "machine": {"python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.platform()},
        "traces": len(labelled),
        "positive": sum(trace.is_positive for trace in labelled),
        "clean_traces": len(clean),
        "systems": {
            "habitus": _habitus(labelled, clean),
            "length": _best_threshold(labelled, clean, len),
            "error_count": _best_threshold(labelled, clean, _failures),
        },
    }
    print(json.dumps(report, indent=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--traces", type=Path, required=True, help="event rows: trace, turn, tool, args, success, error"
    )
    parser.add_argument("--meta", type=Path, required=True, help="labels: trace, annotated_errors")
    parser.add_argument("--label", default="Resource Abuse")
    parser.add_argument("--clean", type=Path, help="event rows whose error-free traces should raise no alarm")
    return parser.parse_args()


@dataclass(frozen=True, kw_only=True, slots=True)
class Labelled:
    events: Events
    is_positive: bool


def _labelled(traces: Path, meta: Path, label: str) -> list[Labelled]:
    events = {transcript.id: _events(transcript) for transcript in read_transcripts(traces)}
    rows = [json.loads(line) for line in meta.read_text().splitlines() if line.strip()]
    return [
        Labelled(events=events.get(row["trace"], ()), is_positive=label in row.get("annotated_errors", ()))
        for row in rows
    ]


def _error_free(traces: Path) -> list[Events]:
    return [events for transcript in read_transcripts(traces) if not _failures(events := _events(transcript))]


def _events(transcript: Transcript) -> Events:
    return [event for turn in transcript.turns for event in turn.events]


def _failures(events: Events) -> int:
    return sum(event.detail.get("success") is False for event in events)


def _habitus(labelled: Sequence[Labelled], clean: Sequence[Events]) -> dict[str, object]:
    return {
        **_scores(labelled, clean, lambda events: bool(detectors.run_detectors(events))),
        "us_per_event": round(_microseconds_per_event([trace.events for trace in labelled]), 2),
        "per_detector": {
            name: _scores(labelled, clean, lambda events, detector=detector: detector(events) is not None)  # type: ignore[misc]  # mypy can't infer a lambda's default
            for name, detector in detectors.DETECTORS.items()
        },
    }


def _best_threshold(
    labelled: Sequence[Labelled], clean: Sequence[Events], measure: Callable[[Events], int]
) -> dict[str, object]:
    thresholds = sorted({measure(trace.events) for trace in labelled} - {0}) or [1]
    scored = [
        {"threshold": least, **_scores(labelled, clean, lambda events, least=least: measure(events) >= least)}  # type: ignore[misc]  # as above
        for least in thresholds
    ]
    return max(scored, key=lambda each: float(str(each["f1"])))


def _scores(
    labelled: Sequence[Labelled], clean: Sequence[Events], alarms: Callable[[Events], bool]
) -> dict[str, object]:
    hits = sum(trace.is_positive and alarms(trace.events) for trace in labelled)
    raised = sum(alarms(trace.events) for trace in labelled)
    positive = sum(trace.is_positive for trace in labelled)
    precision = hits / raised if raised else 0.0
    recall = hits / positive if positive else 0.0
    false_alarms = sum(alarms(events) for events in clean)
    return {
        "precision": round(precision, 3),
        "recall": round(recall, 3),
        "f1": round(2 * precision * recall / (precision + recall), 3) if hits else 0.0,
        "alarms": false_alarms,
        "alarm_rate": round(false_alarms / len(clean), 4) if clean else None,
    }


def _microseconds_per_event(traces: Sequence[Events]) -> float:
    rounds = 5
    started = time.perf_counter()
    for _ in range(rounds):
        for events in traces:
            detectors.run_detectors(events)
    return (time.perf_counter() - started) / rounds / max(1, sum(map(len, traces))) * 1e6


if __name__ == "__main__":
    main()
