"""What the journal keeps of a turn: the request, what was shown, what was said and done, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from habitus.events import Event, OutcomeKind


class Place(StrEnum):
    """Where a selection put a skill."""

    EAGER = "eager"
    STICKY = "sticky"  # eager only because it was in an earlier turn
    MENU = "menu"
    CUT = "cut"  # eligible, and there was no room for its line
    LEFT_OUT = "left_out"
    LOADED = "loaded"  # the model asked for it


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    name: str
    place: Place
    reason: str
    layer: str = ""
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Exposure:
    """Something that was put into a prompt, or deliberately kept out of it."""

    item: str
    kind: str  # skill, lesson, tool
    version: int = 0
    shown: bool = True
    tokens: int = 0
    propensity: float = 1.0  # how likely it was to be shown


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnOutcome:
    """One judgement of a turn; the heaviest counts, and of two equal ones the later."""

    kind: OutcomeKind
    weight: float  # 1 for an explicit word, less for weak signals
    source: str  # who says so: user, validator, api, signal …
    reason: str = ""
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    role: str
    content: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    id: str
    session: str
    request: str
    started_on: datetime
    ended_on: datetime | None = None
    caller_id: str = ""  # under which an outcome may arrive later
    source_type: str = "repl"
    user: str = "local"
    conversation: str = ""
    reply_to: str = ""
    messages: tuple[Message, ...] = ()
    events: tuple[Event, ...] = ()
    selected: tuple[Selected, ...] = ()
    exposures: tuple[Exposure, ...] = ()
    outcomes: tuple[TurnOutcome, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)  # tokens and cost


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptSession:
    """A session as the journal lists it."""

    id: str
    started_on: datetime
    last_turn_on: datetime
    turns: int
    user: str
    title: str
