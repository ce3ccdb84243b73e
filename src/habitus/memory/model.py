"""Engrams (lessons): one sentence of memory each, where it came from, how far it is trusted, how it ages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self, TypeVar

from habitus.errors import Invalid, did_you_mean
from habitus.plain_data import plain

HIGH, MEDIUM, LOW = 0.9, 0.6, 0.3
SURE = 0.8  # from here on a copilot need not ask
SCRATCHPAD = "scratchpad"  # the topic of what is told only in the scratchpad tool's description

PLAYBOOK = "### SKILL PLAYBOOK:"  # the heading under which lessons of self-play stand, when they are tried and later
_SELF_PLAY = ("dream", "self-play", "self_play", "selfplay")  # how lessons of practice name their source
LONGEST = 2000  # characters of a text; a lesson is a sentence, not a page


class Part(StrEnum):
    """The part of a prompt that an engram belongs to; people have a page for each part."""

    PROFILE = "profile"  # always there
    RULES = "rules"  # always there, as orders: nobody but a person may give one
    LESSONS = "lessons"  # there when it fits the request; capped and pruned by use


class Kind(StrEnum):
    """All there is to a kind stands in its line: its part, its heading on the page and in the prompt, its meaning for a
    model, and its label for people."""

    ALWAYS = "always", Part.RULES, "Always", "what is to be done every time", "always do"
    NEVER = "never", Part.RULES, "Never", "what is not to be done", "never do"
    WHEN = "when", Part.RULES, "When", "what is to be done in one case", "in one case"
    LESSON = "lesson", Part.LESSONS, "", "what work taught", "lesson"
    PROFILE = "profile", Part.PROFILE, "", "about the user", "about you"

    part: Part
    heading: str
    meaning: str
    label: str

    def __new__(cls, value: str, part: Part, heading: str, meaning: str, label: str) -> Self:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.part, kind.heading, kind.meaning, kind.label = part, heading, meaning, label
        return kind

    @property
    def is_rule(self) -> bool:
        return self.part is Part.RULES

    @property
    def is_lesson(self) -> bool:
        return self.part is Part.LESSONS


class Scope(StrEnum):
    """For whom it holds; `owner` of an engram says which user or project."""

    USER = "user"
    PROJECT = "project"
    WORKSPACE = "workspace"
    GLOBAL = "global"


class TrustLevel(StrEnum):
    USER = "user"  # a person said it or confirmed it
    VERIFIED = "verified"  # a trial showed that it helps
    AUTOMATIC = "automatic"


TRUST_ORDER = (TrustLevel.AUTOMATIC, TrustLevel.VERIFIED, TrustLevel.USER)


class Producer(StrEnum):
    """Who says it."""

    USER = "user"
    MODEL = "model"  # the model called memorize
    DETECTOR = "detector"  # a text of ours, chosen by a detector
    CEREBELLUM = "cerebellum"
    TRANSCRIPTS = "transcripts"  # what past sessions have in common: remedies, and corrections by a person
    DREAM = "dream"  # self-play
    IMPORT = "import"

    @property
    def is_automatic(self) -> bool:
        """Works by itself, so that a pause stops it."""
        return self not in (Producer.USER, Producer.IMPORT)


class LessonState(StrEnum):
    ACTIVE = "active"
    WAITING = "waiting"  # for a person
    REJECTED = "rejected"
    ARCHIVED = "archived"  # it made room; it may be learned again
    REMOVED = "removed"  # a person took it out, so it is not learned again by itself
    ERASED = "erased"  # only the id is left, so that no copy brings it back

    @property
    def is_put_away(self) -> bool:
        """In the archive, from where it can be restored."""
        return self in (LessonState.ARCHIVED, LessonState.REMOVED)


class Status(StrEnum):
    """The fate of a draft."""

    STORED = "stored"
    REINFORCED = "reinforced"
    WAITING = "waiting"
    REFUSED = "refused"
    OFF = "off"
    PAUSED = "paused"

    @property
    def is_kept(self) -> bool:
        """It is in memory, new or as more of what was there."""
        return self in (Status.STORED, Status.REINFORCED)

    @property
    def is_settled(self) -> bool:
        """Memory has dealt with it; telling it again would count it twice."""
        return self not in (Status.OFF, Status.PAUSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The evidence that an engram rests on."""

    error_signature: str = ""
    trace: str = ""  # the turn that taught it, or the file and turn of a transcript
    session: str = ""  # the conversation of that turn
    version: str = ""
    detector: str = ""
    user: str = ""  # whose conversation taught it, wherever it holds
    imported: tuple[str, ...] = ()  # digests of the imported lessons that it was made of, so that none counts twice
    told: str = ""  # what its source says it has counted; shown, and without weight here


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonBody:
    """A lesson of self-play taken apart."""

    trigger: str
    anti_pattern: str = ""
    correct_pattern: str = ""
    domains: tuple[str, ...] = ()
    source_challenge_hash: str = ""

    @property
    def text(self) -> str:
        """The lesson as one sentence."""
        trigger, correct = self.trigger.strip().rstrip("."), self.correct_pattern.strip().rstrip(".")
        wrong = self.anti_pattern.strip().rstrip(".")
        return f"{trigger}: {correct}" + (f" (not: {wrong})." if wrong else ".")


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonCounters:
    frequency: int = 1
    retrievals: int = 0
    helpful: int = 0
    last_retrieved: datetime | None = None
    credited_on: datetime | None = None  # the last time that a success was put down to it
    ignored: int = 0  # its detector fired again although it was in the prompt
    missed: int = 0  # how often in a row there was no room for it


