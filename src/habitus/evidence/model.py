"""The nouns of evidence: an item in a unit of assignment, the kind of request, traces it left, and how it went.

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


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Item:
    kind: ItemKind
    name: str
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One item in one unit: a conversation, or a session for what stands in a steady part of its prompt.

    Estimates count by the unit, because what was offered once stays in its history.
    """

    unit: str
    item: Item
    is_offered: bool  # else withheld
    propensity: float = 1.0  # how likely the offer was; 1 where nothing was drawn
    is_used: bool = False  # recalled, called or followed
    has_trace: bool | None = None  # what was recalled left a trace: a step followed, a tool called; none: nobody looked
    success: float | None = None  # the mean of the outcomes since the assignment; none arrived: nothing
    is_explicit: bool = True  # somebody said how it went; else only weak signals did, which decide nothing
    request_kind: str = ""  # computed from the request alone, before the assignment
    tokens: int = 0  # of the offer, in one turn
    age_days: float = 0.0
    is_trial: bool = False  # an arm of a paired trial, not a real request


_SHORT = 120  # characters
_QUESTION = re.compile(r"[?？؟]\s*$", re.MULTILINE)


def kind_of(text: str, *, has_files: bool) -> str:
    """Whether something is asked or to be done, in a line or at length, about files or not."""
    does = "question" if _QUESTION.search(text) else "task"
    length = "short" if len(text.strip()) <= _SHORT else "long"
    return " ".join([length, does, *(["with files"] if has_files else [])])


_FENCE = "```"
_INLINE = re.compile(r"`([^`\n]+)`")
_WORD = re.compile(r"[^\W\d_]{4,}")
_NAME = re.compile(r"[\w./-]{3,}")
_MOST = 100_000  # characters that are looked at
_LEAST = 0.1  # of a skill's own words; fewer in common are what any two texts have
_FEW = 5  # own words of a skill from which on their absence says something


def left_trace(steps: str, tools: Collection[str], *, request: str, done: str, if_unclear: bool = True) -> bool:
    """Whether `done`, the model's calls with their arguments and its words, has anything of a skill's `steps`.

    A call of one of its tools is a trace, so is a name from its code, and so are words of its own in some number:
    those that the request had not brought up. Of a skill that has too little of its own nobody can tell: `if_unclear`.
    """
    steps, request, done = (text[:_MOST].lower() for text in (steps, request, done))
    prose, code = steps.split(_FENCE)[::2], steps.split(_FENCE)[1::2]
    names = {name for text in (*code, *_INLINE.findall("\n".join(prose))) for name in _NAME.findall(text)}
    if any(name in done for name in {*map(str.lower, tools), *(names - set(_NAME.findall(request)))}):
        return True
    own = {word for text in prose for word in _words(_INLINE.sub(" ", text))} - set(_words(request))
    if len(own) < _FEW:
        return if_unclear
    return len(own & set(_words(done))) >= _LEAST * len(own)


def _words(text: str) -> list[str]:
    """Words by their first letters, so that one in another form is the same."""
    return [word[:5] for word in _WORD.findall(text)]


T = TypeVar("T")
Fixed = Mapping[tuple[ItemKind, str], bool]  # whether an item is offered, by its kind and name
NEAR = 0.05  # of the better one's score: two that differ by less are near-ties


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    is_offered: bool = True
    propensity: float = 1.0  # how likely the offer was; 1 where nothing was drawn


OFFERED = Assignment()


@dataclass(frozen=True, kw_only=True, slots=True)
class Lots:
    """The draws of one unit: `share` of what may be withheld is. A trial has its item `fixed`, one arm each way."""

    unit: str = ""
    seed: str = ""
    share: float = 0.0
    fixed: Fixed = field(default_factory=dict)

    @property
    def are_drawn(self) -> bool:
        """Whether anything is left to chance; else every choice is as it always was."""
        return self.share > 0

    def is_fixed(self, item: Item) -> bool:
        return (item.kind, item.name) in self.fixed

    def assign(self, item: Item, *, is_sure: bool = False) -> Assignment:
        """`is_sure` is what is never withheld. Whatever its version, an item has one lot in a unit."""
        if self.is_fixed(item):
            return Assignment(is_offered=self.fixed[item.kind, item.name], propensity=0.5)
        if is_sure or not self.are_drawn:
            return OFFERED
        drawn = self._draw("offer", item.kind, item.name)
        return Assignment(is_offered=drawn >= self.share, propensity=1 - self.share)

    def prefers_second(self, first: Item, second: Item) -> bool:
        """Which of two near-ties gets the last place: each with the same chance."""
        pair = sorted((first, second))
        takes_lower = self._draw("edge", *(word for item in pair for word in (item.kind, item.name))) < 0.5
        return takes_lower == (second == pair[0])

    def _draw(self, *words: str) -> float:
        digest = hashlib.sha256("\x1f".join((self.seed, self.unit, *words)).encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge(Generic[T]):
    """The room there is. Of two near-ties at its edge `last` got the place and `left` did not, by lot."""

    taken: tuple[T, ...]
    last: T | None = None
    left: T | None = None


def edge(
    lots: Lots, ranked: Sequence[T], room: int, *, item: Callable[[T], Item], worth: Callable[[T], float]
) -> Edge[T]:
    """The first `room` of what is ranked; the last place is drawn where the next one is worth nearly as much."""
    taken = tuple(ranked[:room])
    if not lots.are_drawn or len(ranked) <= room or worth(ranked[room]) < worth(ranked[room - 1]) * (1 - NEAR):
        return Edge(taken=taken)
    last, left = ranked[room - 1], ranked[room]
    if lots.prefers_second(item(last), item(left)):
        last, left = left, last
    return Edge(taken=(*taken[:-1], last), last=last, left=left)
