"""Engrams (lessons): one sentence of memory each, with its origin, trust, counters and the rules of retention."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Self, TypeVar

from habitus.errors import Invalid, did_you_mean
from habitus.plain_data import convert_to_plain_json

HIGH_CONFIDENCE, MEDIUM_CONFIDENCE, LOW_CONFIDENCE = 0.9, 0.6, 0.3
# From this confidence on, copilot mode stores a draft without review.
REVIEW_FREE_CONFIDENCE = 0.8
# The topic of lessons that appear only in the scratchpad tool's description.
SCRATCHPAD_TOPIC = "scratchpad"

# The heading above lessons from self-play, in practice and later.
PLAYBOOK_HEADING = "### SKILL PLAYBOOK:"
# Sources that lessons from practice name, here and in other systems.
_SELF_PLAY_SOURCES = ("dream", "self-play", "self_play", "selfplay")
# A lesson is a sentence, not a page.
MAX_LESSON_CHARACTERS = 2000


class PromptPart(StrEnum):
    """The part of the prompt, and the page, that an engram belongs to."""

    # Always in the prompt.
    PROFILE = "profile"
    # Always in the prompt, as instructions: only a person may give one.
    RULES = "rules"
    # In the prompt when relevant to the request; capped, and pruned by use.
    LESSONS = "lessons"


class LessonKind(StrEnum):
    """The kind of an engram: its part, its heading on the page and in the prompt, its meaning for a model, and its
    label.
    """

    ALWAYS = "always", PromptPart.RULES, "Always", "what is to be done every time", "always do"
    NEVER = "never", PromptPart.RULES, "Never", "what is not to be done", "never do"
    WHEN = "when", PromptPart.RULES, "When", "what is to be done in one case", "in one case"
    LESSON = "lesson", PromptPart.LESSONS, "", "what work taught", "lesson"
    PROFILE = "profile", PromptPart.PROFILE, "", "about the user", "about you"

    part: PromptPart
    heading: str
    meaning: str
    label: str

    def __new__(cls, value: str, part: PromptPart, heading: str, meaning: str, label: str) -> Self:
        kind = str.__new__(cls, value)
        kind._value_ = value
        kind.part, kind.heading, kind.meaning, kind.label = part, heading, meaning, label
        return kind

    @property
    def is_rule(self) -> bool:
        return self.part is PromptPart.RULES

    @property
    def is_lesson(self) -> bool:
        return self.part is PromptPart.LESSONS


class LessonScope(StrEnum):
    """Where an engram applies; its `owner` says to which user or project."""

    USER = "user"
    PROJECT = "project"
    WORKSPACE = "workspace"
    GLOBAL = "global"


class TrustLevel(StrEnum):
    """How far an engram is trusted."""

    # A person said or confirmed it.
    USER = "user"
    # A trial showed that it helps.
    VERIFIED = "verified"
    AUTOMATIC = "automatic"


TRUST_ORDER = (TrustLevel.AUTOMATIC, TrustLevel.VERIFIED, TrustLevel.USER)


class LessonProducer(StrEnum):
    """What produced an engram."""

    USER = "user"
    # The model called memorize.
    MODEL = "model"
    # One of our own texts, chosen by a detector.
    DETECTOR = "detector"
    CEREBELLUM = "cerebellum"
    # Common to past sessions: remedies, and corrections by a person.
    TRANSCRIPTS = "transcripts"
    DREAM = "dream"  # self-play
    IMPORT = "import"

    @property
    def is_automatic(self) -> bool:
        """True if a pause stops this producer."""
        return self not in (LessonProducer.USER, LessonProducer.IMPORT)


class LessonState(StrEnum):
    """The states of an engram."""

    ACTIVE = "active"
    # Until a person reviews it.
    PENDING = "pending"
    REJECTED = "rejected"
    # Made room for others; it may be learned again.
    ARCHIVED = "archived"
    # Removed by a person, so automatic learning does not bring it back.
    REMOVED = "removed"
    # Only the id remains, which stops an old copy from bringing it back.
    ERASED = "erased"

    @property
    def is_archived(self) -> bool:
        """True if it is in the archive and can be restored."""
        return self in (LessonState.ARCHIVED, LessonState.REMOVED)


class LessonDraftOutcome(StrEnum):
    """What happened to a draft."""

    STORED = "stored"
    REINFORCED = "reinforced"
    PENDING = "pending"
    REFUSED = "refused"
    OFF = "off"
    PAUSED = "paused"

    @property
    def is_stored(self) -> bool:
        """True if memory contains it, as a new engram or as more of a known one."""
        return self in (LessonDraftOutcome.STORED, LessonDraftOutcome.REINFORCED)

    @property
    def is_settled(self) -> bool:
        """True if memory has decided; submitting the draft again would count it twice."""
        return self not in (LessonDraftOutcome.OFF, LessonDraftOutcome.PAUSED)


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonProvenance:
    """Where an engram comes from."""

    error_signature: str = ""
    # The turn that taught it, or the file and turn of a transcript.
    trace: str = ""
    # The conversation of that turn.
    session: str = ""
    version: str = ""
    detector: str = ""
    # The user whose conversation taught it, whatever its scope.
    user: str = ""
    # Digests of the imported lessons it was merged from, so none counts twice.
    imported: tuple[str, ...] = ()
    # The source's own usage counts: displayed, but without weight here.
    told: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfPlayLessonBody:
    """The structured content of a lesson from self-play."""

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
    """How often an engram was learned, shown, helpful and ignored."""

    frequency: int = 1
    retrievals: int = 0
    helpful: int = 0
    last_retrieved: datetime | None = None
    # The last time that a success was credited to it.
    credited_on: datetime | None = None
    # How often its detector fired although the prompt contained it.
    ignored: int = 0
    # How often in a row it did not fit into the prompt.
    missed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Engram:
    """A lesson: one sentence of memory with its kind, scope, trust, provenance and counters."""

    id: str
    text: str
    kind: LessonKind
    scope: LessonScope
    owner: str = ""
    confidence: float = MEDIUM_CONFIDENCE
    topic: str = ""
    source: str = ""
    trust: TrustLevel = TrustLevel.AUTOMATIC
    produced_by: LessonProducer = LessonProducer.USER
    evidence: LessonProvenance = field(default_factory=LessonProvenance)
    body: SelfPlayLessonBody | None = None
    counters: LessonCounters = field(default_factory=LessonCounters)
    verified: bool = False
    state: LessonState = LessonState.ACTIVE
    # Why it is pending, or why it is archived.
    reason: str = ""
    # A person rejected it, and the agent that proposed it was not told why yet.
    is_untold: bool = False
    version: int = 0
    created_on: datetime | None = None
    updated_on: datetime | None = None

    @property
    def scope_and_owner(self) -> tuple[LessonScope, str]:
        """The scope and owner: engrams are capped, compacted and compared within one such pair."""
        return self.scope, self.owner

    def belongs_to(self, user: str) -> bool:
        """Return whether it belongs to this user or one of their conversations taught it, whatever its scope."""
        return bool(user) and (self.evidence.user == user or (self.scope is LessonScope.USER and self.owner == user))

    def is_visible_to(self, user: str) -> bool:
        """Return whether the user may see it: engrams of the user scope are private."""
        return self.scope is not LessonScope.USER or self.owner == user

    @property
    def rejection_message(self) -> str:
        """A sentence that says why and by whom the engram was rejected."""
        text = self.text if len(self.text) <= 200 else self.text[:199] + "…"
        return f"The {self.kind.value} entry '{text}' ({self.id}) was rejected: {self.reason}."

    @property
    def is_from_self_play(self) -> bool:
        """True if it was learned by practising, here or where it was imported from."""
        return self.produced_by is LessonProducer.DREAM or self.source.lower() in _SELF_PLAY_SOURCES

    @property
    def is_pinned(self) -> bool:
        """True if retention must keep it, because a trial or a person confirmed it."""
        return self.verified or self.trust is not TrustLevel.AUTOMATIC

    def as_json(self) -> dict[str, Any]:
        """Return its fields and its utility, which stands for the counters of retention."""
        told: dict[str, Any] = convert_to_plain_json(self)
        del told["counters"]
        return {**told, "utility": round(compute_lesson_utility(self), 4)}

    def with_counts(self, **counts: int | datetime | None) -> Engram:
        """Return the engram with some counters replaced."""
        return replace(self, counters=replace(self.counters, **counts))  # type: ignore[arg-type]  # names are checked by replace


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonDraft:
    """A lesson proposed for memory."""

    text: str
    kind: LessonKind | str
    scope: LessonScope | str = LessonScope.USER
    confidence: float = MEDIUM_CONFIDENCE
    topic: str = ""
    source: str = ""
    trust: TrustLevel = TrustLevel.AUTOMATIC
    evidence: LessonProvenance = field(default_factory=LessonProvenance)
    body: SelfPlayLessonBody | None = None
    user: str = ""
    project: str = ""
    produced_by: LessonProducer = LessonProducer.MODEL
    verified: bool = False
    counters: LessonCounters = field(default_factory=LessonCounters)
    created_on: datetime | None = None
    is_own: bool = False  # learned from the session's own errors, in a turn that read nothing from outside


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonDraftResult:
    """What happened to a draft, and why."""

    status: LessonDraftOutcome
    engram: Engram | None = None
    reason: str = ""
    # Lessons that were archived to make room.
    archived: tuple[Engram, ...] = ()
    # Number of redacted secrets by kind.
    redacted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeAuthorAndReason:
    """Who made a change, when and why."""

    at: datetime
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EngramVersion:
    """One version in an engram's history."""

    number: int
    engram: Engram
    cause: ChangeAuthorAndReason


