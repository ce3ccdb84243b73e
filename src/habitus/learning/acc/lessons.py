"""What each detector teaches, in our own words. A rule says what to do instead, and never quotes what a tool said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from habitus.events import Event
from habitus.memory.model import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Lesson:
    detector: str
    kind: Kind
    rule: str
    evidence: tuple[Event, ...]  # the events that made the detector fire, in their order


RULES: dict[str, tuple[Kind, str]] = {
    "name_switch": (
        Kind.ALWAYS,
        "Stay with one scratchpad name for a whole task: each name is its own environment, and variables, imports and "
        "installed packages don't cross over. Go on in the scratchpad that holds the data.",
    ),
    "oversized_cell": (
        Kind.NEVER,
        "Never send a cell of more than about 5 KB: large code can arrive cut or empty. Write long text to a file in "
        "several short cells, and have the last cell read it.",
    ),
    "repeated_tool_error": (
        Kind.WHEN,
        "When a tool fails twice in a row, stop calling it. Read the error, check what the tool expects, change what "
        "the error names, or take another way.",
    ),
    "repeated_error_signature": (
        Kind.WHEN,
        "When the same error comes back a third time, small changes to the arguments won't mend it. Say what the error "
        "claims, test that claim with one small step, and only then go on.",
    ),
    "reset_churn": (
        Kind.NEVER,
        "Never reset a scratchpad a second time to escape an error. Look at the variables that are there, mend the one "
        "line that failed, and keep the rest.",
    ),
    "kill_loop:heavy": (
        Kind.WHEN,
        "When a cell is killed, don't run the same work again. Cut it into smaller cells: try a small part of the data "
        "first, save what is done, and go on from there.",
    ),
    "kill_loop:silence": (
        Kind.WHEN,
        "When a cell is killed only because it was silent for too long, run the same cell again, give it a longer "
        "estimate and print its progress. Don't rewrite work that was not wrong.",
    ),
    "severity_climb": (
        Kind.WHEN,
        "When each step ends worse than the one before, stop and change the plan: go back to the last state that "
        "worked, and take the smallest next step from there.",
    ),
    "repair_churn": (
        Kind.ALWAYS,
        "Always wait for the result of each tool call before going on, and end the calls of one answer before starting "
        "others: a conversation that has to be repaired again and again loses its thread.",
    ),
    "cap_exhausted": (
        Kind.WHEN,
        "When a task uses many rounds, plan first, do several things per round, and give a partial answer with what is "
        "left open before the rounds run out.",
    ),
    "orphaned_tool_call": (
        Kind.WHEN,
        "When a tool call has no result, don't assume that it ran. Check the state that it should have changed, and "
        "only then call it again.",
    ),
    "same_call_again": (
        Kind.NEVER,
        "Never ask again what was already answered: the same call, or the same words in another order, brings the same "
        "results. Use what came back, or change the question, the source or the tool.",
    ),
    "ping_pong": (
        Kind.WHEN,
        "When two calls take turns and neither changes its result, stop. Write down what each of them says, decide "
        "between them, and do the next step of the task.",
    ),
    "no_new_information": (
        Kind.WHEN,
        "When different calls of one kind keep bringing the same result, more of them won't help. Say what is still "
        "missing and look for it in another place or with another tool.",
    ),
}


# Detectors that see the same trouble, the most specific first: where several fire over the same rounds, it advises.
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
_PLACES = {name: (family, place) for family, names in enumerate(PRECEDENCE) for place, name in enumerate(names)}


def is_more_specific(detector: str, than: str) -> bool:
    """Whether both see the same trouble, and the first says more of it."""
    (family, place), (other, behind) = _PLACES[detector], _PLACES[than]
    return family == other and place < behind


def by_precedence(lessons: Iterable[Lesson]) -> list[Lesson]:
    return sorted(lessons, key=lambda each: _PLACES[each.detector])


def collapse(lessons: Iterable[Lesson], told: Iterable[Lesson] = ()) -> tuple[Lesson, ...]:
    """Without those that a more specific one, of these or of those `told`, covers in any of its rounds."""
    found = tuple(lessons)
    return tuple(
        each
        for each in found
        if not any(is_more_specific(one.detector, each.detector) and _overlap(one, each) for one in (*found, *told))
    )


def _overlap(one: Lesson, other: Lesson) -> bool:
    rounds = {event.round_idx for event in one.evidence}
    return any(event.round_idx in rounds for event in other.evidence)


def lesson(detector: str, evidence: Iterable[Event], *, variant: str = "") -> Lesson:
    kind, rule = RULES[f"{detector}:{variant}" if variant else detector]
    return Lesson(detector=detector, kind=kind, rule=rule, evidence=tuple(evidence))
