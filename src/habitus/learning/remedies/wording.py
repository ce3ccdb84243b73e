"""Wording of a remedy as a lesson: the agent's own commands, our words, and at most a few plain words of an error."""

from __future__ import annotations

import calendar
import posixpath
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from habitus.events import build_tool_call_event, build_tool_result_event
from habitus.learning.detectors.error_signatures import ClassifiedError, ErrorCause, classify_error
from habitus.learning.remedies.calls import (
    Remedy,
    RemedyChangeKind,
    SessionCall,
    ShellCommand,
    is_flag,
    pair_calls_with_results,
    parse_iso_timestamp,
    parse_shell_commands,
    quote_for_shell,
)
from habitus.learning.remedies.findings import ProposedRule, SupportedRemedy
from habitus.learning.remedies.recurring_failures import VARYING_WORD
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
from habitus.text import format_quantity

_PLAIN = re.compile(r"[\w@./+:=-]{1,60}")  # a plain name; anything else in an error could carry instructions


def describe_remedy_lesson(held: SupportedRemedy) -> str:
    """Return one sentence that says what to do and what not to."""
    here = "In this project " if held.project else ""
    said = _describe_remedy(held.remedy)
    return f"{here}{said[0].lower() if here else said[0].upper()}{said[1:]}."


def _describe_remedy(remedy: Remedy) -> str:
    at = len(posixpath.commonprefix([remedy.right, remedy.wrong])) if remedy.shared_options else 0
    right, wrong = (
        quote_for_shell((*words[:at], *remedy.shared_options, *words[at:])) for words in (remedy.right, remedy.wrong)
    )
    fails = _describe_failure(remedy)
    match remedy.change:
        case RemedyChangeKind.ARGUMENT:
            wanted = f"call {remedy.tool} with `{right}`" if right else f"call {remedy.tool} without `{wrong}`"
            return f"{wanted}; `{wrong}` {fails}" if right and wrong else f"{wanted}, else it fails"
        case RemedyChangeKind.FIRST:
            failed = f"`{wrong}`" if wrong else remedy.tool
            doing = f"run `{right}`" if not remedy.tool else f"call {remedy.right[0]}"
            return f"{doing} first when {failed} {fails}"
        case RemedyChangeKind.PLACE if remedy.right[1] == ".":
            return f"run `{quote_for_shell(remedy.right[3:])}` in the project's own directory; `{wrong}` {fails}"
        case _ if remedy.says:
            return f"run `{right}` when `{wrong}` {fails}"
        case RemedyChangeKind.INSTEAD if remedy.right[-len(remedy.wrong) :] == remedy.wrong:
            return f"run `{right}`; `{wrong}` alone {fails}"
        case _:
            return f"run `{right}`; `{wrong}` {fails}"


def _describe_failure(remedy: Remedy) -> str:
    name = posixpath.basename(remedy.about) if remedy.about.startswith("/") else remedy.about
    about = f" `{name}`" if _PLAIN.fullmatch(name) else ""
    match remedy.cause:
        case ErrorCause.PROGRAM:
            is_itself = not about or remedy.about in remedy.wrong
            return "is not found" if is_itself else f"does not find the program{about}"
        case ErrorCause.MODULE:
            return f"does not find the module{about}" if about else "does not find a module"
        case ErrorCause.OPTION:
            return "is not known" if not about or remedy.change is RemedyChangeKind.NAME else f"does not know{about}"
        case ErrorCause.PERMISSION:
            return "is not permitted"
        case ErrorCause.FILE:
            return f"does not find{about}" if about else "does not find a file"
        case ErrorCause.SERVICE:
            return "finds no server running"
        case _:
            return f'says "{remedy.says}"' if remedy.says else "fails"


def describe_frequency_and_last_seen(found: SupportedRemedy | ProposedRule, now: datetime) -> str:
    """Return how often it was seen, and when last."""
    if isinstance(found, SupportedRemedy):
        return f"{format_quantity(found.sessions, 'session')}{_format_last_seen(found.last, now)}"
    last_seen, after = _format_last_seen(found.correction.at, now), found.correction.after
    if found.sessions > 1 or after is None:
        return f"said in {format_quantity(found.sessions, 'session')}{last_seen}"
    return f"said after something was {after.value}{last_seen}"


def _format_last_seen(at: str, now: datetime) -> str:
    when = parse_iso_timestamp(at)
    if when is None:
        return ""
    year = "" if when.year == now.year else f" {when.year}"
    return f", last in {calendar.month_name[when.month]}{year}"


