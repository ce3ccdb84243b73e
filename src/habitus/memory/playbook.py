"""Lessons of another system's playbook on their way in: each only once, and what it counted only told."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from habitus.memory.memory import Cortex
from habitus.memory.model import MEDIUM, Draft, Evidence, Kind, LessonBody, Producer, Scope, Status


class ForeignLesson(Protocol):
    """A lesson as a reader of playbooks hands it out."""

    @property
    def trigger(self) -> str: ...
    @property
    def anti_pattern(self) -> str: ...
    @property
    def correct_pattern(self) -> str: ...
    @property
    def domains(self) -> tuple[str, ...]: ...
    @property
    def confidence(self) -> float: ...
    @property
    def source(self) -> str: ...
    @property
    def source_challenge_hash(self) -> str: ...
    @property
    def frequency(self) -> int: ...
    @property
    def retrievals(self) -> int: ...
    @property
    def helpful(self) -> int: ...
    @property
    def last_retrieved(self) -> datetime | None: ...
    @property
    def verified(self) -> bool: ...
    @property
    def created_on(self) -> datetime | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Landed:
    """What became of a lesson, in the words of an import."""

    name: str
    verdict: str
    reason: str = ""


_VERDICTS = {
    Status.STORED: "imported",
    Status.REINFORCED: "updated",
    Status.WAITING: "held",
    Status.REFUSED: "refused",
    Status.OFF: "refused",
    Status.PAUSED: "refused",
}


def land(cortex: Cortex, lesson: ForeignLesson) -> Landed:
    name, digest = _short_title(lesson.trigger), _digest(lesson)
    if cortex.knows_import(digest):
        return Landed(name=name, verdict="unchanged")
    body = LessonBody(
        trigger=lesson.trigger,
        anti_pattern=lesson.anti_pattern,
        correct_pattern=lesson.correct_pattern,
        domains=lesson.domains,
        source_challenge_hash=lesson.source_challenge_hash,
    )
    encoded = cortex.encode(
        Draft(
            text=body.text,
            kind=Kind.LESSON,
            scope=Scope.GLOBAL,
            confidence=min(lesson.confidence, MEDIUM),
            source=lesson.source or "self-play",
            evidence=Evidence(imported=(digest,), told=_describe_origin(lesson)),
            body=body,
            produced_by=Producer.IMPORT,
            created_on=lesson.created_on,
        )
    )
    reason = "" if encoded.status is Status.STORED else encoded.reason
    return Landed(name=name, verdict=_VERDICTS[encoded.status], reason=reason)


def _describe_origin(lesson: ForeignLesson) -> str:
    """What the playbook says of itself, in words; nobody here has seen it."""
    said = f"seen {lesson.frequency} times, shown {lesson.retrievals}, helped {lesson.helpful}"
    return f"{said}, verified" if lesson.verified else said


def _short_title(trigger: str) -> str:
    plain = " ".join(trigger.split())
    return plain if len(plain) <= 60 else f"{plain[:59]}…"


def _digest(lesson: ForeignLesson) -> str:
    """The same for the same lesson, whatever it has counted since."""
    said = [lesson.trigger, lesson.anti_pattern, lesson.correct_pattern, lesson.source_challenge_hash]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
