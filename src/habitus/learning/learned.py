"""What learning hands to memory, and the little it asks of memory in return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

HIGH, MEDIUM = 0.9, 0.6
CONSOLIDATION = "consolidation"


class LearnedBy(StrEnum):
    DETECTOR = "detector"  # a text of ours
    CEREBELLUM = "cerebellum"  # a model's words about failed cells


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What a lesson rests on."""

    detector: str = ""
    error_signature: str = ""
    trace: str = ""  # the turn, or the file and turn of a transcript


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """One lesson on its way into memory. `kind`, `scope` and `source` are memory's words."""

    text: str
    kind: str  # always, never, when, lesson
    scope: str  # global, project
    confidence: float
    producer: LearnedBy
    topic: str = ""
    source: str = CONSOLIDATION
    evidence: Evidence = field(default_factory=Evidence)
    user: str = ""
    project: str = ""


class KeptAs(StrEnum):
    """What became of a lesson."""

    STORED = "stored"
    REINFORCED = "reinforced"
    WAITING = "waiting"  # for a person
    REFUSED = "refused"
    OFF = "off"
    PAUSED = "paused"

    @property
    def is_settled(self) -> bool:
        """Memory has dealt with it; telling it again would count it twice."""
        return self not in (KeptAs.OFF, KeptAs.PAUSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    status: KeptAs
    reason: str = ""


class LessonKeeper(Protocol):
    """Memory, as those who learn see it."""

    def is_taking(self) -> bool:
        """Whether lessons are kept at all now: memory is on, and nothing is paused."""
        ...

    def encode(self, learned: Learned) -> Kept: ...

    def has_similar(self, text: str) -> bool: ...

    def ignored(self, rules: Sequence[str]) -> None:
        """These rules stood in the prompt, and what they warn of happened all the same."""
        ...
