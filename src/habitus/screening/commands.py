"""Finds commands in lower-case text, with work that grows with the text and no faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from habitus.screening.rules import Rule, all_cues, commands

_MOST = 200  # matches of one rule in one file; the first say enough


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    rule: Rule
    start: int
    end: int


def found_commands(lower: str) -> Iterator[Match]:
    """Every place where a rule matches; patterns have no endless repetition, so each opening costs the same at most."""
    standing = {cue: list(_places(lower, cue)) for cue in all_cues() if cue in lower}
    for rule in commands():
        end, count = -1, 0
        for place in sorted({place for cue in rule.cues for place in standing.get(cue, ())}):
            before = lower[place - 1 : place]
            if place < end or count >= _MOST or (lower[place].isalnum() and (before.isalnum() or before == "_")):
                continue
            if found := rule.pattern.match(lower, place):
                end, count = found.end(), count + 1
                yield Match(rule=rule, start=place, end=end)


def _places(lower: str, cue: str) -> Iterator[int]:
    place = lower.find(cue)
    while place >= 0:
        yield place
        place = lower.find(cue, place + 1)
