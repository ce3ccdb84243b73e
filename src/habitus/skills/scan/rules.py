"""The form of a rule, and the quick test of which rules a text is worth trying.

A rule is tried only in a text that has a word of each of its parts, and only at the places where its first part stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_

from habitus.skills.scan.findings import Category, Risk

# Within a sentence: a stop ends the gap unless it is inside a name such as backup.sh; a wrapped line does not end it.
_GAP = r"(?:[^.!?\n]|[.!?](?=\S)|\n(?=[^\W_])){0,%d}?"
_ENDLESS = re.compile(r"(?:(?<=\\[wsSd])|(?<=(?<!\\)[\])]))[+*]")
_OPEN_COUNT = re.compile(r"\{(\d+),\}")
_COUNTS = {"+": "{1,200}", "*": "{0,200}"}
_WORD = re.compile(r"\w+")
_SPLIT = bytes(code if code > 127 or chr(code).isalnum() or chr(code) == "_" else 32 for code in range(256))
_SHORTEST_STRETCH = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a rule looks for."""

    starts: tuple[
        tuple[str, bytes], ...
    ]  # literals, one of which opens each match, each with a word it takes, if known
    pattern: re.Pattern[str]
    needs: tuple[frozenset[bytes], ...]  # a word of each must be near
    mark: str = ""  # a literal that must be somewhere in the text


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A class of attack as a pattern over lower-case text."""

    name: str
    category: Category
    severity: Risk | None  # None: says nothing alone, only next to others
    shape: Shape
    why: str
    is_command: bool = False  # something to run rather than something to obey
    is_common: bool = False  # stands in many texts: tried only near a rarer sign


@dataclass(slots=True)
class Work:
    """How many places were tried: the cost of a scan in something that can be counted."""

    tries: int = 0


Row = tuple[str, Category, Risk | None, Shape, str]
"""Name, category, severity, what it looks for, why it matters."""


def table(rows: Iterable[Row], *, is_command: bool = False, common: frozenset[str] = frozenset()) -> tuple[Rule, ...]:
    """The rules of a table; those in `common` stand in many texts and are tried only near a rarer sign."""
    return tuple(
        Rule(
            name=name,
            category=category,
            severity=severity,
            shape=shape,
            why=why,
            is_command=is_command,
            is_common=name in common,
        )
        for name, category, severity, shape, why in rows
    )


def near(*parts: str, gap: int = 40) -> Shape:
    """Words in this order within one sentence. A part is a list of alternatives split by `|`, each of plain words."""
    alternatives = [part.split("|") for part in parts]
    pattern = (_GAP % gap).join(rf"(?<!\w)(?:{'|'.join(map(_regex, words))})(?!\w)" for words in alternatives)
    needs = tuple(frozenset(_rarest_word(phrase) for phrase in words) for words in alternatives)
    starts = dict.fromkeys((_start(phrase), _rarest_word(phrase)) for phrase in alternatives[0])
    return Shape(starts=tuple(starts), pattern=re.compile(_bounded(pattern)), needs=needs)


def text(pattern: str, *, starts: str | tuple[str, ...], needs: str = "") -> Shape:
    """A pattern as it is. `starts` are the literals that open it, `needs` groups of words it can't match without."""
    literals = tuple(starts.split("|")) if isinstance(starts, str) else starts
    groups = (frozenset(word.encode() for word in group.split("|")) for group in needs.split())
    return Shape(
        starts=tuple((literal, b"") for literal in literals),
        pattern=re.compile(rf"(?:(?<!\w)|(?!\w))(?:{_bounded(pattern)})"),
        needs=tuple(groups),
        mark=literals[0] if len(literals) == 1 else "",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A stretch of a text to try rules in."""

    lower: str
    first: int
    last: int
    known: frozenset[bytes] | None = None  # the words there that matter to any rule, where that was found out


class Index:
    """Rules by the words they need: a word sets its bits, and a rule is worth trying where all of its bits are set."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._bits: dict[bytes, int] = {}
        self._rules: list[tuple[int, Rule]] = []
        bit = 1
        for rule in rules:
            whole = 0
            for group in rule.shape.needs:
                for word in group:
                    self._bits[word] = self._bits.get(word, 0) | bit
                whole |= bit
                bit <<= 1
            self._rules.append((whole, rule))
        self._words = frozenset(self._bits)

    def worth_trying(self, lower: str) -> Iterator[tuple[Rule, Place]]:
        """The rules with the stretches of the text that have all their words."""
        spans = list(_stretches(lower))
        known = [self._words.intersection(_words(lower[first:last])) for first, last in spans]
        seen = [self._bits_of(words) for words in known]
        everywhere = reduce(or_, seen, 0)
        rules = [
            (whole, rule) for whole, rule in self._rules if everywhere & whole == whole and rule.shape.mark in lower
        ]
        for (first, last), words, bits in zip(spans, known, seen, strict=True):
            if fitting := [rule for whole, rule in rules if bits & whole == whole]:
                place = Place(lower=lower, first=first, last=last, known=words)
                for rule in fitting:
                    yield rule, place

    def _bits_of(self, words: frozenset[bytes]) -> int:
        bits = 0
        for word in words:
            bits |= self._bits[word]
        return bits


def _stretches(lower: str) -> Iterator[tuple[int, int]]:
    """A text cut at blank lines into pieces that are not too small."""
    first = 0
    while first < len(lower):
        last = lower.find("\n\n", first + _SHORTEST_STRETCH)
        last = last if last >= 0 else len(lower)
        yield first, last
        first = last


def _words(lower: str) -> list[bytes]:
    return lower.encode("utf-8", "replace").translate(_SPLIT).split()


def matches(rule: Rule, place: Place, work: Work, *, most: int) -> Iterator[re.Match[str]]:
    """Every match of the rule in a place, after at most so many tries."""
    find, match_at = place.lower.find, rule.shape.pattern.match
    tries = 0
    for start, word in rule.shape.starts:
        if place.known is not None and word and word not in place.known:
            continue
        at = find(start, place.first, place.last)
        while at >= 0 and tries < most:
            tries += 1
            work.tries += 1
            found = match_at(place.lower, at)
            if found:
                yield found
            at = find(start, found.end() if found else at + len(start), place.last)


def _bounded(pattern: str) -> str:
    """The same without endless repetition: what is tried at many places must end soon at each of them."""
    return _OPEN_COUNT.sub(r"{\1,200}", _ENDLESS.sub(lambda found: _COUNTS[found[0]], pattern))


def _regex(phrase: str) -> str:
    """A space is any run of white space."""
    return re.escape(phrase).replace(r"\ ", r"\s+")


def _start(phrase: str) -> str:
    """Enough to find it by: short first words stand everywhere."""
    first = phrase.partition(" ")[0]
    return first if len(first) > 4 else phrase


def _rarest_word(phrase: str) -> bytes:
    """The longest word, as a guess."""
    words: list[str] = _WORD.findall(phrase)
    return max(words, key=len).encode()