@dataclass(frozen=True, kw_only=True, slots=True)
class Engram:
    id: str
    text: str
    kind: Kind
    scope: Scope
    owner: str = ""
    confidence: float = MEDIUM
    topic: str = ""
    source: str = ""
    trust: TrustLevel = TrustLevel.AUTOMATIC
    produced_by: Producer = Producer.USER
    evidence: Evidence = field(default_factory=Evidence)
    body: LessonBody | None = None
    counters: LessonCounters = field(default_factory=LessonCounters)
    verified: bool = False
    state: LessonState = LessonState.ACTIVE
    reason: str = ""  # why it waits, or why it is in the archive
    is_untold: bool = False  # a person turned it down, and the agent that proposed it has not heard why
    version: int = 0
    created_on: datetime | None = None
    updated_on: datetime | None = None

    @property
    def place(self) -> tuple[Scope, str]:
        """Where it holds: what is capped, compacted and compared together."""
        return self.scope, self.owner

    def is_of(self, user: str) -> bool:
        """Whether it is this user's, or one of their conversations taught it, for whomever it holds."""
        return bool(user) and (self.evidence.user == user or (self.scope is Scope.USER and self.owner == user))

    def is_open_to(self, user: str) -> bool:
        """Whether somebody may see it: what holds for one user is for nobody else's eyes."""
        return self.scope is not Scope.USER or self.owner == user

    @property
    def refusal(self) -> str:
        """Of one that was turned down: that it was, why and by whom, in a sentence."""
        text = self.text if len(self.text) <= 200 else self.text[:199] + "…"
        return f"The {self.kind.value} entry '{text}' ({self.id}) was turned down: {self.reason}."

    @property
    def is_from_self_play(self) -> bool:
        """Learned by practising, here or where it was imported from."""
        return self.produced_by is Producer.DREAM or self.source.lower() in _SELF_PLAY

    @property
    def is_pinned(self) -> bool:
        """Retention leaves it alone: a trial or a person stands behind it."""
        return self.verified or self.trust is not TrustLevel.AUTOMATIC

    def as_json(self) -> dict[str, Any]:
        """Its fields with its counters among them, and how useful it is."""
        told: dict[str, Any] = plain(self)
        counters = told.pop("counters")
        return {**told, **counters, "utility": round(utility(self), 4)}

    def with_counts(self, **counts: int | datetime | None) -> Engram:
        return replace(self, counters=replace(self.counters, **counts))  # type: ignore[arg-type]  # names are checked by replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A lesson that somebody wants remembered."""

    text: str
    kind: Kind | str
    scope: Scope | str = Scope.USER
    confidence: float = MEDIUM
    topic: str = ""
    source: str = ""
    trust: TrustLevel = TrustLevel.AUTOMATIC
    evidence: Evidence = field(default_factory=Evidence)
    body: LessonBody | None = None
    user: str = ""
    project: str = ""
    produced_by: Producer = Producer.MODEL
    verified: bool = False
    counters: LessonCounters = field(default_factory=LessonCounters)
    created_on: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """A draft's fate, and why."""

    status: Status
    engram: Engram | None = None
    reason: str = ""
    archived: tuple[Engram, ...] = ()  # what had to make room for it
    redacted: Mapping[str, int] = field(default_factory=dict)  # kind of secret → how many were taken out


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """Who made a change, when and why."""

    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EngramVersion:
    """One entry of an engram's history: how it was from then on."""

    number: int
    engram: Engram
    cause: Cause


