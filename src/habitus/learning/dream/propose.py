"""A new challenge from a model, about what has gone wrong before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from pydantic import BaseModel

from habitus.learning.asking import ask_within
from habitus.learning.budget import BudgetedModel
from habitus.learning.dream.exercises import exercise_of
from habitus.redact import Redactor
from habitus.skills import names
from habitus.tasks.model import OriginKind, Task

_ROOM = 3_000
_PATIENCE_S = 180.0
_RECORD_CHARS = 4_000


class ChallengeAnswer(BaseModel):
    """What a model is asked for; the prompt says what each field is."""

    name: str
    domain: str
    task: str
    setup: str = ""
    validator: str
    reference: str
    wrong: str


async def propose(about: Sequence[str], *, model: BudgetedModel, redactor: Redactor) -> Task:
    """A challenge that nobody has checked yet; `about` are errors and lessons."""
    record = redactor.redact("\n".join(about)).text[:_RECORD_CHARS] or "(nothing yet: choose a common mistake)"
    answer = await ask_within(
        model, ChallengeAnswer, system=_prompt(), record=record, room=_ROOM, patience_s=_PATIENCE_S
    )
    values = answer.model_dump()
    name = names.slugify(values["name"])  # it becomes that of a file
    row = {key: value for key, value in values.items() if key != "name"}
    where = f"the challenge of {model.name}"
    return exercise_of(row, name=name, where=where, origin=OriginKind.SELF_PLAY)


@cache
def _prompt() -> str:
    return files("habitus.learning").joinpath("prompts", "propose-challenge.md").read_text("utf-8")
