"""The detectors of the ACC: pure functions from the events of one turn to a lesson, and the rules they teach.

A rule says what to do instead, in our own words; it never quotes a tool's output, which could carry an injection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from habitus.events import AgentEvent, EventKind, ToolCallRecord, get_text_detail
from habitus.learning.detectors.error_signatures import make_error_signature
from habitus.memory.model import SCRATCHPAD_TOPIC, LessonKind


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectorLesson:
    """The rule that a detector teaches, with the events that triggered it."""

    detector: str
    kind: LessonKind
    rule: str
    # The events that triggered the detector, in order.
    evidence: tuple[AgentEvent, ...]

    @property
    def nudge(self) -> str:
        """The lesson as a message beside the tool results that caused it."""
        return f"[Habitus self-check — {self.detector}] {self.rule}"


Detector = Callable[[Sequence[AgentEvent]], DetectorLesson | None]
LARGE_CELL_CHARS = 5_000
# From this severity on, an event is bad news.
TROUBLE_SEVERITY = 5
# The share of words that two questions must have in common.
SAME_QUESTION_SHARE = 0.8
# Characters; "ok" three times in a row is no sign of a loop.
ACKNOWLEDGEMENT_CHARS = 24


def run_detectors(events: Sequence[AgentEvent]) -> list[DetectorLesson]:
    """Return the lessons of all detectors that fire, in the order of the table."""
    return [found for detector in DETECTORS.values() if (found := detector(events))]


def detect_scratchpad_name_switch(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if a turn uses two or more scratchpad names."""
    firsts: dict[str, AgentEvent] = {}
    for event in _filter_events_by_kind(events, EventKind.SCRATCHPAD_CALL):
        if name := get_text_detail(event, "name"):
            firsts.setdefault(name, event)
    return make_detector_lesson("name_switch", firsts.values()) if len(firsts) >= 2 else None


