"""Detectors that fired in transcripts: where, and on what evidence, for a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from habitus.events import AgentEvent, EventKind
from habitus.learning.transcripts.study import StudiedTurn

MAX_EVIDENCE = 5
# Per detector.
MAX_FIRINGS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectorFiring:
    """A detector that fired in a turn, with its evidence."""

    detector: str
    file: Path
    transcript: str
    turn: str
    rounds: tuple[int, ...]
    evidence: tuple[str, ...]
    is_weak: bool


@dataclass(kw_only=True, slots=True)
class DetectorFiringsSummary:
    """How often a detector fired, the rule it teaches, and its first firings."""

    detector: str
    fired_count: int = 0
    rule: str
    firings: list[DetectorFiring] = field(default_factory=list)

    def count_firing_and_keep_if_few(self, firing: DetectorFiring) -> None:
        """Count a firing, and store it if there are not too many."""
        self.fired_count += 1
        if len(self.firings) < MAX_FIRINGS:
            self.firings.append(firing)


def list_detector_firings_in_turn(studied: StudiedTurn) -> Iterator[DetectorFiring]:
    """Yield the firings of the detectors in a turn."""
    for lesson in studied.lessons:
        rounds = sorted({event.round_idx for event in lesson.evidence})
        yield DetectorFiring(
            detector=lesson.detector,
            file=studied.file,
            transcript=studied.transcript,
            turn=studied.turn.id,
            rounds=tuple(rounds[:MAX_EVIDENCE]),
            evidence=tuple(describe_event(event) for event in lesson.evidence[:MAX_EVIDENCE]),
            is_weak=studied.is_weak,
        )


def describe_event(event: AgentEvent) -> str:
    """Describe an event in one line."""
    detail, name = event.detail, str(event.detail.get("name") or "")
    match event.kind:
        case EventKind.TOOL_CALL:
            said = f"{name}({detail.get('args_summary') or ''})"
        case EventKind.TOOL_RESULT | EventKind.SCRATCHPAD_RESULT if detail.get("success") is False:
            said = f"{name} failed: {detail.get('error') or 'no reason given'}"
        case EventKind.TOOL_RESULT | EventKind.SCRATCHPAD_RESULT:
            said = f"{name} returned"
        case kind:
            more = ", ".join(str(value) for key, value in detail.items() if key != "name" and value not in ("", None))
            said = " ".join(part for part in (kind.value.replace("_", " "), name, f"({more})" if more else "") if part)
    line = " ".join(said.split())
    return f"round {event.round_idx}: {line if len(line) <= 160 else line[:159] + '…'}"
