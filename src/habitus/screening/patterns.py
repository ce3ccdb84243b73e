"""Finds commands and addresses in lower-case text, with bounded work."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from habitus.screening.rules import Rule, all_cues, commands, hosts

MOST_TRIES = 2_000  # of one rule in one file; nobody writes that many openings of one attack by accident
_ADDRESS = re.compile(
    r"(?:https?|wss?|ftp)://(?:[^\s/@\"'<>]{1,64}@)?([\w.-]{1,253})|(?<=[\w.+-])@((?:[\w-]{1,63}\.){1,5}[a-z]{2,24})\b"
)
_NUMERIC = re.compile(r"(?!(?:127|10|0)\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.)\d{1,3}(?:\.\d{1,3}){3}")
_ELSEWHERE = 3  # how often a skill names a host that is its own


@dataclass(slots=True)
class Work:
    """How many places were tried: the cost of a scan in something that can be counted."""

    tries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    rule: Rule
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Lines:
    """A lower-case text with its line numbers."""

    lower: str

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer("\n", self.lower))]

    def number(self, place: int) -> int:
        """The number of the line, from 1."""
        return bisect_right(self._starts, place)

    def around(self, place: int) -> tuple[int, int]:
        """Where the line of a place begins and ends."""
        end = self.lower.find("\n", place)
        return self._starts[self.number(place) - 1], end if end >= 0 else len(self.lower)


def found_commands(lower: str, work: Work) -> tuple[list[Match], list[str]]:
    """What matches, and the rules whose openings are so many that not all of them were tried."""
    matches: list[Match] = []
    flooded: list[str] = []
    standing = {cue: list(_places(lower, cue)) for cue in all_cues() if cue in lower}
    for rule in commands():
        openings = sorted({place for cue in rule.cues for place in standing.get(cue, ())})
        work.tries += min(len(openings), MOST_TRIES)
        if len(openings) > MOST_TRIES and rule.risk:
            flooded.append(rule.name)
        end = -1
        for place in openings[:MOST_TRIES]:
            is_inside_word = (
                lower[place].isalnum() and place and (lower[place - 1].isalnum() or lower[place - 1] == "_")
            )
            if place < end or is_inside_word:
                continue
            if found := rule.pattern.match(lower, place):
                end = found.end()
                matches.append(Match(rule=rule, start=place, end=end))
    return matches, flooded


def _places(lower: str, cue: str) -> Iterator[int]:
    place = lower.find(cue)
    for _ in range(MOST_TRIES + 1):
        if place < 0:
            return
        yield place
        place = lower.find(cue, place + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbourhood:
    """Which hosts a skill is at home with: those it names again and again, and those named like itself."""

    own: Mapping[str, int]
    about: str

    def kind(self, host: str) -> str:
        """Where an address leads."""
        if _NUMERIC.fullmatch(host):
            return "numeric_host"
        domain = _domain(host)
        if "." not in host or domain in hosts().nowhere or host.rpartition(".")[2] in hosts().nowhere:
            return ""
        if domain in hosts().rented:
            return "rented_host"
        if domain in hosts().known:
            return "known_host"
        is_own = self.own.get(domain, 0) >= _ELSEWHERE or domain.partition(".")[0] in self.about
        return "own_host" if is_own else "foreign_host"


def neighbourhood(texts: Iterable[str], about: str) -> Neighbourhood:
    named = Counter(_domain(host) for text in texts for _, host in addresses(text))
    return Neighbourhood(own=named, about=about.lower())


def addresses(lower: str) -> Iterator[tuple[int, str]]:
    """Where addresses stand, and their hosts."""
    if "://" in lower or "@" in lower:
        for found in _ADDRESS.finditer(lower):
            yield found.start(), (found[1] or found[2]).strip(".")


def _domain(host: str) -> str:
    return ".".join(host.split(".")[-2:])
