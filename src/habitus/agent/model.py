"""What a turn is given, what it needs from outside, and what it leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from habitus.agent.history import History
from habitus.agent.prompt import Composed, Remembered
from habitus.agent.tools.registry import Registry
from habitus.events import OK, Event, Outcome, TurnObserver
from habitus.llm.model import Image, Model, Text, Usage
from habitus.redact import Redactor
from habitus.skills.model import Skill
from habitus.skills.selection import Request, Selection

MAX_ROUNDS = 25


@dataclass(frozen=True, kw_only=True, slots=True)
class Incoming:
    """What a person says in a turn: the request as the rules read it, and what is attached to it."""

    request: Request
    parts: tuple[Text | Image, ...] = ()
    notices: tuple[str, ...] = ()
    caller_id: str = ""
    invoked: Skill | None = None  # a skill the person called by its name


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Everything a turn needs from outside."""

    model: Model
    context_tokens: int
    recall: Callable[[Request], Remembered]
    select: Callable[[Request], Selection]
    compose: Callable[[Request, Selection, Remembered], Composed]
    tools: Callable[[Request], Registry]
    begin: Callable[[TurnRecord], None]  # writes down what was asked
    finish: Callable[[TurnRecord], Sequence[str]]  # writes it down, starts what learns from it, says what went wrong
    observers: Sequence[TurnObserver] = ()
    redactor: Redactor
    waiting: Callable[[], int] = lambda: 0
    max_rounds: int = MAX_ROUNDS


@dataclass(kw_only=True, slots=True)
class TurnRecord:
    """What happened in a turn so far."""

    id: str
    incoming: Incoming
    selection: Selection | None = None
    composed: Composed | None = None
    system: str = ""  # as it is sent, without secrets
    first_message: int = 0  # where the turn begins in the history
    events: list[Event] = field(default_factory=list)
    usage: Usage = Usage()  # noqa: RUF009  # frozen
    rounds: int = 0
    outcome: Outcome = OK
    is_capped: bool = False
    is_cancelled: bool = False
    last_results: list[Outcome] = field(default_factory=list)
    reply: str = ""
    history: History = field(default_factory=History)
    began: float = field(default_factory=time.monotonic)
