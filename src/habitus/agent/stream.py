"""The events of a running turn for the surfaces that show it, and its questions to the person."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.events import Outcome
    from habitus.llm.model import TokenUsage


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyDelta:
    """A piece of the answer, as the model writes it."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted:
    """A tool call has started."""

    call: str  # the id that later events of the same call carry
    tool: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProgress:
    """A tool call has reported progress."""

    call: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    """A tool call has ended."""

    call: str
    tool: str
    outcome: Outcome
    content: str
    seconds: float
    # Files for the person to open.
    made: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NudgeEvent:
    """An observer's hint to the model, shown beside its tool results."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticeEvent:
    """A message for the person that is not part of the answer."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnResult:
    """The end of a turn, emitted exactly once unless it was cancelled."""

    turn: str
    reply: str
    outcome: Outcome
    usage: TokenUsage
    rounds: int
    seconds: float
    # Changes that are pending review.
    pending: int = 0


TurnEvent = ReplyDelta | ToolStarted | ToolProgress | ToolFinished | NudgeEvent | NoticeEvent | TurnResult
Emit = Callable[[TurnEvent], None]

# Arguments that best describe a call, in order of preference.
_TELLING = ("one_line_description", "name", "query", "code", "action")


def get_most_descriptive_argument(arguments: str) -> str:
    """Return what a call is about: its most descriptive argument, or else all of them."""
    given = parse_json_object_or_empty(arguments)
    if not given:
        return arguments if arguments.strip() != "{}" else ""
    found = next((said for key in _TELLING if isinstance(said := given.get(key), str) and said.strip()), "")
    return found or ", ".join(f"{key}={value}" for key, value in given.items())


def parse_json_object_or_empty(text: str) -> dict[str, object]:
    """Parse a JSON object written by a model or a tool; empty if it is not one."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


class Consent(StrEnum):
    """A person's answer to a question."""

    YES = "yes"
    NO = "no"
    LATER = "later"  # stays pending in the review queue
    ALWAYS = "always for this project"  # yes, and don't ask again in this project


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsentQuestion:
    """A question to the person about the next step, with its full content in `detail`."""

    text: str
    detail: str = ""
    choices: tuple[Consent, ...] = (Consent.YES, Consent.NO, Consent.LATER)


AskPerson = Callable[[ConsentQuestion], Awaitable[Consent]]


class ConsentPromptWithTimeMeasurement:
    """Asks the person and sums up their thinking time, which must not count as the tool's."""

    def __init__(self, ask: AskPerson) -> None:
        self._ask = ask
        self.took_s = 0.0

    async def __call__(self, question: ConsentQuestion) -> Consent:
        began = time.monotonic()
        try:
            return await self._ask(question)
        finally:
            self.took_s += time.monotonic() - began


async def answer_consent_with_later(question: ConsentQuestion) -> Consent:
    """Answer `LATER` for a session without a person, so the change stays pending."""
    return Consent.LATER