SURE_FROM = 3  # sessions
_SHELL = "shell"


def draft_remedy_or_correction_lesson(
    found: SupportedRemedy | ProposedRule, *, now: datetime, user: str
) -> LessonDraft:
    """Return the memory draft of a remedy, or of a correction, which is pending until the person approves it.

    It is for its project, or for the user if several projects have it.
    """
    evidence = LessonProvenance(trace=found.traces[-1], told=describe_frequency_and_last_seen(found, now))
    if isinstance(found, SupportedRemedy):
        text, kind, is_sure = describe_remedy_lesson(found), LessonKind.LESSON, found.sessions >= SURE_FROM
        evidence, body = replace(evidence, error_signature=found.signatures[0]), _build_remedy_lesson_body(found.remedy)
    else:
        text, kind, is_sure, body = found.correction.text, found.correction.kind, found.is_worth_proposing, None
    return LessonDraft(
        text=text,
        kind=kind,
        scope=LessonScope.PROJECT if found.project else LessonScope.USER,
        confidence=HIGH_CONFIDENCE if is_sure else MEDIUM_CONFIDENCE,
        produced_by=LessonProducer.TRANSCRIPTS,
        evidence=evidence,
        body=body,
        user=user,
        project=found.project,
    )


def _build_remedy_lesson_body(remedy: Remedy) -> SelfPlayLessonBody:
    return SelfPlayLessonBody(
        trigger=f"{remedy.cause.value}: {remedy.says or remedy.about}",
        anti_pattern=quote_for_shell(remedy.wrong),
        correct_pattern=quote_for_shell(remedy.right),
        domains=(remedy.tool or _SHELL,),
    )


def find_remedy_text_for_error(lessons: Iterable[Engram], tool: str, arguments: object, error: str) -> str:
    """Return the known remedy against this failure; empty if there is none."""
    failed = build_tool_result_event(tool, success=False, error=error)
    (call,) = pair_calls_with_results((build_tool_call_event(tool, arguments), failed))
    return find_remedy_text_for_call(lessons, call)


def find_remedy_text_for_call(lessons: Iterable[Engram], failed: SessionCall) -> str:
    about = classify_error(failed.error)
    if not about.has_text_beyond_exit_code:
        return ""
    found = [
        lesson
        for lesson in lessons
        if lesson.produced_by is LessonProducer.TRANSCRIPTS
        and lesson.body
        and _is_lesson_about_call(lesson, lesson.body, failed, about)
    ]
    best = max(found, key=lambda lesson: (lesson.confidence, lesson.counters.frequency, lesson.id), default=None)
    return best.text if best else ""


def _is_lesson_about_call(
    lesson: Engram, body: SelfPlayLessonBody, failed: SessionCall, about: ClassifiedError
) -> bool:
    """Return whether the failed call is the one that the lesson warns of, with the same error."""
    subject = about.longest_plain_word_run if about.cause is ErrorCause.OTHER else about.subject
    is_same_name = bool(subject) and body.trigger == f"{about.cause.value}: {subject}"
    if not is_same_name and not _has_similar_error_words(lesson.evidence.error_signature, about.signature):
        return False
    if not failed.command:
        return body.domains == (failed.name,)
    wanted, warned = failed.failing_command, parse_shell_commands(body.anti_pattern)
    if wanted is None or not warned or body.domains != (_SHELL,):
        return False
    return _is_warned_command(wanted, warned[-1], frozenset(body.correct_pattern.split()))


_ALIKE = 0.6  # share of common words in two error signatures


def _has_similar_error_words(one: str, other: str) -> bool:
    words, others = set(one.split()), set(other.split())
    return bool(words & others) and len(words & others) >= _ALIKE * len(words | others)


def _is_warned_command(failed: ShellCommand, warned: ShellCommand, remedy: frozenset[str]) -> bool:
    """Return whether the command starts the same, has the wrong flags, and does not already follow the advice."""
    if failed.runner_and_program_words[: len(warned.runner_and_program_words)] != warned.runner_and_program_words:
        return False
    targets = failed.non_flag_args[: len(warned.non_flag_args)]
    is_same = len(targets) == len(warned.non_flag_args) and all(
        word in (theirs, VARYING_WORD) for word, theirs in zip(warned.non_flag_args, targets, strict=True)
    )
    wrong = {word for word in warned.args if is_flag(word)}
    advised = {word for word in remedy if is_flag(word)} - wrong
    return is_same and wrong <= set(failed.args) and not (advised and advised <= set(failed.words))
