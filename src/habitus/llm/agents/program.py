"""The nouns of programs: a request to one, how it is started for that, and what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from habitus.llm.agents.formats import write_text
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
    """What the program wrote, understood; without `usage` it did not say what it used."""

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
