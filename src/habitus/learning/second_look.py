"""A second look at a skill from elsewhere: a model quotes lines that rules can't judge. It decides nothing alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pydantic import BaseModel, Field

from habitus.files import Tree
from habitus.learning.asking import ask_within
from habitus.learning.budget import BudgetedModel
from habitus.redact import Redactor

_ROOM = 1_500  # tokens of an answer
_MOST = 40_000  # characters of a skill that are shown; what says most comes first


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A line that a model doubts, as it stands in the file; the verdict is that model's and nobody else's."""

    path: str
    line: int
    quote: str
    why: str
    model: str


class _Doubt(BaseModel):
    path: str = Field(description="The file.")
    quote: str = Field(description="The line, copied letter by letter.")
    why: str = Field(description="What it would do to the person, in one sentence.")


class _Doubts(BaseModel):
    doubts: list[_Doubt] = Field(default_factory=list, description="At most ten; none is a good answer.")


async def second_look(model: BudgetedModel, tree: Tree, *, redactor: Redactor) -> tuple[Doubt, ...]:
    """The lines that a model doubts; what it quotes and is not there is left out. Its faults and the cap go through."""
    texts = dict(_texts(tree))
    shown = "\n\n".join(f"# {path}\n\n{text}" for path, text in texts.items())[:_MOST]
    record = redactor.redact(shown).text
    asked = await ask_within(model, _Doubts, system=_prompt(), record=record, room=_ROOM)
    return tuple(_place_doubts(texts, asked.doubts, model.name))


def _texts(tree: Tree) -> Iterator[tuple[str, str]]:
    """What is read or run, the main file first."""
    for path, file in sorted(tree.items(), key=lambda item: (not item[0].lower().endswith("skill.md"), item[0])):
        if file.content is not None and b"\0" not in file.content:
            yield path, file.content.decode("utf-8", "replace")


def _place_doubts(texts: dict[str, str], doubts: list[_Doubt], model: str) -> Iterator[Doubt]:
    for doubt in doubts:
        quote = doubt.quote.strip()
        lines = texts.get(doubt.path, "").split("\n")
        line = next((number for number, text in enumerate(lines, 1) if quote and quote in text), 0)
        if line:
            yield Doubt(path=doubt.path, line=line, quote=quote, why=" ".join(doubt.why.split()), model=model)


@cache
def _prompt() -> str:
    return files("habitus.learning").joinpath("prompts", "second-look.md").read_text("utf-8").strip()
