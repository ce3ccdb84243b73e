"""The ACC: notices, from the events of one turn, that work has gone wrong, and says what to do instead.

Pure rules, no model, no storage:

    for lesson in acc.detect(events):
        print(lesson.detector, lesson.rule)
"""

from __future__ import annotations

from habitus.events import Event, EventKind, event, tool_called, tool_returned
from habitus.learning.acc.detectors import DETECTORS, Detector, detect
from habitus.learning.acc.lessons import Lesson
from habitus.learning.acc.monitor import ACC, Mode, Nudge
from habitus.learning.acc.signatures import signature

__all__ = [
    "ACC",
    "DETECTORS",
    "Detector",
    "Event",
    "EventKind",
    "Lesson",
    "Mode",
    "Nudge",
    "detect",
    "event",
    "signature",
    "tool_called",
    "tool_returned",
]
