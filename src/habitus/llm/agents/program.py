"""The nouns of programs, a request, a start and an output, and the small formats they write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from habitus.llm.model import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One request, and where it is asked."""

    system: str
    prompt: str
    model: str  # empty: the program's own choice
    room: Path  # a folder for this request alone
    environ: Mapping[str, str]  # the person's

    @property
    def person(self) -> Path:
        """The person's home directory."""
        return Path(self.environ.get("HOME") or Path.home())

    @property
    def system_file(self) -> str:
        """The system prompt in a file, where other users of the machine don't see it."""
        return str(write_text(self.room / "system.md", self.system or "Answer the request."))  # none may be empty

    @property
    def both(self) -> str:
        return f"{self.system}\n\n{self.prompt}".strip()

    def options(self, option: str = "--model") -> tuple[str, ...]:
        return (option, self.model) if self.model else ()

    def folder(self, variable: str, default: str) -> Path:
        """Where the program keeps what is the person's."""
        return Path(self.environ.get(variable) or self.person / default)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    arguments: Sequence[str]
    stdin: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """The program's output, parsed; without `usage` it did not say what it used."""

    text: str = ""
    usage: Usage | None = None
    model: str = ""  # which one answered, where that is known
    problem: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    name: str
    title: str
    command: str
    install: str
    sign_in: str
    variables: tuple[str, ...]  # of the person's environment; one that ends in `_` stands for all that begin so
    ask: Callable[[Question], Call]
    read: Callable[[str, Question], Output]
    prices_of: str = ""  # the provider whose list says what its tokens cost, where it doesn't
    tells_dollars: bool = False  # with every answer
    is_experimental: bool = False  # known from its source only


def read_objects(written: str) -> Iterator[dict[str, Any]]:
    """One object, or one on each line; whatever else a program says beside them is passed over."""
    for text in (written, *written.splitlines()):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value
            if text is written:
                return


def as_table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_count(used: Mapping[str, Any], key: str) -> int:
    value = used.get(key)
    return value if isinstance(value, int) else 0


def usage_of(used: Mapping[str, Any], *, read: Sequence[str], wrote: Sequence[str], cached: str) -> Usage:
    """Usage by the keys under which a program tells its tokens."""
    return Usage(
        input_tokens=sum(as_count(used, key) for key in read),
        output_tokens=sum(as_count(used, key) for key in wrote),
        cached_tokens=as_count(used, cached),
    )


def as_dollars(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def write_text(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def link(theirs: Path, own: Path, *names: str) -> None:
    own.mkdir(parents=True, exist_ok=True)
    for name in names:
        if theirs.is_dir():
            (own / name).symlink_to(theirs / name)


def read_json(path: Path) -> dict[str, Any]:
    try:
        return as_table(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def toml_value(value: object) -> str:
    match value:
        case dict():
            return f"{{{', '.join(f'{json.dumps(key)} = {toml_value(each)}' for key, each in value.items())}}}"
        case list():
            return f"[{', '.join(map(toml_value, value))}]"
        case _:
            return json.dumps(value, default=str)
