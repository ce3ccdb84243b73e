"""Challenges: a task with what is laid out for it and what tells whether it is done; read from files, checked."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from habitus.errors import Invalid, NotFound, did_you_mean

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
MOST_CHARS = 20_000  # of one field


@dataclass(frozen=True, kw_only=True, slots=True)
class Challenge:
    """Setup, solutions and validator are Python, each run in a process of its own in one folder: what one leaves for
    the next are files. A validator that ends without an error says that the task is done."""

    name: str
    domain: str
    task: str
    setup: str
    validator: str
    reference: str  # a solution that passes
    wrong: str  # one that a hurried solver would write, and that must not pass

    @property
    def hash(self) -> str:
        whole = "\0".join((self.task, self.setup, self.validator))
        return hashlib.sha256(whole.encode()).hexdigest()[:16]

    @classmethod
    def of(cls, values: Mapping[str, Any], *, where: str) -> Self:
        """From what a file or a model says."""
        known = {field.name for field in fields(cls)}
        if problems := sorted(values.keys() - known):
            raise Invalid(f"{where}: unknown field '{problems[0]}'.", mend=did_you_mean(problems[0], sorted(known)))
        for name in sorted(known):
            value = values.get(name)
            if not isinstance(value, str) or (not value.strip() and name != "setup"):
                raise Invalid(f"{where}: '{name}' is missing, empty or no text.", mend="Write it.")
            if len(value) > MOST_CHARS:
                raise Invalid(
                    f"{where}: '{name}' has {len(value):,} characters.", mend=f"Keep it below {MOST_CHARS:,}."
                )
        if values["domain"] not in DOMAINS:
            raise Invalid(f"{where}: '{values['domain']}' is no domain.", mend=f"There are: {', '.join(DOMAINS)}.")
        return cls(**values)


def read(path: Path) -> tuple[Challenge, ...]:
    """The challenges of a .toml file, or of all that lie in a folder."""
    if not path.exists():
        raise NotFound(f"There is no {path}.", mend="Name a .toml file with a challenge, or a folder of them.")
    found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    return tuple(_parsed(each.read_text("utf-8", errors="replace"), each.stem, str(each)) for each in found)


def written(challenge: Challenge) -> str:
    """As a file has it; the name is the file's."""
    return "".join(
        f"{field.name} = {json.dumps(getattr(challenge, field.name), ensure_ascii=False)}\n"
        for field in fields(challenge)
        if field.name != "name"
    )


@cache
def starters() -> tuple[Challenge, ...]:
    """Those that come with Habitus."""
    folder = files("habitus.learning.dream").joinpath("challenges")
    found = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(_parsed(each.read_text("utf-8"), each.name.removesuffix(".toml"), each.name) for each in found)


def _parsed(text: str, name: str, where: str) -> Challenge:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{where} is no TOML: {error}.", mend="Mend it.") from None
    return Challenge.of({"name": name, "setup": "", **values}, where=where)
