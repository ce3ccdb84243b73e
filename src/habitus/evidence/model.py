"""Evidence data model: items, units of assignment, kinds of request, traces of use, and outcomes.

Whether an item is offered in a unit is drawn by hash from the installation's seed, the unit and the item.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar


class ItemKind(StrEnum):
    """Kinds of things that can be offered or withheld."""

    SKILL = "skill"
    LESSON = "lesson"
    RECIPE = "recipe"
    TOOL = "tool"
    CHANGE = "change"  # of a skill; a conversation without it gets the version before


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class EvidenceItem:
    kind: ItemKind
    name: str
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectEstimate:
    """A change of the success rate, with a 90 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemObservation:
    """One item in one unit: a conversation, or a session for an item in a fixed part of its prompt.

    Estimates count units, because an item that was offered once stays in the conversation's history.
    """

    unit: str
    item: EvidenceItem
    is_offered: bool  # else withheld
    propensity: float = 1.0  # probability of the offer; 1 if nothing was randomised
    is_used: bool = False  # recalled, called or followed
    has_trace: bool | None = None  # a step followed, a tool called; None: not examined
    success: float | None = None  # mean outcome since the assignment; None: no outcome yet
    is_explicit: bool = True  # stated by somebody; weak signals decide nothing
    request_kind: str = ""  # computed from the request alone, before the assignment
    tokens: int = 0  # of the offer, in one turn
    age_days: float = 0.0
    is_trial: bool = False  # a variant of a paired trial, not a real request


_SHORT = 120  # characters
_QUESTION = re.compile(r"[?？؟]\s*$", re.MULTILINE)


def classify_request_kind(text: str, *, has_files: bool) -> str:
    """Return the kind of a request: question or task, short or long, with files or without."""
    does = "question" if _QUESTION.search(text) else "task"
    length = "short" if len(text.strip()) <= _SHORT else "long"
    return " ".join([length, does, *(["with files"] if has_files else [])])


_FENCE = "```"
_INLINE = re.compile(r"`([^`\n]+)`")
_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = re.compile(r"[\w./-]{3,}")
_MOST = 100_000  # characters that are examined
_LEAST = 0.1  # share of a skill's own words; any two texts have fewer in common
_FEW = 5  # own words a skill needs before their absence means anything


def has_left_trace_of_steps(
    steps: str, tools: Collection[str], *, request: str, done: str, if_unclear: bool = True
) -> bool:
    """Return whether `done` (the model's calls and words) contains anything of a skill's `steps`.

    A call of one of its tools is a trace, so is a name from its code, and so are enough words of its own that the
    request did not contain. Return `if_unclear` for a skill with too few words of its own.
    """
    steps, request, done = (text[:_MOST].lower() for text in (steps, request, done))
    prose, code = steps.split(_FENCE)[::2], steps.split(_FENCE)[1::2]
    names = {name for text in (*code, *_INLINE.findall("\n".join(prose))) for name in _NAME.findall(text)}
    if any(name in done for name in {*map(str.lower, tools), *(names - set(_NAME.findall(request)))}):
        return True
    own = {word for text in prose for word in _stem_words(_INLINE.sub(" ", text))} - set(_stem_words(request))
    if len(own) < _FEW:
        return if_unclear
    return len(own & set(_stem_words(done))) >= _LEAST * len(own)


def _stem_words(text: str) -> list[str]:
    """Return words cut to their first letters, so that inflected forms match."""
    return [word[:5] for word in _WORD.findall(text)]


T = TypeVar("T")
FixedAssignments = Mapping[tuple[ItemKind, str], bool]  # whether an item is offered, by its kind and name
NEAR_TIE = 0.05  # relative difference of scores below which two are near-ties


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemOfferAssignment:
    is_offered: bool = True
    propensity: float = 1.0  # probability of the offer; 1 if nothing was randomised


OFFERED = ItemOfferAssignment()


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitRandomizer:
    """Random assignment of one unit: `share` of what may be withheld is withheld. A trial has its item `fixed`."""

    unit: str = ""
    seed: str = ""
    share: float = 0.0
    fixed: FixedAssignments = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """Whether anything is randomised."""
        return self.share > 0

    def is_item_fixed_by_trial(self, item: EvidenceItem) -> bool:
        return (item.kind, item.name) in self.fixed

    def assign(self, item: EvidenceItem, *, is_never_withheld: bool = False) -> ItemOfferAssignment:
        """Assign an item; all versions of an item share one assignment in a unit."""
        if self.is_item_fixed_by_trial(item):
            return ItemOfferAssignment(is_offered=self.fixed[item.kind, item.name], propensity=0.5)
        if is_never_withheld or not self.is_active:
            return OFFERED
        drawn = self._draw_uniform("offer", item.kind, item.name)
        return ItemOfferAssignment(is_offered=drawn >= self.share, propensity=1 - self.share)

    def gets_changed_version(self, change: EvidenceItem, share: float) -> bool:
        """Return whether this unit gets the changed version; `share` of all units get the one before it."""
        return self._draw_uniform("change", change.name, str(change.version)) >= share

    def is_last_place_given_to_second(self, first: EvidenceItem, second: EvidenceItem) -> bool:
        """Return which of two near-ties gets the last place, each with probability one half."""
        pair = sorted((first, second))
        takes_lower = self._draw_uniform("edge", *(word for item in pair for word in (item.kind, item.name))) < 0.5
        return takes_lower == (second == pair[0])

    def _draw_uniform(self, *words: str) -> float:
        digest = hashlib.sha256("\x1f".join((self.seed, self.unit, *words)).encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


@dataclass(frozen=True, kw_only=True, slots=True)
class LastPlaceDrawResult(Generic[T]):
    """The items that fit. Of two near-ties for the last place, `last` got it and `left_out` did not, at random."""

    taken: tuple[T, ...]
    last: T | None = None
    left_out: T | None = None


def select_items_drawing_last_place(
    randomizer: UnitRandomizer,
    ranked: Sequence[T],
    room: int,
    *,
    item: Callable[[T], EvidenceItem],
    score: Callable[[T], float],
) -> LastPlaceDrawResult[T]:
    """Return the first `room` items; the last place is drawn if the next item scores nearly as high."""
    taken = tuple(ranked[:room])
    if (
        not randomizer.is_active
        or len(ranked) <= room
        or score(ranked[room]) < score(ranked[room - 1]) * (1 - NEAR_TIE)
    ):
        return LastPlaceDrawResult(taken=taken)
    last, left = ranked[room - 1], ranked[room]
    if randomizer.is_last_place_given_to_second(item(last), item(left)):
        last, left = left, last
    return LastPlaceDrawResult(taken=(*taken[:-1], last), last=last, left_out=left)
