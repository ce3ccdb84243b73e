"""Events of a turn for whoever shows it, while it happens, and its questions to the person who is there."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.events import Outcome
    from habitus.llm.model import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A piece of the answer, as the model writes it."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted:
    call: str  # the id that the later events of the same call carry
    tool: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProgress:
    call: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    call: str
    tool: str
    outcome: Outcome
    content: str
    seconds: float
    made: tuple[str, ...] = ()  # files for the person to open


@dataclass(frozen=True, kw_only=True, slots=True)
class Nudged:
    """An observer's words to the model beside the results of its tools."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Noticed:
    """Something the person should know that is not part of the answer."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The end of a turn, exactly once unless it was cancelled."""

    turn: str
    reply: str
    outcome: Outcome
    usage: Usage
    rounds: int
    seconds: float
    waiting: int = 0  # changes that wait for a person


TurnEvent = Said | ToolStarted | ToolProgress | ToolFinished | Nudged | Noticed | Done
Emit = Callable[[TurnEvent], None]

_TELLING = ("one_line_description", "name", "query", "code", "action")  # arguments that say what a call is about


def about(arguments: str) -> str:
    """The subject of a call, from its arguments: the one that tells it, or else all of them."""
    given = as_object(arguments)
    if not given:
        return arguments if arguments.strip() != "{}" else ""
    found = next((said for key in _TELLING if isinstance(said := given.get(key), str) and said.strip()), "")
    return found or ", ".join(f"{key}={value}" for key, value in given.items())


def as_object(text: str) -> dict[str, object]:
    """The JSON object that a model or a tool wrote; an empty one where it is none."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


class Consent(StrEnum):
    YES = "yes"
    NO = "no"
    LATER = "later"  # it waits in the review queue
    ALWAYS = "always for this project"  # yes, and whoever asks the same there need not ask again


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question to the person: the step that is about to happen, and the whole of it to look at."""

    text: str
    detail: str = ""
    choices: tuple[Consent, ...] = (Consent.YES, Consent.NO, Consent.LATER)


AskPerson = Callable[[Question], Awaitable[Consent]]


class TimedPerson:
    """Somebody who is asked, and how long they took to answer so far: that is nobody else's time."""

    def __init__(self, ask: AskPerson) -> None:
        self._ask = ask
        self.took_s = 0.0

    async def __call__(self, question: Question) -> Consent:
        began = time.monotonic()
        try:
            return await self._ask(question)
        finally:
            self.took_s += time.monotonic() - began


async def nobody(question: Question) -> Consent:
    """Nobody is there: what needs a person waits for one."""
    return Consent.LATER
