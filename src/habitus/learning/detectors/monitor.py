"""The ACC during a turn: takes events, returns nudges while the turn runs and lessons when it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from habitus.events import Event, EventKind, severity_of
from habitus.learning.detectors.rules import DETECTORS, Lesson, by_precedence, collapse, detect, while_running

log = logging.getLogger(__name__)


class Mode(StrEnum):
    """How much the ACC does during a turn."""

    # Observes nothing.
    OFF = "off"
    # Returns lessons at the end of the turn.
    PASSIVE = "passive"
    # Also returns nudges while the turn runs.
    ACTIVE = "active"


def knows_nothing(rule: str) -> bool:
    """Treat every rule as new."""
    return False


class ACC:
    """Monitors one turn at a time for errors. It only returns lessons; the caller stores them."""

    def __init__(self, mode: Mode | str = Mode.PASSIVE, has_similar: Callable[[str], bool] = knows_nothing) -> None:
        self.mode = Mode(mode)
        self._has_similar = has_similar
        self._turn = _Turn()
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
        known = _known_kind(kind)
        detail = dict(detail or {})
        severity = severity_of(known, detail) if severity is None else severity
        self._take(Event(kind=known, detail=detail, severity=severity, round_idx=round_idx))

    def observe_event(self, event: Event) -> None:
        """Record an event; `ValueError` if its kind is unknown."""
        _known_kind(event.kind)
        self._take(event)

    def emit(
        self,
        kind: EventKind | str,
        detail: Mapping[str, object] | None = None,
        *,
        severity: int | None = None,
        round_idx: int = 0,
    ) -> None:
        """Record an event, and log instead of raising if it is invalid, so a bad event never ends the turn."""
        if self.mode is Mode.OFF:
            return
        try:
            self.observe(kind, detail, severity=severity, round_idx=round_idx)
        except Exception:
            log.warning("the ACC could not take an event of kind %r", kind, exc_info=True)

    def at_round(self) -> tuple[Lesson, ...]:
        """Return the most important nudge after a round, or nothing; each detector nudges at most once per turn.

        Rules that memory already knows are included: one that is being broken right now is worth repeating.
        """
        if self.mode is not Mode.ACTIVE:
            return ()
        with self._lock:
            turn = self._turn
            events = tuple(turn.events)
        waiting = [(name, detector) for name, detector in DETECTORS.items() if name not in turn.nudged]
        fired = [found for name, detector in waiting if (found := detector(while_running(name, events)))]
        lessons = by_precedence(collapse(fired, turn.nudged.values()))[:1]
        turn.nudged |= {found.detector: found for found in lessons}
        return tuple(lessons)

    def at_end_of_turn(self) -> tuple[Lesson, ...]:
        """End the turn and return its lessons that memory does not know.

        Of overlapping detectors, the most specific.
        """
        return self.not_known(collapse(detect(self.take())))

    def take(self) -> tuple[Event, ...]:
        """End the turn and return its events; later events belong to the next turn."""
        with self._lock:
            ended, self._turn = self._turn, _Turn()
        return tuple(ended.events)

    def not_known(self, lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
        """Return each rule once, without those that memory knows."""
        told: dict[str, Lesson] = {}
        for lesson in lessons:
            if lesson.rule not in told and not self._is_known(lesson.rule):
                told[lesson.rule] = lesson
        return tuple(told.values())

    def reset(self) -> None:
        """Drop the events of a cancelled turn, which say nothing about the agent."""
        with self._lock:
            self._turn = _Turn()

    def _take(self, event: Event) -> None:
        if self.mode is not Mode.OFF:
            with self._lock:
                self._turn.events.append(event)

    def _is_known(self, rule: str) -> bool:
        try:
            return self._has_similar(rule)
        except Exception:
            log.warning("could not ask whether a rule is known; it counts as new", exc_info=True)
            return False


@dataclass
class _Turn:
    events: list[Event] = field(default_factory=list)
    nudged: dict[str, Lesson] = field(default_factory=dict)  # by detector


def _known_kind(kind: EventKind | str) -> EventKind:
    try:
        return EventKind(kind)
    except ValueError:
        raise ValueError(f"Unknown event kind {kind!r}. Known kinds: {', '.join(EventKind)}.") from None
