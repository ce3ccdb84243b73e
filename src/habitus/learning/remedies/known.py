"""Remedies that memory holds: written as lessons, and found again at the moment of failure. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from habitus.events import tool_called, tool_returned
from habitus.learning.remedies import wording
from habitus.learning.remedies.alignment import focus
from habitus.learning.remedies.calls import Call, calls
from habitus.learning.remedies.commands import Command, commands, is_flag, written
from habitus.learning.remedies.findings import VARIES, Held, ProposedRule
from habitus.learning.remedies.troubles import Trouble, trouble
from habitus.memory.model import HIGH, MEDIUM, Draft, Engram, Evidence, Kind, LessonBody, Producer, Scope

SURE_FROM = 3  # sessions
_SHELL = "shell"


def drafted(held: Held, *, now: datetime, user: str, project: str) -> Draft:
    """A remedy as memory takes it: for its project, or for the user where several projects have it."""
    remedy = held.remedy
    return Draft(
        text=wording.lesson(held),
        kind=Kind.LESSON,
        scope=Scope.PROJECT if held.project else Scope.USER,
        confidence=HIGH if held.sessions >= SURE_FROM else MEDIUM,
        produced_by=Producer.TRANSCRIPTS,
        evidence=Evidence(error_signature=held.signatures[0], trace=held.traces[-1], told=wording.evidence(held, now)),
        body=LessonBody(
            trigger=f"{remedy.cause.value}: {remedy.about}",
            anti_pattern=written(remedy.wrong),
            correct_pattern=written(remedy.right),
            domains=(remedy.tool or _SHELL,),
        ),
        user=user,
        project=project,
    )


def drafted_rule(rule: ProposedRule, *, now: datetime, user: str, project: str) -> Draft:
    """A correction as memory takes it; it waits until the person says yes."""
    return Draft(
        text=rule.correction.text,
        kind=rule.correction.kind,
        scope=Scope.PROJECT if rule.project else Scope.USER,
        confidence=HIGH if rule.is_lesson else MEDIUM,
        produced_by=Producer.TRANSCRIPTS,
        evidence=Evidence(trace=rule.traces[-1], told=wording.rule_evidence(rule, now)),
        user=user,
        project=project,
    )


def remedy_for(lessons: Iterable[Engram], tool: str, arguments: object, error: str) -> str:
    """What is known to help against this failure; empty where nothing is."""
    failed = tool_returned(tool, success=False, error=error)
    (call,) = calls((tool_called(tool, arguments), failed))
    return remedy_of(lessons, call)


def remedy_of(lessons: Iterable[Engram], failed: Call) -> str:
    about = trouble(failed.error)
    if not about.says_something:
        return ""
    found = [
        lesson
        for lesson in lessons
        if lesson.produced_by is Producer.TRANSCRIPTS and lesson.body and _is_about(lesson, lesson.body, failed, about)
    ]
    best = max(found, key=lambda lesson: (lesson.confidence, lesson.counters.frequency, lesson.id), default=None)
    return best.text if best else ""


def _is_about(lesson: Engram, body: LessonBody, failed: Call, about: Trouble) -> bool:
    """Whether the call that failed is the one that the lesson warns of, and with the same trouble."""
    is_same_name = bool(about.about) and body.trigger == f"{about.cause.value}: {about.about}"
    if not is_same_name and not _is_same_error(lesson.evidence.error_signature, about.signature):
        return False
    if not failed.command:
        return body.domains == (failed.name,)
    wanted, warned = focus(failed, about), commands(body.anti_pattern)
    if wanted is None or not warned or body.domains != (_SHELL,):
        return False
    return _is_warned_of(wanted, warned[-1], frozenset(body.correct_pattern.split()))


_ALIKE = 0.6  # of the words of two errors; names and numbers that are not told apart differ


def _is_same_error(one: str, other: str) -> bool:
    words, others = set(one.split()), set(other.split())
    return bool(words & others) and len(words & others) >= _ALIKE * len(words | others)


def _is_warned_of(failed: Command, warned: Command, remedy: frozenset[str]) -> bool:
    """Whether it begins in the same way, with the flags that were wrong, and is not what is advised already."""
    if failed.head[: len(warned.head)] != warned.head:
        return False
    targets = failed.targets[: len(warned.targets)]
    is_same = len(targets) == len(warned.targets) and all(
        word in (theirs, VARIES) for word, theirs in zip(warned.targets, targets, strict=True)
    )
    wrong = {word for word in warned.args if is_flag(word)}
    advised = {word for word in remedy if is_flag(word)} - wrong
    return is_same and wrong <= set(failed.args) and not (advised and advised <= set(failed.words))
