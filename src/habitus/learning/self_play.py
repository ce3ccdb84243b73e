"""Self-play: solve challenges that have a right and a wrong solution, extract a lesson, and keep it if it helps.

A lesson that only restates its challenge teaches nothing and is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, Field

from habitus.errors import Invalid, NotFound
from habitus.learning.budget import BudgetedModel, ask_for_structured_answer
from habitus.memory.model import PLAYBOOK_HEADING, SelfPlayLessonBody
from habitus.redact import Redactor
from habitus.skills import names
from habitus.tasks.files import parse_task, parse_toml
from habitus.tasks.leaks import find_words_copied_from_task
from habitus.tasks.model import Task, TaskOrigin, TaskOriginKind
from habitus.tasks.rollouts import Rollout
from habitus.text import load_prompt

# Tokens of an answer.
_LESSON_TOKENS = 800
_ATTEMPT_CHARS = 3_000
_LESSON_PATIENCE_S = 120.0


class LessonAnswer(BaseModel):
    """The model's lesson; the prompt describes the fields."""

    trigger: str = ""
    anti_pattern: str = ""
    correct_pattern: str = ""
    domains: list[str] = Field(default_factory=list)
    confidence: float = Field(default=0.5, ge=0, le=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtractedLesson:
    """A lesson and how confident the model is of it."""

    lesson: SelfPlayLessonBody
    confidence: float


async def extract_lesson(
    challenge: Task, attempts: Sequence[Rollout], *, model: BudgetedModel, redactor: Redactor
) -> ExtractedLesson:
    """Let a model extract a lesson from the attempts. Raises the errors of `ask_for_structured_answer`."""
    record = json.dumps(
        {
            "task": challenge.request,
            "domain": challenge.domain,
            "attempts": [_describe_attempt(each) for each in attempts],
        },
        ensure_ascii=False,
    )
    said = await ask_for_structured_answer(
        model,
        LessonAnswer,
        system=load_prompt("learning", "extract-lesson"),
        record=redactor.redact(record).text,
        max_tokens=_LESSON_TOKENS,
        patience_s=_LESSON_PATIENCE_S,
    )
    lesson = SelfPlayLessonBody(
        trigger=_collapse_whitespace(said.trigger),
        anti_pattern=_collapse_whitespace(said.anti_pattern),
        correct_pattern=_collapse_whitespace(said.correct_pattern),
        domains=tuple(dict.fromkeys(said.domains)),
        source_challenge_hash=challenge.hash,
    )
    return ExtractedLesson(lesson=lesson, confidence=said.confidence)


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


def _describe_attempt(made: Rollout) -> str:
    did = (
        made.solver_actions
        if len(made.solver_actions) <= _ATTEMPT_CHARS
        else f"… {made.solver_actions[-_ATTEMPT_CHARS:]}"
    )
    return f"{did}\n\nJudged: {made.reason}"


MAX_ATTEMPTS = 3


class ChallengeSolver(Protocol):
    """Solves challenges, each call in a new workspace."""

    async def solve(self, challenge: Task, *, playbook: str = "", feedback: str = "") -> Rollout: ...


class DreamVerdict(StrEnum):
    """What came of a challenge."""

    # Solved at the first attempt.
    NOTHING = "nothing to learn"
    # The lesson failed a check, or there was none.
    REJECTED = "rejected"
    # The challenge passed with the lesson and failed without it.
    VERIFIED = "verified"
    # Plausible, but nothing has verified it.
    CANDIDATE = "candidate"
    INFRA = "could not be tried"
    # Its validator accepts the wrong solution, or not the right one.
    UNSOUND = "no good exercise"


@dataclass(frozen=True, kw_only=True, slots=True)
class DreamResult:
    """The result of one cycle of self-play, with its lesson and spending."""

    challenge: str
    verdict: DreamVerdict
    reason: str = ""
    lesson: SelfPlayLessonBody | None = None
    confidence: float = 0.0
    # Until the challenge passed, or all of them.
    attempts: int = 0
    passed: bool = False
    tokens: int = 0
    requests: int = 0
    dollars: float = 0.0
    # A request was refused for lack of budget.
    is_spent: bool = False

    @property
    def is_lesson_kept(self) -> bool:
        """Whether its lesson should be stored."""
        return self.verdict in (DreamVerdict.VERIFIED, DreamVerdict.CANDIDATE)


LessonExtractor = Callable[[Task, Sequence[Rollout]], Awaitable[ExtractedLesson]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dreamer:
    """Self-play: solves challenges, extracts lessons from the attempts, and verifies them; the caller stores them."""

    solver: ChallengeSolver
    extract: LessonExtractor

    async def dream(self, challenge: Task) -> DreamResult:
        """Run one cycle over a challenge."""
        tried = await self._attempt_challenge_until_solved(challenge)
        last = tried[-1]
        dreamt = DreamResult(
            challenge=challenge.id,
            verdict=DreamVerdict.NOTHING,
            reason="it was solved at once",
            attempts=len(tried),
            passed=last.is_ok,
        )
        if last.is_infra:
            return replace(dreamt, verdict=DreamVerdict.INFRA, reason=last.reason)
        if last.is_ok and len(tried) == 1:
            return dreamt
        drawn = await self.extract(challenge, tried)
        dreamt = replace(dreamt, lesson=drawn.lesson, confidence=drawn.confidence)
        if reason := find_lesson_objection(drawn.lesson, challenge):
            return replace(dreamt, verdict=DreamVerdict.REJECTED, reason=reason)
        return await verify_lesson_against_control_attempt(challenge, self.solver, drawn.lesson, dreamt)

    async def _attempt_challenge_until_solved(self, challenge: Task) -> list[Rollout]:
        tried: list[Rollout] = []
        while len(tried) < MAX_ATTEMPTS:
            feedback = tried[-1].reason if tried else ""
            tried.append(await self.solver.solve(challenge, feedback=feedback))
            if tried[-1].is_ok or tried[-1].is_infra:
                break
        return tried


async def verify_lesson_against_control_attempt(
    challenge: Task, solver: ChallengeSolver, lesson: SelfPlayLessonBody, dreamt: DreamResult
) -> DreamResult:
    """Solve the challenge once with the lesson and once without.

    A success without it shows that the first one was luck.
    """
    with_it = await solver.solve(challenge, playbook=f"{PLAYBOOK_HEADING}\n- {lesson.text}")
    candidate = replace(dreamt, verdict=DreamVerdict.CANDIDATE)
    if with_it.is_infra:
        return replace(candidate, reason=f"it could not be tried: {with_it.reason}")
    if not with_it.is_ok:
        return replace(candidate, reason="it went no better with it")
    control = await solver.solve(challenge)
    if control.is_infra:
        return replace(candidate, reason=f"there is no control: {control.reason}")
    if control.is_ok:
        return replace(candidate, reason="it went as well without it")
    was = f"passed at attempt {dreamt.attempts}" if dreamt.passed else "failed"
    why = f"{was} before, passed at once with it, and failed without it"
    return replace(candidate, verdict=DreamVerdict.VERIFIED, reason=why)


DOMAINS = ("data_analysis", "regex_parse", "sql", "concurrency", "algo", "bash", "python_general", "web_automation")


def parse_challenge(
    row: Mapping[str, Any], *, name: str, where: str, origin: TaskOriginKind = TaskOriginKind.FILE
) -> Task:
    """Return the task in a file's or a model's data; `Invalid` if a field that self-play needs is missing."""
    task = parse_task(row, where, origin=TaskOrigin(kind=origin), id=name)
    solutions = {"reference": task.reference, "wrong": task.wrong}
    for key, value in {"request": task.request, "domain": task.domain, **solutions}.items():
        if not value:
            raise Invalid(f"{where}: '{key}' is missing, empty or no text.", hint="Write it.")
    if task.domain not in DOMAINS:
        raise Invalid(f"{where}: '{task.domain}' is no domain.", hint=f"There are: {', '.join(DOMAINS)}.")
    return task


def read_challenges(path: Path) -> tuple[Task, ...]:
    """Return the challenges of a .toml file, or of all in a folder."""
    if not path.exists():
        raise NotFound(f"There is no {path}.", hint="Name a .toml file with a challenge, or a folder of them.")
    found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    return tuple(
        _parse_challenge_toml(each.read_text("utf-8", errors="replace"), each.stem, str(each)) for each in found
    )


@cache
def list_bundled_challenges() -> tuple[Task, ...]:
    """Return the challenges that come with Habitus."""
    folder = files("habitus.learning").joinpath("challenges")
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(
        _parse_challenge_toml(
            each.read_text("utf-8"), each.name.removesuffix(".toml"), each.name, TaskOriginKind.BUNDLED
        )
        for each in found
    )


def _parse_challenge_toml(text: str, name: str, where: str, origin: TaskOriginKind = TaskOriginKind.FILE) -> Task:
    return parse_challenge(parse_toml(text, about=where), name=name, where=where, origin=origin)


_CHALLENGE_TOKENS = 3_000
_CHALLENGE_PATIENCE_S = 180.0
_RECORD_CHARS = 4_000


class ChallengeAnswer(BaseModel):
    """The model's challenge; the prompt describes the fields."""

    name: str
    domain: str
    task: str
    setup: str = ""
    validator: str
    reference: str
    wrong: str


async def generate_challenge(failures: Sequence[str], *, model: BudgetedModel, redactor: Redactor) -> Task:
    """Let a model invent a challenge about errors and lessons; it is not validated yet."""
    record = redactor.redact("\n".join(failures)).text[:_RECORD_CHARS] or "(nothing yet: choose a common mistake)"
    answer = await ask_for_structured_answer(
        model,
        ChallengeAnswer,
        system=load_prompt("learning", "propose-challenge"),
        record=record,
        max_tokens=_CHALLENGE_TOKENS,
        patience_s=_CHALLENGE_PATIENCE_S,
    )
    # The name becomes a file name.
    name = names.slugify(answer.name)
    row, where = answer.model_dump(exclude={"name"}), f"the challenge of {model.name}"
    return parse_challenge(row, name=name, where=where, origin=TaskOriginKind.SELF_PLAY)


def find_lesson_objection(lesson: SelfPlayLessonBody, challenge: Task) -> str:
    """Return why the lesson is rejected; empty if it is not."""
    if not lesson.trigger.strip():
        return "it does not say when it holds"
    if not lesson.correct_pattern.strip():
        return "it does not say what to do"
    if not lesson.domains:
        return "it names no domain"
    for domain in lesson.domains:
        if domain not in DOMAINS:
            return f"'{domain}' is no domain"
    said = "\n".join((lesson.trigger, lesson.correct_pattern, lesson.anti_pattern))
    quoted = find_words_copied_from_task(said, challenge)
    how = "repeats the exercise:" if " " in quoted else "copies"
    return f"it {how} '{quoted}'" if quoted else ""
