"""Exercises of self-play: tasks with a domain and two solutions, one right and one wrong; a .toml file each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from habitus.errors import Invalid, NotFound
from habitus.learning.asking import ask_within
from habitus.learning.budget import BudgetedModel
from habitus.redact import Redactor
from habitus.skills import names
from habitus.tasks.files import parse_toml, task_of
from habitus.tasks.model import Origin, OriginKind, Task

DOMAINS = (
    "data_analysis",
    "regex_parse",
    "sql",
    "concurrency",
    "algo",
    "bash",
    "python_general",
    "web_automation",
)


def exercise_of(row: Mapping[str, Any], *, name: str, where: str, origin: OriginKind = OriginKind.FILE) -> Task:
    """The task that a file or a model says, with all that self-play needs."""
    task = task_of(row, where, origin=Origin(kind=origin), id=name)
    solutions = {"reference": task.reference, "wrong": task.wrong}
    for key, value in {"request": task.request, "domain": task.domain, **solutions}.items():
        if not value:
            raise Invalid(f"{where}: '{key}' is missing, empty or no text.", mend="Write it.")
    if task.domain not in DOMAINS:
        raise Invalid(f"{where}: '{task.domain}' is no domain.", mend=f"There are: {', '.join(DOMAINS)}.")
    return task


def read(path: Path) -> tuple[Task, ...]:
    """The exercises of a .toml file, or of all that lie in a folder."""
    if not path.exists():
        raise NotFound(f"There is no {path}.", mend="Name a .toml file with a challenge, or a folder of them.")
    found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    return tuple(_parse_exercise(each.read_text("utf-8", errors="replace"), each.stem, str(each)) for each in found)


@cache
def starters() -> tuple[Task, ...]:
    """Those that come with Habitus."""
    folder = files("habitus.learning.dream").joinpath("challenges")
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(
        _parse_exercise(each.read_text("utf-8"), each.name.removesuffix(".toml"), each.name, OriginKind.BUNDLED)
        for each in found
    )


def _parse_exercise(text: str, name: str, where: str, origin: OriginKind = OriginKind.FILE) -> Task:
    return exercise_of(parse_toml(text, about=where), name=name, where=where, origin=origin)


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
