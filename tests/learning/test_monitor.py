from __future__ import annotations

import threading

import pytest

from habitus.learning.detectors import (
    ACC,
    DETECTORS,
    EventKind,
    MonitorMode,
    build_tool_call_event,
    build_tool_result_event,
    run_detectors,
)
from habitus.learning.detectors.rules import PRECEDENCE, RULES


def fail(acc: ACC, tool: str = "save", error: str = "disk full") -> None:
    acc.record_event_of_known_kind(build_tool_call_event(tool, {"to": "a"}))
    acc.record_event_of_known_kind(build_tool_result_event(tool, success=False, error=error))


@pytest.mark.req("EL-02")
def test_unknown_kind_is_refused_aloud_by_observe_and_swallowed_by_emit(caplog: pytest.LogCaptureFixture) -> None:
    acc = ACC()
    with pytest.raises(ValueError, match=r"Unknown event kind 'tool_cal'\. Known kinds: scratchpad_call"):
        acc.observe("tool_cal", {})
    acc.emit("tool_cal", {})
    assert "could not take an event of kind 'tool_cal'" in caplog.text
    assert acc.end_turn_and_return_events() == ()


@pytest.mark.req("EL-05")
def test_off_observes_nothing() -> None:
    acc = ACC("off")
    acc.emit("cap_exhausted")
    acc.emit("no such kind")
    fail(acc)
    fail(acc)
    assert (acc.collect_nudges(), acc.collect_lessons(), acc.end_turn_and_return_events()) == ((), (), ())


@pytest.mark.req("EL-05")
def test_passive_is_the_default_and_speaks_only_at_the_end() -> None:
    acc = ACC()
    fail(acc)
    fail(acc)
    assert acc.mode is MonitorMode.PASSIVE
    assert acc.collect_nudges() == ()
    assert [lesson.detector for lesson in acc.collect_lessons()] == ["repeated_tool_error"]


@pytest.mark.req("EL-05")
def test_active_nudges_once_per_detector_and_turn() -> None:
    acc = ACC(MonitorMode.ACTIVE)
    fail(acc)
    assert acc.collect_nudges() == ()
    fail(acc)
    rule = RULES["repeated_tool_error"][1]
    assert [lesson.nudge for lesson in acc.collect_nudges()] == [f"[Habitus self-check — repeated_tool_error] {rule}"]
    assert acc.collect_nudges() == ()
    fail(acc)
    assert [lesson.detector for lesson in acc.collect_nudges()] == ["repeated_error_signature"]
    assert [lesson.detector for lesson in acc.collect_lessons()] == ["repeated_error_signature"]
    fail(acc)
    fail(acc)
    assert [lesson.detector for lesson in acc.collect_nudges()] == ["repeated_tool_error"]


def kill(acc: ACC, round_idx: int, reason: str = "silence") -> None:
    acc.emit("tool_call", {"name": "scratchpad", "id": f"c{round_idx}"}, round_idx=round_idx)
    acc.emit("scratchpad_killed", {"name": "train", "reason": reason}, round_idx=round_idx)
    result = {"name": "scratchpad", "id": f"c{round_idx}", "success": False, "error": "killed: no output"}
    acc.emit("tool_result", result, round_idx=round_idx)


@pytest.mark.req("EL-05")
def test_advice_on_one_trouble_comes_from_the_most_specific_detector_alone() -> None:
    acc = ACC(MonitorMode.ACTIVE)
    kill(acc, 1)
    assert acc.collect_nudges() == ()
    kill(acc, 2)
    assert [lesson.rule for lesson in acc.collect_nudges()] == [RULES["kill_loop:silence"][1]]
    kill(acc, 3)
    assert acc.collect_nudges() == ()  # the same error a third time, and it is the same trouble
    for at in (4, 5):
        acc.emit("tool_call", {"name": "upload", "id": f"u{at}"}, round_idx=at)
        acc.emit("tool_result", {"name": "upload", "id": f"u{at}", "success": False, "error": "full"}, round_idx=at)
    acc.emit("cap_exhausted", {}, round_idx=5)
    said = [[lesson.detector for lesson in acc.collect_nudges()] for _ in range(2)]
    assert said == [["repeated_tool_error"], ["cap_exhausted"]]  # one a round
    assert {lesson.detector for lesson in run_detectors(acc.end_turn_and_return_events())} > {
        "kill_loop",
        "repeated_tool_error",
    }
    assert {name for names in PRECEDENCE for name in names} == set(DETECTORS)


