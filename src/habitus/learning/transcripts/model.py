"""What a reader gives: a transcript of turns, and what in it could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from habitus.events import Event


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One request and all that was done for it; the window in which the detectors look."""

    id: str
    events: tuple[Event, ...]
    is_sidechain: bool = False  # a helper agent's own work


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillUse:
    skill: str
    turn: str
    round_idx: int
    success: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    id: str
    source: str  # the format it was read from
    turns: tuple[Turn, ...] = ()
    skill_uses: tuple[SkillUse, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)  # why → how many lines or blocks
    is_weak: bool = False  # the format does not say what failed; success was inferred from the shape of results

    @property
    def event_count(self) -> int:
        return sum(len(turn.events) for turn in self.turns)


@dataclass(slots=True)
class Draft:
    """A transcript while it is being read."""

    id: str
    source: str
    turns: list[OpenTurn] = field(default_factory=list)
    skill_uses: list[SkillUse] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)

    def finished(self) -> Transcript:
        turns = tuple(turn.finished() for turn in self.turns if turn.events)
        return Transcript(
            id=self.id,
            source=self.source,
            turns=turns,
            skill_uses=tuple(self.skill_uses),
            unread=dict(self.unread),
            is_weak=any(event.detail.get("weak") is True for turn in turns for event in turn.events),
        )


@dataclass(slots=True)
class OpenTurn:
    id: str
    is_sidechain: bool = False
    events: list[Event] = field(default_factory=list)
    round_idx: int = 0

    def finished(self) -> Turn:
        return Turn(id=self.id, events=tuple(self.events), is_sidechain=self.is_sidechain)
