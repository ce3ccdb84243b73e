"""Wording of a remedy as a lesson: the agent's own commands and words of ours, never what a tool said."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from datetime import datetime

from habitus.events import build_tool_call_event, build_tool_result_event
from habitus.learning.detectors.error_signatures import ClassifiedError, ErrorCause, classify_error
from habitus.learning.remedies.calls import (
    Call,
    Change,
    Command,
    Remedy,
    calls,
    commands,
    is_flag,
    parse_iso_timestamp,
    shell_text,
)
from habitus.learning.remedies.findings import VARIES, Held, ProposedRule
from habitus.memory.model import (
    HIGH_CONFIDENCE,
    MEDIUM_CONFIDENCE,
    Engram,
    LessonDraft,
    LessonKind,
    LessonProducer,
    LessonProvenance,
    LessonScope,
    SelfPlayLessonBody,
)

_PLAIN = re.compile(r"[\w@./+:=-]{1,60}")  # a name from an error that can say nothing but a name
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def lesson(held: Held) -> str:
    """One sentence that says what to do and what not."""
    here = "In this project " if held.project else ""
    said = _describe_remedy(held.remedy)
    return f"{here}{said[0].lower() if here else said[0].upper()}{said[1:]}."


def _describe_remedy(remedy: Remedy) -> str:
    right, wrong, fails = shell_text(remedy.right), shell_text(remedy.wrong), _fails(remedy)
    match remedy.change:
        case Change.ARGUMENT:
            wanted = f"call {remedy.tool} with `{right}`" if right else f"call {remedy.tool} without `{wrong}`"
            return f"{wanted}; `{wrong}` {fails}" if right and wrong else f"{wanted}, else it fails"
        case Change.FIRST:
            failed = f"`{wrong}`" if wrong else remedy.tool
            doing = f"run `{right}`" if not remedy.tool else f"call {remedy.right[0]}"
            return f"{doing} first when {failed} {fails}"
        case Change.PLACE if remedy.right[1] == ".":
            return f"run `{shell_text(remedy.right[3:])}` in the project's own directory; `{wrong}` {fails}"
        case Change.INSTEAD if remedy.right[-len(remedy.wrong) :] == remedy.wrong:
            return f"run `{right}`; `{wrong}` alone {fails}"
        case _:
            return f"run `{right}`; `{wrong}` {fails}"


def _fails(remedy: Remedy) -> str:
    name = posixpath.basename(remedy.about) if remedy.about.startswith("/") else remedy.about
    about = f" `{name}`" if _PLAIN.fullmatch(name) else ""
    match remedy.cause:
        case ErrorCause.PROGRAM:
            is_itself = not about or remedy.about in remedy.wrong
            return "is not found" if is_itself else f"does not find the program{about}"
        case ErrorCause.MODULE:
            return f"does not find the module{about}" if about else "does not find a module"
        case ErrorCause.OPTION:
            return "is not known" if not about or remedy.change is Change.NAME else f"does not know{about}"
        case ErrorCause.PERMISSION:
            return "is not permitted"
        case ErrorCause.FILE:
            return f"does not find{about}" if about else "does not find a file"
        case ErrorCause.SERVICE:
            return "finds no server running"
        case _:
            return "fails"


def evidence(held: Held, now: datetime) -> str:
    """How often it was seen, and when last."""
    return f"{held.sessions} {'session' if held.sessions == 1 else 'sessions'}{_last(held.last, now)}"


def rule_evidence(rule: ProposedRule, now: datetime) -> str:
    how = f"said after something was {rule.correction.after.value}"
    often = f" in {rule.times} sessions" if rule.times > 1 else ""
    return f"{how}{often}{_last(rule.correction.at, now)}"


def _last(at: str, now: datetime) -> str:
    when = parse_iso_timestamp(at)
    if when is None:
        return ""
    year = "" if when.year == now.year else f" {when.year}"
    return f", last in {_MONTHS[when.month - 1]}{year}"


SURE_FROM = 3  # sessions
_SHELL = "shell"


def draft_lesson(held: Held, *, now: datetime, user: str, project: str) -> LessonDraft:
    """A remedy as memory takes it: for its project, or for the user where several projects have it."""
    remedy = held.remedy
    return LessonDraft(
        text=lesson(held),
        kind=LessonKind.LESSON,
        scope=LessonScope.PROJECT if held.project else LessonScope.USER,
        confidence=HIGH_CONFIDENCE if held.sessions >= SURE_FROM else MEDIUM_CONFIDENCE,
        produced_by=LessonProducer.TRANSCRIPTS,
        evidence=LessonProvenance(error_signature=held.signatures[0], trace=held.traces[-1], told=evidence(held, now)),
        body=SelfPlayLessonBody(
            trigger=f"{remedy.cause.value}: {remedy.about}",
            anti_pattern=shell_text(remedy.wrong),
            correct_pattern=shell_text(remedy.right),
            domains=(remedy.tool or _SHELL,),
        ),
        user=user,
        project=project,
    )


def drafted_rule(rule: ProposedRule, *, now: datetime, user: str, project: str) -> LessonDraft:
    """A correction as memory takes it; it waits until the person says yes."""
    return LessonDraft(
        text=rule.correction.text,
        kind=rule.correction.kind,
        scope=LessonScope.PROJECT if rule.project else LessonScope.USER,
        confidence=HIGH_CONFIDENCE if rule.is_lesson else MEDIUM_CONFIDENCE,
        produced_by=LessonProducer.TRANSCRIPTS,
        evidence=LessonProvenance(trace=rule.traces[-1], told=rule_evidence(rule, now)),
        user=user,
        project=project,
    )


def remedy_for(lessons: Iterable[Engram], tool: str, arguments: object, error: str) -> str:
    """The known remedy against this failure; empty where there is none."""
    failed = build_tool_result_event(tool, success=False, error=error)
    (call,) = calls((build_tool_call_event(tool, arguments), failed))
    return remedy_of(lessons, call)


def remedy_of(lessons: Iterable[Engram], failed: Call) -> str:
    about = classify_error(failed.error)
    if not about.has_message:
        return ""
    found = [
        lesson
        for lesson in lessons
        if lesson.produced_by is LessonProducer.TRANSCRIPTS
        and lesson.body
        and _is_about(lesson, lesson.body, failed, about)
    ]
    best = max(found, key=lambda lesson: (lesson.confidence, lesson.counters.frequency, lesson.id), default=None)
    return best.text if best else ""


def _is_about(lesson: Engram, body: SelfPlayLessonBody, failed: Call, about: ClassifiedError) -> bool:
    """Whether the call that failed is the one that the lesson warns of, and with the same trouble."""
    is_same_name = bool(about.subject) and body.trigger == f"{about.cause.value}: {about.subject}"
    if not is_same_name and not _is_same_error(lesson.evidence.error_signature, about.signature):
        return False
    if not failed.command:
        return body.domains == (failed.name,)
    wanted, warned = failed.focus, commands(body.anti_pattern)
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