@pytest.mark.req("EL-05")
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_ordinary_error_beside_kills_brings_no_advice_that_contradicts_that_on_kills(at: int) -> None:
    acc = ACC(MonitorMode.ACTIVE)
    said = []
    for round_idx in range(4):
        if round_idx == at:
            wrong = {"success": False, "error": "NameError: x"}
            acc.emit("tool_call", {"name": "scratchpad", "id": "e"}, round_idx=round_idx)
            acc.emit("scratchpad_call", {"name": "train"}, round_idx=round_idx)
            acc.emit("scratchpad_result", {"name": "train", **wrong}, round_idx=round_idx)
            acc.emit("tool_result", {"name": "scratchpad", "id": "e", **wrong}, round_idx=round_idx)
        else:
            kill(acc, round_idx)
        said += [lesson.rule for lesson in acc.collect_nudges()]
    assert said == [RULES["kill_loop:silence"][1]]
    events = acc.end_turn_and_return_events()
    assert {lesson.detector for lesson in run_detectors(events)} > {"kill_loop", "repeated_tool_error"}


@pytest.mark.req("EL-05")
def test_known_rules_are_not_taught_again_but_are_said_again() -> None:
    acc = ACC(MonitorMode.ACTIVE, has_similar=lambda rule: True)
    fail(acc)
    fail(acc)
    assert len(acc.collect_nudges()) == 1
    assert acc.collect_lessons() == ()


@pytest.mark.req("EL-07")
def test_a_predicate_that_raises_costs_no_lesson(caplog: pytest.LogCaptureFixture) -> None:
    def broken(rule: str) -> bool:
        raise OSError("no memory today")

    acc = ACC(has_similar=broken)
    acc.emit(EventKind.CAP_EXHAUSTED)
    assert [lesson.detector for lesson in acc.collect_lessons()] == ["cap_exhausted"]
    assert "counts as new" in caplog.text


@pytest.mark.req("EL-07")
def test_events_of_the_next_turn_survive_the_end_of_this_one() -> None:
    """While lessons of the ended turn are looked up, the next turn already reports."""

    def looks_up_slowly(rule: str) -> bool:
        acc.emit(EventKind.CAP_EXHAUSTED)
        return False

    acc = ACC(has_similar=looks_up_slowly)
    acc.emit(EventKind.CAP_EXHAUSTED)
    assert len(acc.collect_lessons()) == 1
    assert len(acc.end_turn_and_return_events()) == 1


@pytest.mark.req("EL-07")
def test_no_event_is_lost_between_threads() -> None:
    acc = ACC()

    def report() -> None:
        for _ in range(500):
            acc.emit("cap_exhausted")

    def flushed() -> int:
        return sum(len(lesson.evidence) for lesson in acc.collect_lessons())

    workers = [threading.Thread(target=report) for _ in range(4)]
    for worker in workers:
        worker.start()
    counted = 0
    while any(worker.is_alive() for worker in workers):
        counted += flushed()
    assert counted + flushed() == 2000


def test_a_cancelled_turn_is_forgotten() -> None:
    acc = ACC()
    acc.emit("cap_exhausted")
    acc.drop_cancelled_turn_events()
    assert acc.collect_lessons() == ()


def test_severity_may_be_told() -> None:
    acc = ACC()
    for severity in (1, 3, 5):
        acc.observe("tool_result", {"name": "t"}, severity=severity)
    assert [lesson.detector for lesson in acc.collect_lessons()] == ["severity_climb"]
