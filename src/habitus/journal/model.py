"""A turn as the journal keeps it: the request, what was shown, what was said and done, and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from habitus.events import Event, OutcomeKind


class Origin(StrEnum):
    """Where a turn comes from, and so what was offered in it and how it went."""

    REAL = "real"  # somebody needed it
    PRACTICE = "practice"  # self-play, and whatever else is done to learn
    TRIAL = "trial"  # the arms of a paired trial: what it assigned counts for lift, and as no use
    REPLAY = "replay"  # asked again, to see what comes of it


NOT_REAL = {"dream": Origin.PRACTICE, "practice": Origin.PRACTICE, "trial": Origin.TRIAL, "replay": Origin.REPLAY}


def origin_of(source_type: str) -> Origin:
    return NOT_REAL.get(source_type, Origin.REAL)


class Place(StrEnum):
    """Where a selection put a skill."""

    EAGER = "eager"
    STICKY = "sticky"  # eager only because it was in an earlier turn
    MENU = "menu"
    CUT = "cut"  # eligible, and there was no room for its line
    LEFT_OUT = "left_out"
    LOADED = "loaded"  # the model asked for it
    WITHHELD = "withheld"  # eligible, and kept out of this conversation at random


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    name: str
    place: Place
    reason: str
    layer: str = ""
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Exposure:
    """Something that a conversation was offered, or that was kept from it at random; no text.

    What stands in a steady part of the prompt is assigned when the session opens, the rest when it is first chosen.
    """

    kind: str  # skill, lesson, recipe, tool
    item: str
    version: int = 0
    is_steady: bool = False
    is_offered: bool = True  # else withheld
    propensity: float = 1.0  # how likely it was to be offered
    request_kind: str = ""  # of the request at which it was assigned
    tokens: int = 0  # of the offer, in one turn
    is_used: bool = False  # a skill that was recalled or left a trace, a tool that was called, a lesson that was read
    is_ignored: bool = False  # loaded, and it left no trace in the turn


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptExposure:
    """An exposure as it outlives its turn, with what is known of how the conversation went from then on."""

    exposure: Exposure
    unit: str  # the conversation
    turn: str  # that it began in
    at: datetime
    origin: Origin = Origin.REAL
    said: tuple[float, ...] = ()  # 1 or 0 for each later turn that somebody who knows has judged
    seemed: tuple[float, ...] = ()  # the same by weak signals, where nobody said anything


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptSums:
    """Sums over all conversations that began until then, as bytes, and how often they had to be emptied before."""

    changes: int = -1  # there never were any
    until: datetime | None = None
    sums: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialArms:
    """In how many conversations of trials an item was offered, and withheld."""

    item: str
    version: int
    offered: int
    withheld: int


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
    exposures: tuple[Exposure, ...] = ()  # that began in this turn
    outcomes: tuple[TurnOutcome, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)  # tokens and cost

    @property
    def is_real(self) -> bool:
        return origin_of(self.source_type) is Origin.REAL


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnFilter:
    """Which turns are looked for; what is left empty is any. `user` None is everybody."""

    user: str | None = None
    text: str = ""  # in the request
    source_type: str = ""
    skill: str = ""  # that was read in full
    outcome: OutcomeKind | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptSession:
    """A session as the journal lists it."""

    id: str
    started_on: datetime
    last_turn_on: datetime
    turns: int
    user: str
    title: str
