"""The ACC, which detects from the events of one turn that work goes wrong, and says what to do instead.

Pure rules, no model, no storage:

    for lesson in detectors.run_detectors(events):
        print(lesson.detector, lesson.rule)
"""

from __future__ import annotations

from habitus.events import AgentEvent, EventKind, build_event, build_tool_call_event, build_tool_result_event
from habitus.learning.detectors.error_signatures import make_error_signature
from habitus.learning.detectors.monitor import ACC, MonitorMode
from habitus.learning.detectors.rules import DETECTORS, Detector, DetectorLesson, run_detectors

__all__ = [
    "ACC",
    "DETECTORS",
    "AgentEvent",
    "Detector",
    "DetectorLesson",
    "EventKind",
    "MonitorMode",
    "build_event",
    "build_tool_call_event",
    "build_tool_result_event",
    "make_error_signature",
    "run_detectors",
]
