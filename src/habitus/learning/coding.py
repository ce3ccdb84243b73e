"""Drafting the code of a skill: the procedure and its recorded uses in, one program out that a trial decides about."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, Field

from habitus.learning.asking import ask_within
from habitus.learning.budget import BudgetedModel
from habitus.redact import Redactor

_ROOM = 4_000  # tokens of an answer


class CodeDraft(BaseModel):
    """What a model is asked for; the descriptions are its instructions."""

    description: str = Field(default="", description="What it does and when to call it, in one sentence.")
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object"}, description="JSON Schema (type object) of its arguments."
    )
    code: str = Field(default="", description="The whole Python program; empty if no program can do it alone.")
    payload: dict[str, Any] = Field(
        default_factory=dict, description="Arguments of one recorded use, which the program is tried with."
    )
    dependencies: list[str] = Field(
        default_factory=list, description="Packages it needs beside the standard library; none is best."
    )


async def draft_code(model: BudgetedModel, material: str, *, refused: str = "", redactor: Redactor) -> CodeDraft:
    """`refused` says why an earlier draft did not pass its trial. Faults of the model and the cap go through."""
    again = f"\n\n# An earlier draft was not accepted\n\n{refused}" if refused else ""
    record = redactor.redact(f"{material}{again}").text
    return await ask_within(model, CodeDraft, system=_prompt(), record=record, room=_ROOM)


@cache
def _prompt() -> str:
    return files("habitus.learning").joinpath("prompts", "draft-code.md").read_text("utf-8").strip()
