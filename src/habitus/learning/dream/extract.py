"""Drawing a lesson from an exercise that did not go well: one call of a model, its answer taken apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, Field

from habitus.learning.asking import ask_within
from habitus.learning.budget import BudgetedModel
from habitus.memory.model import LessonBody
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
