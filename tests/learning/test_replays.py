"""Recorded event streams, and the lessons that each must give."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from habitus.learning import detectors

OURS = sorted((Path(__file__).parent.parent / "replays").glob("*.json"))
BENCH_DATA = os.environ.get("HABITUS_BENCH_DATA", "")
PUBLIC = {
    "kill_loop": ["kill_loop"],
    "name_switch": ["name_switch"],
    "oversized_cell": ["oversized_cell"],
    "publish_failure_loop": ["repeated_tool_error", "repeated_error_signature"],
    "reset_churn": ["reset_churn"],
}


def load(rows: list[dict[str, object]]) -> list[detectors.AgentEvent]:
    return [
        detectors.AgentEvent(
            kind=detectors.EventKind(str(row["kind"])),
            detail=row["detail"],  # type: ignore[arg-type]  # JSON objects
            severity=int(str(row["severity"])),
            round_idx=int(str(row["round_idx"])),
        )
        for row in rows
    ]


@pytest.mark.req("EL-03", "EL-09")
@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_recorded_turn_gives_exactly_its_lessons(path: Path) -> None:
    recording = json.loads(path.read_text())
    lessons = detectors.run_detectors(load(recording["events"]))
    assert [
        {"detector": lesson.detector, "kind": lesson.kind.value, "rule": lesson.rule} for lesson in lessons
    ] == recording["expected"]
    named = path.stem.split(".")[0]
    assert named == "clean" or named in {lesson.detector for lesson in lessons}


@pytest.mark.req("EL-09")
def test_every_detector_has_a_recording() -> None:
    assert {path.stem.split(".")[0] for path in OURS} == {*detectors.DETECTORS, "clean"}


@pytest.mark.req("EL-09")
@pytest.mark.skipif(not BENCH_DATA, reason="HABITUS_BENCH_DATA does not point to the public recordings")
@pytest.mark.parametrize("name", PUBLIC)
def test_public_recording_fires_its_detectors(name: str) -> None:
    recording = json.loads((Path(BENCH_DATA) / "acc_replays" / f"{name}.json").read_text())
    assert [lesson.detector for lesson in detectors.run_detectors(load(recording))] == PUBLIC[name]


@pytest.mark.req("EL-02")
@pytest.mark.parametrize("kind", detectors.EventKind)
def test_every_kind_is_read_by_a_detector(kind: detectors.EventKind) -> None:
    """Leaving out the events of a kind changes what some recording teaches."""
    streams = [load(json.loads(path.read_text())["events"]) for path in OURS]
    assert any(
        [lesson.detector for lesson in detectors.run_detectors(stream)]
        != [
            lesson.detector for lesson in detectors.run_detectors([event for event in stream if event.kind is not kind])
        ]
        for stream in streams
    )
