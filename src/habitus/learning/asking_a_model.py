"""Asking a model for learning: one value of a shape, within a budget and before patience ends; and whether a rollout is
as a sentence (a rubric) wants it."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from importlib.resources import files
from typing import TypeVar

from pydantic import BaseModel

from habitus.events import OK, Outcome, failure, infra
from habitus.learning.budget import BudgetedModel, CapReached
from habitus.llm.model import Asked, NoUsableAnswer, ProviderFault, Text
from habitus.llm.structured import ask_for
from habitus.redact import Redactor
from habitus.tasks.checks import Rubric
from habitus.tasks.model import Rollout, Task

T = TypeVar("T", bound=BaseModel)

ATTEMPTS = 2
PATIENCE_S = 60.0


async def ask_within(
    model: BudgetedModel, kind: type[T], *, system: str, record: str, room: int, patience_s: float | None = PATIENCE_S
) -> T:
    """One value of `kind`; `CapReached`, `ProviderFault`, `NoUsableAnswer` and `TimeoutError` go through."""
    messages = (Asked(parts=(Text(text=record),)),)
    async with asyncio.timeout(patience_s):
        asked = await ask_for(model, kind, system=system, messages=messages, max_tokens=room, attempts=ATTEMPTS)
    return asked.value


_ROOM = 400
_LONGEST = 8_000  # characters of a reply that the model is shown


class RubricAnswer(BaseModel):
    """What a model is asked for; the prompt says what each field is."""

    is_met: bool
    reason: str = ""


async def judge_rubric(
    task: Task, rubric: Rubric, rollout: Rollout, *, model: BudgetedModel, redactor: Redactor
) -> Outcome:
    """Its outcome is `infra` where the model gave no answer."""
    calls = [f"{call.tool} {call.command or call.arguments}"[:300] for call in rollout.calls[-20:]]
    record = json.dumps(
        {"request": task.request, "rubric": rubric.text, "reply": rollout.reply[-_LONGEST:], "calls": calls},
        ensure_ascii=False,
    )
    try:
        said = await ask_within(model, RubricAnswer, system=_prompt(), record=redactor.redact(record).text, room=_ROOM)
    except (CapReached, ProviderFault, NoUsableAnswer, TimeoutError) as fault:
        return infra(str(fault) or "the model took too long")
    reason = " ".join(said.reason.split())[:300]
    return OK if said.is_met else failure(f"{model.name} says: {reason or 'it is not as the rubric wants it'}")


@cache
def _prompt() -> str:
    return files("habitus.learning").joinpath("prompts", "judge-rubric.md").read_text("utf-8")
