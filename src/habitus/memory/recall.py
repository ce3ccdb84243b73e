"""What of memory reaches a prompt: profile and rules within a budget, lessons by relevance and utility. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from habitus.memory.model import TRUST_ORDER, Engram, Kind, utility
from habitus.search.model import Hit, Results
from habitus.text import tokens

# Measured on labelled requests, see docs/decisions/memory.md: below the floor an unrelated request would get lessons.
FLOOR = 0.335

MOST_LESSONS = 5
LESSON_TOKENS = 1000
RULE_TOKENS = 1500
PROFILE_TOKENS = 500
SCRATCHPAD_TOKENS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """An engram on its way into a prompt. `score` is how well it fits the request, 0–1."""

    engram: Engram
    score: float = 0.0
    utility: float = 0.0

    @property
    def id(self) -> str:
        return self.engram.id

    @property
    def text(self) -> str:
        return self.engram.text

    @property
    def kind(self) -> Kind:
        return self.engram.kind

    @property
    def tokens(self) -> int:
        return tokens(self.engram.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    engram: Engram
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """What a request brings up, each part within its budget, and what nearly came up."""

    profile: tuple[Recalled, ...] = ()
    rules: tuple[Recalled, ...] = ()
    lessons: tuple[Recalled, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    confidence: float = 0.0

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one.id for one in (*self.profile, *self.rules, *self.lessons))

    @property
    def cut(self) -> tuple[str, ...]:
        """The rules that there was no room for."""
        return tuple(left.engram.id for left in self.left_out if left.engram.kind.is_rule)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    taken: tuple[Recalled, ...] = ()
    left_out: tuple[LeftOut, ...] = field(default_factory=tuple)


def standing(engrams: Iterable[Engram], relevance: Mapping[str, float], budget: int) -> Chosen:
    """Rules or profile lines: a person's first, then by relevance, then by utility, as many as there is room for."""
    ranked = sorted(
        (Recalled(engram=e, score=relevance.get(e.id, 0.0), utility=utility(e)) for e in engrams),
        key=lambda one: (-TRUST_ORDER.index(one.engram.trust), -one.score, -one.utility, one.id),
    )
    return _within(ranked, budget)


def lessons(found: Results, known: Mapping[str, Engram], budget: int, most: int = MOST_LESSONS) -> Chosen:
    """Lessons that fit the request, by relevance and utility; none when nothing fits."""
    near = [
        Recalled(engram=known[h.id], score=h.score, utility=utility(known[h.id])) for h in found.hits if h.id in known
    ]
    fitting = [one for one in near if one.score >= FLOOR]
    if not fitting:
        return Chosen(
            left_out=tuple(LeftOut(engram=one.engram, reason="does not fit the request") for one in near[:most])
        )
    fitting.sort(key=lambda one: (-worth(one), one.id))
    chosen = _within(fitting[:most], budget)
    beyond = tuple(LeftOut(engram=one.engram, reason="others fit better") for one in fitting[most : 2 * most])
    return Chosen(taken=chosen.taken, left_out=(*chosen.left_out, *beyond))


def worth(one: Recalled) -> float:
    """What orders lessons: how well they fit, and how they have served."""
    return one.score * (0.5 + one.utility)


def fits(hit: Hit) -> bool:
    """Whether a hit is about what was asked, whatever else was found."""
    return hit.score >= FLOOR


def within(engrams: Iterable[Engram], budget: int) -> tuple[Recalled, ...]:
    return _within((Recalled(engram=engram) for engram in engrams), budget).taken


def _within(ranked: Iterable[Recalled], budget: int) -> Chosen:
    taken: list[Recalled] = []
    left_out: list[LeftOut] = []
    used = 0
    for one in ranked:
        if used + one.tokens > budget:
            left_out.append(LeftOut(engram=one.engram, reason=f"no room in {budget} tokens"))
        else:
            used += one.tokens
            taken.append(one)
    return Chosen(taken=tuple(taken), left_out=tuple(left_out))