def detect_empty_or_oversized_cell(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if a cell arrived empty, or if two cells have more than 5 KB."""
    found = [
        event
        for event in events
        if event.kind is EventKind.SCRATCHPAD_EMPTY_CODE
        or (event.kind is EventKind.SCRATCHPAD_CALL and _read_number(event, "code_len") > LARGE_CELL_CHARS)
    ]
    arrived_empty = any(_filter_events_by_kind(found, EventKind.SCRATCHPAD_EMPTY_CODE))
    return make_detector_lesson("oversized_cell", found) if arrived_empty or len(found) >= 2 else None


def detect_repeated_tool_error(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if the same tool failed twice in a row, without another tool's result in between."""
    streak: list[AgentEvent] = []
    for event in _iterate_results_merging_joint_failures(events):
        if event.kind is not EventKind.TOOL_RESULT:
            continue
        if streak and (
            _read_success(event) is not False or get_text_detail(event, "name") != get_text_detail(streak[0], "name")
        ):
            if len(streak) >= 2:
                break
            streak = []
        if _read_success(event) is False:
            streak.append(event)
    return make_detector_lesson("repeated_tool_error", streak) if len(streak) >= 2 else None


def detect_repeated_error_signature(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if the same error occurred three times, for any tool and arguments."""
    by_signature: dict[str, list[AgentEvent]] = defaultdict(list)
    told_by_cell = ""
    for event in _iterate_results_merging_joint_failures(events):
        known = make_error_signature(get_text_detail(event, "error")) if _read_success(event) is False else ""
        # A failed cell is reported twice, by the scratchpad and by its tool; that is one error.
        is_told_again = known == told_by_cell and _is_scratchpad_result(event)
        told_by_cell = known if event.kind is EventKind.SCRATCHPAD_RESULT else ""
        if known and not is_told_again:
            by_signature[known].append(event)
    repeated = next((found for found in by_signature.values() if len(found) >= 3), None)
    return make_detector_lesson("repeated_error_signature", repeated) if repeated else None


def detect_kill_loop(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire after two or more killed cells in any scratchpads; the advice depends on why they were killed."""
    kills = list(_filter_events_by_kind(events, EventKind.SCRATCHPAD_KILLED))
    if len(kills) < 2:
        return None
    was_silence = all(_is_killed_for_silence(get_text_detail(event, "reason")) for event in kills)
    return make_detector_lesson("kill_loop", kills, variant="silence" if was_silence else "heavy")


def detect_severity_climb(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire after three events of one tool or scratchpad, each worse than the one before, up to `TROUBLE_SEVERITY`."""
    climbs: dict[str, list[AgentEvent]] = defaultdict(list)
    for event in events:
        if not (name := get_text_detail(event, "name")):
            continue
        climb = climbs[name]
        if climb and event.severity <= climb[-1].severity:
            # A call says nothing yet, so it ends no climb.
            if event.kind in (EventKind.TOOL_CALL, EventKind.SCRATCHPAD_CALL):
                continue
            climb.clear()
        climb.append(event)
        if len(climb) >= 3 and event.severity >= TROUBLE_SEVERITY:
            return make_detector_lesson("severity_climb", climb)
    return None


def detect_orphaned_tool_call(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if a call never got a result; only meaningful for finished rounds."""
    orphans = [
        call.call_event for call in ToolCallRecord.list_from_events(events) if call.call_event and not call.result_event
    ]
    return make_detector_lesson("orphaned_tool_call", orphans) if orphans else None


def detect_repeated_call_or_question(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if a call was made three times with the same result, or a question was asked twice.

    Something new in between starts the count again. A status may change between two reads, so only the third one
    counts. A search gives the same answer the second time, also with its words in another order.
    """
    answered = [
        call for call in ToolCallRecord.list_from_events(events) if call.call_event and call.success is not False
    ]
    return _detect_repeated_question(answered) or _detect_repeated_call(answered)


def detect_ping_pong(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if two calls alternate, twice each, with unchanged results."""
    made = [call for call in ToolCallRecord.list_from_events(events) if call.call_event]
    for first, second, third, fourth in zip(made, made[1:], made[2:], made[3:], strict=False):
        takes_turns = _is_same_call_and_result(first, third) and _is_same_call_and_result(second, fourth)
        if takes_turns and _make_call_key(first) != _make_call_key(second):
            return make_detector_lesson("ping_pong", _list_events_of_calls([first, second, third, fourth]))
    return None


def detect_different_calls_with_same_result(events: Sequence[AgentEvent]) -> DetectorLesson | None:
    """Fire if three different calls of one tool in a row had the same result."""
    run: list[ToolCallRecord] = []
    for call in ToolCallRecord.list_from_events(events):
        if call.success is not True or not _has_informative_result(call):
            continue
        if run and (call.name != run[0].name or _get_result_digest(call) != _get_result_digest(run[0])):
            run = []
        if not _make_call_key(call) or _make_call_key(call) not in {_make_call_key(earlier) for earlier in run}:
            run.append(call)
        if len(run) >= 3:
            return make_detector_lesson("no_new_information", _list_events_of_calls(run))
    return None


def _build_counting_detector(name: str, kind: EventKind, least: int) -> Detector:
    """Return a detector that fires after so many events of a kind."""

    def detect(events: Sequence[AgentEvent]) -> DetectorLesson | None:
        found = list(_filter_events_by_kind(events, kind))
        return make_detector_lesson(name, found) if len(found) >= least else None

    return detect


detect_reset_churn = _build_counting_detector("reset_churn", EventKind.SCRATCHPAD_RESET, 2)
detect_repair_churn = _build_counting_detector("repair_churn", EventKind.HISTORY_REPAIR, 3)
detect_cap_exhausted = _build_counting_detector("cap_exhausted", EventKind.CAP_EXHAUSTED, 1)
DETECTORS: Mapping[str, Detector] = {
    "name_switch": detect_scratchpad_name_switch,
    "oversized_cell": detect_empty_or_oversized_cell,
    "repeated_tool_error": detect_repeated_tool_error,
    "repeated_error_signature": detect_repeated_error_signature,
    "reset_churn": detect_reset_churn,
    "kill_loop": detect_kill_loop,
    "severity_climb": detect_severity_climb,
    "repair_churn": detect_repair_churn,
    "cap_exhausted": detect_cap_exhausted,
    "orphaned_tool_call": detect_orphaned_tool_call,
    "same_call_again": detect_repeated_call_or_question,
    "ping_pong": detect_ping_pong,
    "no_new_information": detect_different_calls_with_same_result,
}


def _filter_events_by_kind(events: Sequence[AgentEvent], kind: EventKind) -> Iterator[AgentEvent]:
    return (event for event in events if event.kind is kind)


def _iterate_results_merging_joint_failures(events: Sequence[AgentEvent]) -> Iterator[AgentEvent]:
    """Yield the results in order, with one failure for calls that were sent and failed together.

    The error was not known yet when the other calls were sent, so they are no retries.
    """
    called_since: set[str] = set()
    known_to_call: set[str] = set()
    for event in events:
        name = get_text_detail(event, "name")
        if event.kind is EventKind.TOOL_CALL:
            called_since.add(name)
            known_to_call.add(name)
        elif event.kind in (EventKind.TOOL_RESULT, EventKind.SCRATCHPAD_RESULT):
            is_sibling = event.kind is EventKind.TOOL_RESULT and name in known_to_call and name not in called_since
            called_since.discard(name)
            if not (is_sibling and _read_success(event) is False):
                yield event


def _make_call_key(call: ToolCallRecord) -> str:
    """Return the tool and its arguments as a key; empty if the arguments are unknown."""
    arguments = call.arguments_digest or call.arguments_summary
    return f"{call.name}({arguments})" if arguments else ""


def _get_result_digest(call: ToolCallRecord) -> str:
    return get_text_detail(call.result_event, "result_digest")


def _has_informative_result(call: ToolCallRecord) -> bool:
    """Whether the result is known and more than an acknowledgement."""
    length = call.result_event.detail.get("result_len") if call.result_event else None
    return bool(_get_result_digest(call)) and not (isinstance(length, int) and length < ACKNOWLEDGEMENT_CHARS)


def _is_same_call_and_result(call: ToolCallRecord, later: ToolCallRecord) -> bool:
    return bool(_make_call_key(call)) and (_make_call_key(call), _get_result_digest(call)) == (
        _make_call_key(later),
        _get_result_digest(later),
    )


def _detect_repeated_call(answered: Sequence[ToolCallRecord]) -> DetectorLesson | None:
    repeats: dict[str, list[ToolCallRecord]] = defaultdict(list)
    seen: set[str] = set()
    for call in answered:
        key = _make_call_key(call)
        if not key:
            continue
        # Something new was tried, so an equal result may mean something else now.
        if key not in seen:
            repeats.clear()
        seen.add(key)
        run = repeats[key]
        if run and _get_result_digest(run[0]) != _get_result_digest(call):
            run.clear()
        run.append(call)
        if len(run) >= 3:
            return make_detector_lesson("same_call_again", _list_events_of_calls(run))
    return None


def _detect_repeated_question(answered: Sequence[ToolCallRecord]) -> DetectorLesson | None:
    asked: dict[tuple[str, str], list[tuple[frozenset[str], ToolCallRecord]]] = defaultdict(list)
    for call in answered:
        question = call.call_event.detail.get("question") if call.call_event else None
        if not isinstance(question, Mapping):
            continue
        listed = question.get("words")
        words = frozenset(map(str, listed)) if isinstance(listed, list | tuple) else frozenset()
        if not words:
            continue
        earlier = asked[(call.name, str(question.get("rest", "")))]
        for other_words, other in earlier:
            if len(words & other_words) >= SAME_QUESTION_SHARE * len(words | other_words):
                return make_detector_lesson("same_call_again", _list_events_of_calls([other, call]))
        earlier.append((words, call))
    return None


def _list_events_of_calls(made: Sequence[ToolCallRecord]) -> list[AgentEvent]:
    return [event for call in made for event in (call.call_event, call.result_event) if event]


def _is_scratchpad_result(event: AgentEvent) -> bool:
    return event.kind is EventKind.TOOL_RESULT and get_text_detail(event, "name") == SCRATCHPAD_TOPIC


def _is_killed_for_silence(reason: str) -> bool:
    """Whether the scratchpad killed the cell because it printed nothing; the reason is our own text, not a tool's."""
    return any(word in reason.lower() for word in ("silence", "silent", "inactiv", "no output", "idle"))


def _read_success(event: AgentEvent) -> bool | None:
    success = event.detail.get("success")
    return success if isinstance(success, bool) else None


def _read_number(event: AgentEvent, key: str) -> float:
    value = event.detail.get(key)
    return value if isinstance(value, int | float) else 0


RULES: dict[str, tuple[LessonKind, str]] = {
    "name_switch": (
        LessonKind.ALWAYS,
        "Stay with one scratchpad name for a whole task: each name is its own environment, and variables, imports and "
        "installed packages don't cross over. Go on in the scratchpad that holds the data.",
    ),
    "oversized_cell": (
        LessonKind.NEVER,
        "Never send a cell of more than about 5 KB: large code can arrive cut or empty. Write long text to a file in "
        "several short cells, and have the last cell read it.",
    ),
    "repeated_tool_error": (
        LessonKind.WHEN,
        "When a tool fails twice in a row, stop calling it. Read the error, check what the tool expects, change what "
        "the error names, or take another way.",
    ),
    "repeated_error_signature": (
        LessonKind.WHEN,
        "When the same error comes back a third time, small changes to the arguments won't fix it. Say what the error "
        "claims, test that claim with one small step, and only then go on.",
    ),
    "reset_churn": (
        LessonKind.NEVER,
        "Never reset a scratchpad a second time to escape an error. Look at the variables that are there, fix the one "
        "line that failed, and keep the rest.",
    ),
    "kill_loop:heavy": (
        LessonKind.WHEN,
        "When a cell is killed, don't run the same work again. Cut it into smaller cells: try a small part of the data "
        "first, save what is done, and go on from there.",
    ),
    "kill_loop:silence": (
        LessonKind.WHEN,
        "When a cell is killed only because it was silent for too long, run the same cell again, give it a longer "
        "estimate and print its progress. Don't rewrite work that was not wrong.",
    ),
    "severity_climb": (
        LessonKind.WHEN,
        "When each step ends worse than the one before, stop and change the plan: go back to the last state that "
        "worked, and take the smallest next step from there.",
    ),
    "repair_churn": (
        LessonKind.ALWAYS,
        "Always wait for the result of each tool call before going on, and end the calls of one answer before starting "
        "others: a conversation that has to be repaired again and again loses its thread.",
    ),
    "cap_exhausted": (
        LessonKind.WHEN,
        "When a task uses many rounds, plan first, do several things per round, and give a partial answer with what is "
        "left open before the rounds run out.",
    ),
    "orphaned_tool_call": (
        LessonKind.WHEN,
        "When a tool call has no result, don't assume that it ran. Check the state that it should have changed, and "
        "only then call it again.",
    ),
    "same_call_again": (
        LessonKind.NEVER,
        "Never ask again what was already answered: the same call, or the same words in another order, brings the same "
        "results. Use what came back, or change the question, the source or the tool.",
    ),
    "ping_pong": (
        LessonKind.WHEN,
        "When two calls take turns and neither changes its result, stop. Write down what each of them says, decide "
        "between them, and do the next step of the task.",
    ),
    "no_new_information": (
        LessonKind.WHEN,
        "When different calls of one kind keep bringing the same result, more of them won't help. Say what is still "
        "missing and look for it in another place or with another tool.",
    ),
}
# Detectors of the same trouble, the most specific first: if several fire in the same rounds, only that one advises.
PRECEDENCE = (
    ("kill_loop", "repeated_error_signature", "repeated_tool_error", "severity_climb"),
    ("ping_pong", "same_call_again", "no_new_information"),
    ("oversized_cell",),
    ("orphaned_tool_call",),
    ("reset_churn",),
    ("name_switch",),
    ("repair_churn",),
    ("cap_exhausted",),
)
_PRECEDENCE_RANKS = {
    name: (family, place) for family, names in enumerate(PRECEDENCE) for place, name in enumerate(names)
}


def is_more_specific_detector(detector: str, than: str) -> bool:
    """Whether both detect the same kind of trouble and the first is more specific."""
    (family, place), (other, behind) = _PRECEDENCE_RANKS[detector], _PRECEDENCE_RANKS[than]
    return family == other and place < behind


def sort_lessons_by_precedence(lessons: Iterable[DetectorLesson]) -> list[DetectorLesson]:
    """Sort lessons by family, the most specific detector first."""
    return sorted(lessons, key=lambda each: _PRECEDENCE_RANKS[each.detector])


def hide_killed_cell_outcomes_from_detector(detector: str, events: Sequence[AgentEvent]) -> Sequence[AgentEvent]:
    """Return the events on which a detector may advise before the turn is over.

    Less specific detectors must not see a killed cell as a failure yet: their advice (stop calling the tool) could
    contradict that of the kill loop one round later (run the same cell again).
    """
    if not is_more_specific_detector("kill_loop", detector):
        return events
    rounds = {event.round_idx for event in _filter_events_by_kind(events, EventKind.SCRATCHPAD_KILLED)}
    return [
        _clear_event_outcome(event) if event.round_idx in rounds and _is_cell_outcome_event(event) else event
        for event in events
    ]


def _is_cell_outcome_event(event: AgentEvent) -> bool:
    is_of_pad = event.kind in (EventKind.SCRATCHPAD_KILLED, EventKind.SCRATCHPAD_RESULT)
    return is_of_pad or _is_scratchpad_result(event)


def _clear_event_outcome(event: AgentEvent) -> AgentEvent:
    return replace(event, detail={**event.detail, "success": None}, severity=1)


def drop_covered_lessons(
    lessons: Iterable[DetectorLesson], told: Iterable[DetectorLesson] = ()
) -> tuple[DetectorLesson, ...]:
    """Return the lessons without those that a more specific one, new or already `told`, covers in one of its rounds."""
    found = tuple(lessons)
    return tuple(
        each
        for each in found
        if not any(
            is_more_specific_detector(one.detector, each.detector) and _shares_round(one, each)
            for one in (*found, *told)
        )
    )


def _shares_round(one: DetectorLesson, other: DetectorLesson) -> bool:
    rounds = {event.round_idx for event in one.evidence}
    return any(event.round_idx in rounds for event in other.evidence)


def make_detector_lesson(detector: str, evidence: Iterable[AgentEvent], *, variant: str = "") -> DetectorLesson:
    """Build the lesson of a detector, with the rule from `RULES`."""
    kind, rule = RULES[f"{detector}:{variant}" if variant else detector]
    return DetectorLesson(detector=detector, kind=kind, rule=rule, evidence=tuple(evidence))