def parse_lesson_kind(value: LessonKind | str) -> LessonKind:
    """Return the kind with this name; raise Invalid for an unknown one."""
    return _parse_enum_member(LessonKind, value, "kind")


def parse_lesson_scope(value: LessonScope | str) -> LessonScope:
    """Return the scope with this name; raise Invalid for an unknown one."""
    return _parse_enum_member(LessonScope, value, "scope")


_E = TypeVar("_E", bound=StrEnum)


def _parse_enum_member(of: type[_E], value: str, what: str) -> _E:
    try:
        return of(value)
    except ValueError:
        known = [member.value for member in of]
        hint = f"{did_you_mean(str(value), known)} There are: {', '.join(known)}.".strip()
        raise Invalid(f"There is no {what} '{value}'.", hint=hint) from None


CREDIT_SECONDS = 300
# Entries of one kind in one scope that a compaction keeps.
MAX_ENTRIES = 20
# A rule that did not fit into the prompt this often in a row is archived.
MAX_MISSES = 20

# Fewer retrievals say nothing about the hit rate, or about a lesson that never helped.
_MIN_RETRIEVALS = 5
# At most this share of all lessons is pruned at once.
_MAX_PRUNED_SHARE = 0.25
_POOR_HIT_RATE = 0.35

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def compute_lesson_utility(engram: Engram) -> float:
    """Return the utility of a lesson from its confidence, hit rate, verification and frequency."""
    counters = engram.counters
    rate = compute_hit_rate(counters)
    earned = 0.5 * engram.confidence + 0.8 * rate + 0.3 * engram.verified
    total = earned + min(0.1 * math.log(1 + max(counters.frequency, 0)), 0.3)
    is_stale = counters.retrievals >= _MIN_RETRIEVALS and rate < _POOR_HIT_RATE
    return total / 2 if is_stale else total


