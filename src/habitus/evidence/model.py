"""What evidence is made of: an item in a unit of assignment, the kind of request, traces it left, and how it went."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class ItemKind(StrEnum):
    """What can be offered, or withheld."""

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
