"""The ACC, which detects from the events of one turn that work goes wrong, and says what to do instead.

Pure rules, no model, no storage:

    for lesson in detectors.detect(events):
        print(lesson.detector, lesson.rule)
"""

from __future__ import annotations

from habitus.events import Event, EventKind, event, tool_called, tool_returned
from habitus.learning.detectors.error_signatures import signature
from habitus.learning.detectors.monitor import ACC, Mode
from habitus.learning.detectors.rules import DETECTORS, Detector, Lesson, detect

__all__ = [
    "ACC",
    "DETECTORS",
    "Detector",
    "Event",
    "EventKind",
    "Lesson",
    "Mode",
    "detect",
    "event",
    "signature",
    "tool_called",
    "tool_returned",
]