def kind_of(value: Kind | str) -> Kind:
    """The kind of this name; an unknown one is said aloud."""
    return _member(Kind, value, "kind")


def scope_of(value: Scope | str) -> Scope:
    return _member(Scope, value, "scope")


_E = TypeVar("_E", bound=StrEnum)


def _member(of: type[_E], value: str, what: str) -> _E:
    try:
        return of(value)
    except ValueError:
        known = [member.value for member in of]
        mend = f"{did_you_mean(str(value), known)} There are: {', '.join(known)}.".strip()
        raise Invalid(f"There is no {what} '{value}'.", mend=mend) from None


CREDIT_SECONDS = 300
MOST_ENTRIES = 20  # of one kind in one place, which a compaction leaves
MOST_MISSES = 20  # times in a row that a rule finds no room until it goes

_TRIED = 5  # times shown before a hit rate says something, or before one that never helped may go
_MOST_PRUNED = 0.25  # of all lessons, in one pruning
_POOR = 0.35

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def utility(engram: Engram) -> float:
    """How much a lesson has earned its place: confidence, how often it helped, a trial, how often it came up."""
    counters = engram.counters
    rate = hit_rate(counters)
    earned = 0.5 * engram.confidence + 0.8 * rate + 0.3 * engram.verified
    total = earned + min(0.1 * math.log(1 + max(counters.frequency, 0)), 0.3)
    is_stale = counters.retrievals >= _TRIED and rate < _POOR
    return total / 2 if is_stale else total


def hit_rate(counters: LessonCounters) -> float:
    return (counters.helpful + 1) / (counters.retrievals + 2)


def over_the_cap(lessons: Iterable[Engram], most: int) -> list[Engram]:
    """The lessons of one place that have to go: the newest stays, then what is pinned, then the most useful."""
    found = [engram for engram in lessons if engram.kind.is_lesson]
    if len(found) <= most:
        return []
    newest = max(found, key=lambda engram: (engram.created_on or _LONG_AGO, engram.id))
    ranked = sorted(found, key=lambda engram: (engram is not newest, not engram.is_pinned, -utility(engram), engram.id))
    return ranked[most:]


def to_prune(lessons: Iterable[Engram], lesson_days: int, now: datetime) -> list[Engram]:
    """Lessons that never helped or have expired, each with its reason, the worst first, and only a share of all."""
    found = [engram for engram in lessons if engram.kind.is_lesson]
    due = [replace(engram, reason=why) for engram in found if (why := _why_pruned(engram, lesson_days, now))]
    due.sort(key=lambda engram: (utility(engram), engram.id))
    return due[: int(len(found) * _MOST_PRUNED)]


def _why_pruned(engram: Engram, lesson_days: int, now: datetime) -> str:
    counters, shown = engram.counters, engram.counters.last_retrieved or engram.created_on
    if engram.is_pinned:
        return ""
    if counters.retrievals >= _TRIED and not counters.helpful:
        return f"shown {counters.retrievals} times, and it never helped"
    if shown is not None and now - shown >= timedelta(days=lesson_days):
        return f"not shown since {shown:%Y-%m-%d}"
    return ""


def to_drop(entries: Sequence[Engram], keep: Sequence[int]) -> list[Engram]:
    """The entries that a compaction lets go, given the places (from 0) that it keeps. A pinned entry is never let
    go."""
    unknown = [place for place in keep if not 0 <= place < len(entries)]
    if unknown or not keep:
        what = f"place {unknown[0]}" if unknown else "nothing"
        raise Invalid(f"A compaction of {len(entries)} entries can't keep {what}.", mend="Everything is kept.")
    kept = set(keep)
    return [engram for place, engram in enumerate(entries) if place not in kept and not engram.is_pinned]


def most_useful(entries: Sequence[Engram], most: int) -> list[int]:
    """The places of the entries that a compaction without a model keeps: what is pinned, then the most useful."""
    ranked = sorted(
        range(len(entries)), key=lambda place: (not entries[place].is_pinned, -utility(entries[place]), place)
    )
    return sorted(ranked[:most])
