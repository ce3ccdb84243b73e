from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.events import AgentEvent, EventKind, build_event, build_tool_call_event, build_tool_result_event
from habitus.learning.detectors import DETECTORS, run_detectors
from habitus.learning.detectors.rules import RULES
from habitus.memory.model import LessonKind

SOURCE_ORDER = [
    "name_switch",
    "oversized_cell",
    "repeated_tool_error",
    "repeated_error_signature",
    "reset_churn",
    "kill_loop",
    "severity_climb",
    "repair_churn",
    "cap_exhausted",
]


def fired(events: list[AgentEvent]) -> list[str]:
    return [lesson.detector for lesson in run_detectors(events)]


def failure(tool: str, error: str) -> list[AgentEvent]:
    return [build_tool_call_event(tool, {"n": error}), build_tool_result_event(tool, success=False, error=error)]


def success(tool: str, args: object, result: str) -> list[AgentEvent]:
    return [build_tool_call_event(tool, args), build_tool_result_event(tool, success=True, result=result)]


@pytest.mark.req("EL-03")
def test_the_table_holds_the_sources_nine_first_and_then_four_more() -> None:
    assert list(DETECTORS) == [
        *SOURCE_ORDER,
        "orphaned_tool_call",
        "same_call_again",
        "ping_pong",
        "no_new_information",
    ]


@pytest.mark.req("EL-03")
def test_each_rule_begins_as_its_kind_says() -> None:
    assert {name.split(":")[0] for name in RULES} == set(DETECTORS)
    for kind, rule in RULES.values():
        starts = {LessonKind.ALWAYS: ("Always ", "Stay "), LessonKind.NEVER: ("Never ",), LessonKind.WHEN: ("When ",)}
        assert rule.startswith(starts[kind]), rule


@pytest.mark.req("EL-02")
@pytest.mark.parametrize(
    ("kind", "detail", "severity"),
    [
        (EventKind.SCRATCHPAD_CALL, {}, 1),
        (EventKind.TOOL_CALL, {}, 1),
        (EventKind.TOOL_RESULT, {"success": True}, 1),
        (EventKind.TOOL_RESULT, {"success": False}, 5),
        (EventKind.SCRATCHPAD_RESULT, {"success": True}, 1),
        (EventKind.SCRATCHPAD_RESULT, {"success": False}, 5),
        (EventKind.SCRATCHPAD_RESET, {}, 5),
        (EventKind.SCRATCHPAD_KILLED, {}, 6),
        (EventKind.SCRATCHPAD_EMPTY_CODE, {}, 7),
        (EventKind.HISTORY_REPAIR, {}, 5),
        (EventKind.CAP_EXHAUSTED, {}, 9),
    ],
)
def test_severity_follows_from_kind_and_outcome(kind: EventKind, detail: dict[str, object], severity: int) -> None:
    assert build_event(kind, detail).severity == severity


def test_a_success_in_between_ends_a_streak_of_failures() -> None:
    events = [
        *failure("save", "disk full"),
        *success("save", {"to": "b"}, "saved to the other disk"),
        *failure("save", "no"),
    ]
    assert fired(events) == []


def test_another_tool_in_between_ends_a_streak_of_failures() -> None:
    assert fired([*failure("a", "no file"), *failure("b", "no network"), *failure("a", "no file")]) == []


def test_calls_sent_together_that_fail_together_are_one_failure() -> None:
    calls = [build_tool_call_event("read", {"path": name}) for name in "abc"]
    results = [build_tool_result_event("read", success=False, error=f"no file '{name}'") for name in "abc"]
    assert fired([*calls, *results]) == []


def test_a_failed_cell_that_its_tool_reports_again_counts_once() -> None:
    def told_twice(number: int) -> list[AgentEvent]:
        return [
            build_tool_call_event("scratchpad", {"code": f"x[{number}]"}),
            build_event(EventKind.SCRATCHPAD_RESULT, {"name": "main", "success": False, "error": "KeyError: 'a'"}),
            build_tool_result_event("scratchpad", success=False, error="KeyError: 'b'"),
            *success("look", {"at": number}, f"value {number} is there as expected"),
        ]

    assert fired([*told_twice(1), *told_twice(2)]) == []
    assert fired([*told_twice(1), *told_twice(2), *told_twice(3)]) == ["repeated_error_signature"]


@pytest.mark.req("EL-03")
def test_another_tool_that_fails_like_the_cell_before_it_counts_by_itself() -> None:
    cell = build_event(EventKind.SCRATCHPAD_RESULT, {"name": "main", "success": False, "error": "KeyError: 'a'"})
    told = build_tool_result_event("scratchpad", success=False, error="KeyError: 'a'")
    assert "repeated_error_signature" not in fired([cell, told, cell, told])
    assert "repeated_error_signature" in fired(
        [cell, build_tool_result_event("fetch", success=False, error="KeyError: 'b'"), cell]
    )


def test_a_call_that_a_person_declined_is_no_failure() -> None:
    declined = [
        build_tool_call_event("delete", {"path": "a"}),
        build_tool_result_event("delete", success=None, error="declined"),
    ]
    assert fired(declined + declined) == []


