"""A cycle of self-play: solve a challenge, draw a lesson, guard it, see whether it helps, and keep it accordingly."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Protocol

from pydantic import BaseModel, Field

from habitus.events import Outcome, OutcomeKind
from habitus.learning.asking import ask_within
from habitus.learning.budget import BudgetedModel
from habitus.learning.dream.guard import objection
from habitus.memory.model import PLAYBOOK, LessonBody
from habitus.redact import Redactor
from habitus.tasks.model import Task

_ROOM = 800  # tokens of an answer
_ATTEMPT_CHARS = 3_000
_PATIENCE_S = 120.0


class LessonAnswer(BaseModel):
    """What a model is asked for; the prompt says what each field is."""

    trigger: str = ""
    anti_pattern: str = ""
    correct_pattern: str = ""
    domains: list[str] = Field(default_factory=list)
    confidence: float = Field(default=0.5, ge=0, le=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Extracted:
    lesson: LessonBody
    confidence: float


async def extract(challenge: Task, attempts: Sequence[str], *, model: BudgetedModel, redactor: Redactor) -> Extracted:
    """`attempts` say what was done and what came of it. Faults of the model and the cap go through."""
    record = json.dumps(
        {"task": challenge.request, "domain": challenge.domain, "attempts": [_short(each) for each in attempts]},
        ensure_ascii=False,
    )
    said = await ask_within(
        model,
        LessonAnswer,
        system=_prompt(),
        record=redactor.redact(record).text,
        room=_ROOM,
        patience_s=_PATIENCE_S,
    )
    lesson = LessonBody(
        trigger=_line(said.trigger),
        anti_pattern=_line(said.anti_pattern),
        correct_pattern=_line(said.correct_pattern),
        domains=tuple(dict.fromkeys(said.domains)),
        source_challenge_hash=challenge.hash,
    )
    return Extracted(lesson=lesson, confidence=said.confidence)


def _line(text: str) -> str:
    return " ".join(text.split())


def _short(text: str) -> str:
    return text if len(text) <= _ATTEMPT_CHARS else f"… {text[-_ATTEMPT_CHARS:]}"


@cache
def _prompt() -> str:
    return files("habitus.learning").joinpath("prompts", "extract-lesson.md").read_text("utf-8")


ATTEMPTS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try of a solver, judged by the validator. `infra` is nobody's failure."""

    outcome: Outcome
    record: str = ""  # what was done and what came of it


class Solver(Protocol):
    """Somebody who solves. Each call begins in a place that is laid out anew."""

    async def solve(self, challenge: Task, *, playbook: str = "", feedback: str = "") -> Attempt: ...


class DreamVerdict(StrEnum):
    NOTHING = "nothing to learn"  # solved at once
    REJECTED = "rejected"  # by the guard, or there was no lesson
    VERIFIED = "verified"  # it went better with the lesson, and not without
    CANDIDATE = "candidate"  # it may be true; nothing has shown it
    INFRA = "could not be tried"
    UNSOUND = "no good exercise"  # its validator passes what it should not, or not what it should


@dataclass(frozen=True, kw_only=True, slots=True)
class Dreamt:
    challenge: str
    verdict: DreamVerdict
    reason: str = ""
    lesson: LessonBody | None = None
    confidence: float = 0.0
    attempts: int = 0  # until it passed, or all of them
    passed: bool = False
    tokens: int = 0
    requests: int = 0
    dollars: float = 0.0
    is_spent: bool = False  # a request was not made for lack of budget

    @property
    def is_kept(self) -> bool:
        return self.verdict in (DreamVerdict.VERIFIED, DreamVerdict.CANDIDATE)


Extract = Callable[[Task, Sequence[str]], Awaitable[Extracted]]


async def cycle(challenge: Task, solver: Solver, extract: Extract) -> Dreamt:
    """One challenge to its end; what is to be kept is for the caller to keep."""
    tried = await _attempt(challenge, solver)
    last = tried[-1].outcome
    dreamt = Dreamt(
        challenge=challenge.id,
        verdict=DreamVerdict.NOTHING,
        reason="it was solved at once",
        attempts=len(tried),
        passed=last.is_ok,
    )
    if last.kind is OutcomeKind.INFRA:
        return replace(dreamt, verdict=DreamVerdict.INFRA, reason=last.reason)
    if last.is_ok and len(tried) == 1:
        return dreamt
    drawn = await extract(challenge, [each.record for each in tried])
    dreamt = replace(dreamt, lesson=drawn.lesson, confidence=drawn.confidence)
    if reason := objection(drawn.lesson, challenge):
        return replace(dreamt, verdict=DreamVerdict.REJECTED, reason=reason)
    return await verify_lesson(challenge, solver, drawn.lesson, dreamt)


async def _attempt(challenge: Task, solver: Solver) -> list[Attempt]:
    tried: list[Attempt] = []
    while len(tried) < ATTEMPTS:
        feedback = tried[-1].outcome.reason if tried else ""
        tried.append(await solver.solve(challenge, feedback=feedback))
        if tried[-1].outcome.kind is not OutcomeKind.FAILED:
            break
    return tried


async def verify_lesson(challenge: Task, solver: Solver, lesson: LessonBody, dreamt: Dreamt) -> Dreamt:
    """Once with the lesson, and once without: what passes anyway was luck."""
    with_it = await solver.solve(challenge, playbook=f"{PLAYBOOK}\n- {lesson.text}")
    candidate = replace(dreamt, verdict=DreamVerdict.CANDIDATE)
    if with_it.outcome.kind is OutcomeKind.INFRA:
        return replace(candidate, reason=f"it could not be tried: {with_it.outcome.reason}")
    if not with_it.outcome.is_ok:
        return replace(candidate, reason="it went no better with it")
    control = await solver.solve(challenge)
    if control.outcome.kind is OutcomeKind.INFRA:
        return replace(candidate, reason=f"there is no control: {control.outcome.reason}")
    if control.outcome.is_ok:
        return replace(candidate, reason="it went as well without it")
    was = f"passed at attempt {dreamt.attempts}" if dreamt.passed else "failed"
    why = f"{was} before, passed at once with it, and failed without it"
    return replace(candidate, verdict=DreamVerdict.VERIFIED, reason=why)
