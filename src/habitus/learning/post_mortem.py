"""The post-mortem: what a model has to say about cells that went otherwise than their authors declared."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, Field

from habitus.learning.asking import PATIENCE_S, ask_within
from habitus.learning.budget import BudgetedModel
from habitus.redact import MARKER, Redactor
from habitus.sandbox.model import Cell
from habitus.text import tokens

log = logging.getLogger(__name__)

MOST_LESSONS = 3
MOST_CELLS = 12  # in one call
ROOM = 800  # tokens of an answer; three sentences need a fifth of that


class PostMortemAnswer(BaseModel):
    """The answer that is asked for."""

    lessons: list[str] = Field(
        description="At most three lessons of one sentence each; empty when nothing generalises."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    text: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PostMortem:
    lessons: tuple[str, ...] = ()
    refused: tuple[Refusal, ...] = ()


async def post_mortem(
    cells: Sequence[Cell],
    *,
    model: BudgetedModel,
    redactor: Redactor,
    patience_s: float = PATIENCE_S,
) -> PostMortem:
    """One call about all the cells; `CapReached`, `ProviderFault`, `NoUsableAnswer` and `TimeoutError` go through."""
    record = cells_as_json(cells, redactor)
    answer = await ask_within(
        model, PostMortemAnswer, system=_prompt(), record=record, room=ROOM, patience_s=patience_s
    )
    lessons, refused = check_lessons(answer.lessons, cells, redactor)
    return PostMortem(lessons=lessons, refused=refused)


def estimate(record: str) -> int:
    """About the tokens that one call takes."""
    return tokens(_prompt() + record) + ROOM // 4


# What the model is given

_CHARS = {"intended": 200, "did": 1000, "printed": 300, "warned": 500, "failed": 800}


def cells_as_json(cells: Sequence[Cell], redactor: Redactor) -> str:
    """The cells as JSON, so that nothing in them can pose as anything else; the newest when there are many."""
    steps = [
        {
            "intended": _start(cell.description or "(not said)", _CHARS["intended"], redactor),
            "did": _start(cell.code, _CHARS["did"], redactor),
            "printed": _end(cell.stdout, _CHARS["printed"], redactor),
            "warned": _end(cell.stderr, _CHARS["warned"], redactor),
            "failed": _end(cell.error or "", _CHARS["failed"], redactor),
        }
        for cell in cells[-MOST_CELLS:]
    ]
    kept = [{key: value for key, value in step.items() if value} for step in steps]
    return json.dumps(kept, ensure_ascii=False, indent=1)


def _start(text: str, limit: int, redactor: Redactor) -> str:
    """Redacted before it is cut, so that no half of a secret stays at the end."""
    safe = redactor.redact(text[: limit * 20]).text.strip()
    return safe if len(safe) <= limit else safe[:limit] + " …"


def _end(text: str, limit: int, redactor: Redactor) -> str:
    safe = redactor.redact(text[-limit * 20 :]).text.strip()
    return safe if len(safe) <= limit else "… " + safe[-limit:]


@cache
def _prompt() -> str:
    return files("habitus.learning").joinpath("prompts", "post-mortem.md").read_text("utf-8")


# What is taken of its answer

SHORTEST, LONGEST = 20, 300
COPIED_WORDS = 6  # so many words in a row that a cell said are a quotation
_ADDRESS = re.compile(r"(?i)\b(?:https?|ftp|file|ssh)://|\bwww\.|[\w.+-]+@[\w-]+\.\w")


def check_lessons(
    lessons: Sequence[str], cells: Sequence[Cell], redactor: Redactor
) -> tuple[tuple[str, ...], tuple[Refusal, ...]]:
    """The first three lessons that can be kept, and those that can't, with the reason."""
    said = _runs(" ".join(f"{cell.stdout} {cell.stderr} {cell.error or ''} |" for cell in cells))
    kept: list[str] = []
    refused: list[Refusal] = []
    for given in lessons:
        text = redactor.redact(" ".join(given.split())).text
        reason = _objection(text, said)
        if reason:
            refused.append(Refusal(text=text[:LONGEST], reason=reason))
        elif text not in kept and len(kept) < MOST_LESSONS:
            kept.append(text)
    for refusal in refused:
        log.info("A lesson of the post-mortem was not taken: %s.", refusal.reason)
    return tuple(kept), tuple(refused)


def _objection(text: str, said: set[tuple[str, ...]]) -> str:
    if len(text) < SHORTEST:
        return "it says nothing"
    if len(text) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if not text.isprintable():
        return "it has characters that nobody can see"
    if MARKER.search(text):
        return "it has a secret in it"
    if _ADDRESS.search(text):
        return "it has an address in it"
    if _runs(text) & said:
        return "it repeats what the output said"
    return ""


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1)}