@pytest.mark.parametrize(
    ("severities", "climbs"),
    [
        ([1, 5, 6], True),
        ([1, 3, 5], True),
        ([1, 2, 3], False),
        ([5, 5, 6], False),
        ([1, 6, 5, 7], False),
        ([5, 6], False),
    ],
)
def test_severity_climbs_only_over_three_rising_events_up_to_trouble(severities: list[int], climbs: bool) -> None:
    events = [AgentEvent(kind=EventKind.TOOL_RESULT, detail={"name": "run"}, severity=s) for s in severities]
    assert ("severity_climb" in fired(events)) is climbs


@pytest.mark.req("EL-03")
def test_severity_climbs_for_one_tool_only_whatever_others_do_in_between() -> None:
    def came_to(name: str, severity: int) -> AgentEvent:
        return AgentEvent(kind=EventKind.TOOL_RESULT, detail={"name": name}, severity=severity)

    assert "severity_climb" not in fired([came_to("a", 1), came_to("b", 5), came_to("c", 6)])
    assert "severity_climb" in fired(
        [came_to("a", 1), came_to("b", 7), came_to("a", 5), came_to("b", 1), came_to("a", 6)]
    )
    nameless = [AgentEvent(kind=EventKind.HISTORY_REPAIR, severity=s) for s in (1, 5, 6)]
    assert "severity_climb" not in fired(nameless)


def test_a_call_does_not_end_a_climb_but_a_success_does() -> None:
    call = build_tool_call_event("run", {"x": 1})
    failed = AgentEvent(kind=EventKind.TOOL_RESULT, detail={"name": "run", "success": False}, severity=5)
    killed = build_event(EventKind.SCRATCHPAD_KILLED, {"name": "run", "reason": "timeout"})
    worked = build_tool_result_event("run", success=True)
    assert "severity_climb" in fired([call, failed, call, killed])
    assert "severity_climb" not in fired([call, failed, worked, killed])


def test_a_status_that_changes_may_be_asked_as_often_as_needed() -> None:
    assert (
        fired([each for n in range(9) for each in success("status", {"job": 1}, f"{n * 10} percent are done now")])
        == []
    )


def test_the_same_build_after_each_edit_is_no_loop() -> None:
    events = [
        each
        for n in range(5)
        for each in (
            *success("edit", {"line": n}, f"line {n} of the file changed"),
            *success("build", {}, "Build succeeded."),
        )
    ]
    assert fired(events) == []


@pytest.mark.req("EL-03")
def test_the_same_question_about_another_file_is_another_call() -> None:
    question = "what does this report say about costs"
    events = [
        each
        for name in ("a.pdf", "b.pdf", "c.pdf")
        for each in success("inspect", {"file": name, "question": question}, f"the summary of {name} in one line")
    ]
    assert fired(events) == []


def test_lists_and_ids_that_differ_are_other_calls() -> None:
    calls = [("JFK", "SEA"), ("JFK", "LAX"), ("SEA", "JFK"), ("LAX", "JFK")]
    events = [
        each for a, b in calls for each in success("flights", {"from": a, "to": b}, f"flights from {a} to {b}: four")
    ]
    assert fired(events) == []


def test_short_acknowledgements_are_no_loop() -> None:
    assert fired([each for n in range(6) for each in success("set_cell", {"cell": n}, '{"ok": true}')]) == []


def test_unknown_arguments_are_never_the_same_call() -> None:
    assert fired([each for _ in range(9) for each in success("agent_step", "", "")]) == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab' ", max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["words", "rest", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)
keys = st.sampled_from(
    ["name", "id", "success", "error", "reason", "code_len", "args_digest", "result_digest", "result_len", "question"]
)
details = st.dictionaries(keys, values, max_size=6)
sane_details = st.fixed_dictionaries(
    {"name": st.sampled_from("ab"), "success": st.booleans(), "error": st.sampled_from(["", "no 'x'", "no 'y'"])},
    optional={
        "args_digest": st.sampled_from(["1", "2"]),
        "result_digest": st.sampled_from(["r", "s"]),
        "code_len": st.integers(0, 9000),
        "reason": st.sampled_from(["silence", "timeout"]),
        "question": st.just({"words": ["a", "b", "c", "d"], "rest": ""}),
    },
)
streams = st.lists(
    st.builds(
        AgentEvent,
        kind=st.sampled_from(EventKind),
        detail=details | sane_details,
        severity=st.integers(0, 10),
        round_idx=st.integers(0, 5),
    ),
    max_size=30,
)


@given(streams)
def test_detectors_never_raise_and_name_events_of_the_stream(events: list[AgentEvent]) -> None:
    for lesson in run_detectors(events):
        assert lesson.evidence
        assert all(any(each is event for event in events) for each in lesson.evidence)


@given(streams, st.integers(0, 30))
def test_what_the_sources_detectors_found_stays_found_when_the_turn_goes_on(events: list[AgentEvent], cut: int) -> None:
    """The other four look at calls with their results, and a result that comes late may clear a call."""
    before = {name for name in SOURCE_ORDER if DETECTORS[name](events[:cut])}
    after = {name for name in SOURCE_ORDER if DETECTORS[name](events)}
    assert before <= after
