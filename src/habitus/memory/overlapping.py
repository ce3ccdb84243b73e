"""Detectors that see the same trouble: of their lessons one is kept, that of the most specific."""

from __future__ import annotations

from collections.abc import Iterable

from habitus.memory.model import Engram, LessonState, Producer

# The most specific first: where several fire over the same rounds, it advises, and its lesson is the one to keep.
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
PLACES = {name: (family, place) for family, names in enumerate(PRECEDENCE) for place, name in enumerate(names)}


def is_more_specific(detector: str, than: str) -> bool:
    """Whether both see the same trouble, and the first says more of it."""
    (family, place), (other, behind) = PLACES[detector], PLACES[than]
    return family == other and place < behind


def overlapping(engram: Engram, engrams: Iterable[Engram]) -> list[Engram]:
    """The lessons of other detectors that see what this one's saw, in its place, the most specific first.

    Those that a person or a trial stands behind are left alone.
    """
    if not is_of_detector(engram):
        return []
    family, own = PLACES[engram.evidence.detector]
    found = [
        one
        for one in engrams
        if one.id != engram.id
        and is_of_detector(one)
        and one.place == engram.place
        and PLACES[one.evidence.detector][0] == family
        and PLACES[one.evidence.detector][1] != own
    ]
    return sorted(found, key=specificity)


def is_of_detector(engram: Engram) -> bool:
    """Whether it is in use as a detector taught it."""
    is_ours = engram.produced_by is Producer.DETECTOR and engram.evidence.detector in PLACES
    return is_ours and engram.state is LessonState.ACTIVE and not engram.is_pinned


def specificity(engram: Engram) -> tuple[int, int]:
    """The lower, the more it says of its trouble."""
    return PLACES[engram.evidence.detector]
