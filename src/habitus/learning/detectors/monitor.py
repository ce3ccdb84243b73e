"""The ACC during a turn: takes events, returns nudges while the turn runs and lessons when it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from habitus.events import AgentEvent, EventKind, get_severity
from habitus.learning.detectors.rules import (
    DETECTORS,
    DetectorLesson,
    drop_covered_lessons,
    hide_killed_cell_outcomes_from_detector,
    run_detectors,
    sort_lessons_by_precedence,
)

log = logging.getLogger(__name__)


class MonitorMode(StrEnum):
    """How much the ACC does during a turn."""

    # Observes nothing.
    OFF = "off"
    # Returns lessons at the end of the turn.
    PASSIVE = "passive"
    # Also returns nudges while the turn runs.
    ACTIVE = "active"


def never_has_similar_rule(rule: str) -> bool:
    """Treat every rule as new."""
    return False


class ACC:
    """Monitors one turn at a time for errors. It only returns lessons; the caller stores them."""

    def __init__(
        self, mode: MonitorMode | str = MonitorMode.PASSIVE, has_similar: Callable[[str], bool] = never_has_similar_rule
    ) -> None:
        self.mode = MonitorMode(mode)
        self._has_similar = has_similar
        self._turn = _CurrentTurnRecord()
        # Tools may report from threads.
        self._lock = threading.Lock()

    def observe(
        self,
        kind: EventKind | str,
        detail: Mapping[str, object] | None = None,
        *,
        severity: int | None = None,
        round_idx: int = 0,
    ) -> None:
        """Record an event, with the severity of its kind unless given; `ValueError` if the kind is unknown."""
        known = _parse_event_kind(kind)
        detail = dict(detail or {})
        severity = get_severity(known, detail) if severity is None else severity
        self._append_event(AgentEvent(kind=known, detail=detail, severity=severity, round_idx=round_idx))

    def record_event_of_known_kind(self, event: AgentEvent) -> None:
        """Record an event; `ValueError` if its kind is unknown."""
        _parse_event_kind(event.kind)
        self._append_event(event)

    def emit(
        self,
        kind: EventKind | str,
        detail: Mapping[str, object] | None = None,
        *,
        severity: int | None = None,
        round_idx: int = 0,
    ) -> None:
        """Record an event, and log instead of raising if it is invalid, so a bad event never ends the turn."""
        if self.mode is MonitorMode.OFF:
            return
        try:
            self.observe(kind, detail, severity=severity, round_idx=round_idx)
        except Exception:
            log.warning("the ACC could not take an event of kind %r", kind, exc_info=True)

    def collect_nudges(self) -> tuple[DetectorLesson, ...]:
        """Return the most important nudge after a round, or nothing; each detector nudges at most once per turn.

        Rules that memory already knows are included: one that is being broken right now is worth repeating.
        """
        if self.mode is not MonitorMode.ACTIVE:
            return ()
        with self._lock:
            turn = self._turn
            events = tuple(turn.events)
        waiting = [(name, detector) for name, detector in DETECTORS.items() if name not in turn.nudged]
        fired = [
            found
            for name, detector in waiting
            if (found := detector(hide_killed_cell_outcomes_from_detector(name, events)))
        ]
        lessons = sort_lessons_by_precedence(drop_covered_lessons(fired, turn.nudged.values()))[:1]
        turn.nudged |= {found.detector: found for found in lessons}
        return tuple(lessons)

    def collect_lessons(self) -> tuple[DetectorLesson, ...]:
        """End the turn and return its lessons that memory does not know.

        Of overlapping detectors, the most specific.
        """
        return self.filter_new_lessons(drop_covered_lessons(run_detectors(self.end_turn_and_return_events())))

    def end_turn_and_return_events(self) -> tuple[AgentEvent, ...]:
        """End the turn and return its events; later events belong to the next turn."""
        with self._lock:
            ended, self._turn = self._turn, _CurrentTurnRecord()
        return tuple(ended.events)

    def filter_new_lessons(self, lessons: Iterable[DetectorLesson]) -> tuple[DetectorLesson, ...]:
        """Return each rule once, without those that memory knows."""
        told: dict[str, DetectorLesson] = {}
        for lesson in lessons:
            if lesson.rule not in told and not self._is_rule_known(lesson.rule):
                told[lesson.rule] = lesson
        return tuple(told.values())

    def drop_cancelled_turn_events(self) -> None:
        """Drop the events of a cancelled turn, which say nothing about the agent."""
        with self._lock:
            self._turn = _CurrentTurnRecord()

    def _append_event(self, event: AgentEvent) -> None:
        if self.mode is not MonitorMode.OFF:
            with self._lock:
                self._turn.events.append(event)

    def _is_rule_known(self, rule: str) -> bool:
        try:
            return self._has_similar(rule)
        except Exception:
            log.warning("could not ask whether a rule is known; it counts as new", exc_info=True)
            return False


@dataclass
class _CurrentTurnRecord:
    events: list[AgentEvent] = field(default_factory=list)
    nudged: dict[str, DetectorLesson] = field(default_factory=dict)  # by detector


def _parse_event_kind(kind: EventKind | str) -> EventKind:
    try:
        return EventKind(kind)
    except ValueError:
        raise ValueError(f"Unknown event kind {kind!r}. Known kinds: {', '.join(EventKind)}.") from None
