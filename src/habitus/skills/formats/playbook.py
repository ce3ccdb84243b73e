"""skills_playbook.json: the lessons of self-play, in the source's older and newer spelling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from habitus.skills.formats.base import NotTaken, PlaybookLesson
from habitus.skills.formats.foreign_values import Notes, count, flag, iso, moment, share, text, texts

# Ours → the source's spellings, the one that is written first.
_SPELLINGS = {
    "trigger": ("trigger", "task"),
    "anti_pattern": ("anti_pattern", "mistake"),
    "correct_pattern": ("correct_pattern", "solution"),
    "helpful": ("helpful_retrievals", "helpful"),
    "last_retrieved": ("last_retrieved_at", "last_retrieved"),
    "created_on": ("timestamp", "created_at"),
}
_PLAIN = ("domains", "confidence", "source", "source_challenge_hash", "frequency", "retrievals", "verified")
_KNOWN = {*_PLAIN, *(spelling for spellings in _SPELLINGS.values() for spelling in spellings)}


def read(values: Any, origin: str) -> Iterator[PlaybookLesson | NotTaken]:
    if isinstance(values, dict):
        values = next((found for key in ("lessons", "playbook") if isinstance(found := values.get(key), list)), None)
    if not isinstance(values, list):
        yield NotTaken(origin=origin, name="", reason="It holds no list of lessons.")
        return
    for number, value in enumerate(values, 1):
        yield _lesson(value, f"{origin}, lesson {number}")


def _lesson(value: Any, origin: str) -> PlaybookLesson | NotTaken:
    if not isinstance(value, dict):
        return NotTaken(origin=origin, name="", reason="It is no object.")
    trigger, fix = text(_spelt(value, "trigger")), text(_spelt(value, "correct_pattern"))
    if not trigger.strip() or not fix.strip():
        missing = "when it applies (trigger)" if not trigger.strip() else "what to do (correct_pattern)"
        return NotTaken(origin=origin, name=trigger[:60], reason=f"It does not say {missing}.")
    notes = Notes(origin)
    return PlaybookLesson(
        origin=origin,
        trigger=trigger,
        anti_pattern=text(_spelt(value, "anti_pattern")),
        correct_pattern=fix,
        domains=texts(value.get("domains"), "domains", notes),
        confidence=share(value.get("confidence"), "confidence", notes, 0.5),
        source=text(value.get("source")),
        source_challenge_hash=text(value.get("source_challenge_hash")),
        frequency=count(value.get("frequency"), "frequency", notes, 1),
        retrievals=count(value.get("retrievals"), "retrievals", notes),
        helpful=count(_spelt(value, "helpful"), "helpful", notes),
        last_retrieved=moment(_spelt(value, "last_retrieved"), "last_retrieved", notes),
        verified=flag(value.get("verified"), "verified", notes, False),
        created_on=moment(_spelt(value, "created_on"), "created_on", notes),
        extra={key: item for key, item in value.items() if key not in _KNOWN},
    )


def _spelt(value: Mapping[str, Any], field: str) -> Any:
    return next((found for key in _SPELLINGS[field] if (found := value.get(key)) not in (None, "")), None)


def write_lessons(lessons: Sequence[PlaybookLesson]) -> list[dict[str, Any]]:
    """The lessons as the source reads them; its older readers know only task, mistake and solution."""
    return [
        {
            "timestamp": iso(lesson.created_on),
            "task": lesson.trigger,
            "mistake": lesson.anti_pattern,
            "solution": lesson.correct_pattern,
            "trigger": lesson.trigger,
            "anti_pattern": lesson.anti_pattern,
            "correct_pattern": lesson.correct_pattern,
            "domains": list(lesson.domains),
            "confidence": lesson.confidence,
            "source": lesson.source,
            "source_challenge_hash": lesson.source_challenge_hash,
            "frequency": lesson.frequency,
            "retrievals": lesson.retrievals,
            "helpful_retrievals": lesson.helpful,
            "last_retrieved_at": iso(lesson.last_retrieved),
            "verified": lesson.verified,
            **lesson.extra,
        }
        for lesson in lessons
    ]