def compute_hit_rate(counters: LessonCounters) -> float:
    """Return the share of retrievals that helped, smoothed so new lessons start at one half."""
    return (counters.helpful + 1) / (counters.retrievals + 2)


def select_lessons_over_cap(lessons: Iterable[Engram], max_count: int) -> list[Engram]:
    """Return the lessons of one scope beyond the cap; the newest stays, then pinned ones, then the most useful."""
    found = [one for one in lessons if one.kind.is_lesson]
    if len(found) <= max_count:
        return []
    # The newest has had no chance to prove itself, so it always stays.
    newest = max(found, key=lambda one: (one.created_on or _LONG_AGO, one.id))
    ranked = sorted(found, key=lambda one: (one is not newest, not one.is_pinned, -compute_lesson_utility(one), one.id))
    return ranked[max_count:]


def select_prunable_lessons(lessons: Iterable[Engram], lesson_days: int, now: datetime) -> list[Engram]:
    """Return the lessons that never helped or have expired, each with its reason, worst first and limited to a
    share.
    """
    found = [engram for engram in lessons if engram.kind.is_lesson]
    due = [replace(engram, reason=why) for engram in found if (why := _explain_pruning(engram, lesson_days, now))]
    due.sort(key=lambda engram: (compute_lesson_utility(engram), engram.id))
    return due[: int(len(found) * _MAX_PRUNED_SHARE)]


def _explain_pruning(engram: Engram, lesson_days: int, now: datetime) -> str:
    counters, shown = engram.counters, engram.counters.last_retrieved or engram.created_on
    if engram.is_pinned:
        return ""
    if counters.retrievals >= _MIN_RETRIEVALS and not counters.helpful:
        return "shown again and again, and it never helped"
    if shown is not None and now - shown >= timedelta(days=lesson_days):
        return f"not shown since {shown:%Y-%m-%d}"
    return ""


def select_dropped_by_compaction(entries: Sequence[Engram], keep: Sequence[int]) -> list[Engram]:
    """Return the entries that a compaction drops, given the indexes it keeps; pinned entries are never dropped."""
    unknown = [place for place in keep if not 0 <= place < len(entries)]
    if unknown or not keep:
        what = f"place {unknown[0]}" if unknown else "nothing"
        raise Invalid(f"A compaction of {len(entries)} entries can't keep {what}.", hint="All entries were kept.")
    kept = set(keep)
    return [engram for place, engram in enumerate(entries) if place not in kept and not engram.is_pinned]


def select_indexes_kept_by_compaction(entries: Sequence[Engram], max_count: int) -> list[int]:
    """Return the indexes of the entries that a compaction without a model keeps: pinned ones, then the most useful."""
    ranked = sorted(
        range(len(entries)), key=lambda at: (not entries[at].is_pinned, -compute_lesson_utility(entries[at]), at)
    )
    return sorted(ranked[:max_count])
