"""What evidence is made of: an item in a unit of assignment, offered or withheld, and how it went."""

from __future__ import annotations

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
