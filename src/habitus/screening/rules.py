"""The form of a rule, and the quick test of which rules a text is worth trying.

A rule is tried only in a text that has a word of each of its parts, and only at the places where its first part stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from habitus.screening.findings import Category, Risk

# Within a sentence: a stop ends the gap unless it is inside a name such as backup.sh; a wrapped line does not end it.
_GAP = r"(?:[^.!?\n]|[.!?](?=\S)|\n(?=[^\W_])){0,%d}?"
_ENDLESS = re.compile(r"(?:(?<=\\[wsSd])|(?<=(?<!\\)[\])]))[+*]")
_OPEN_COUNT = re.compile(r"\{(\d+),\}")
_COUNTS = {"+": "{1,200}", "*": "{0,200}"}
_WORD = re.compile(r"\w+")
_WHOLE_OPENINGS = re.compile(r"\(\?:([\w |-]+)\)\\b")
# What letters are coded as, in the words that rules look for; any other character parts words.
_CODECS = ("latin-1", "cp1251")
_SPLIT = {
    codec: bytes(code if _WORD.match(bytes([code]).decode(codec, "replace")) else 32 for code in range(256))
    for codec in _CODECS
}
_SHORTEST_STRETCH = 400


class Start(NamedTuple):
    """A literal that opens matches, and words of which one must stand near it; no words where none is sure."""

    literal: str
    words: frozenset[bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a rule looks for."""

    starts: tuple[Start, ...]  # one of them opens each match
    pattern: re.Pattern[str]
    needs: tuple[frozenset[bytes], ...]  # a word of each must be near


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
    needs = tuple(frozenset(map(_rarest_word, words)) for words in alternatives)
    starts: dict[str, frozenset[bytes]] = {}
    for phrase in alternatives[0]:
        starts[_start(phrase)] = starts.get(_start(phrase), frozenset()) | {_rarest_word(phrase)}
    return Shape(
        starts=tuple(Start(literal, words) for literal, words in starts.items()),
        pattern=re.compile(_bounded(pattern)),
        needs=needs,
    )


def text(pattern: str, *, starts: str | tuple[str, ...], needs: str = "") -> Shape:
    """A pattern as it is. `starts` are the literals that open it, `needs` groups of words it can't match without."""
    literals = tuple(starts.split("|")) if isinstance(starts, str) else starts
    groups = [frozenset(map(_token, group.split("|"))) for group in needs.split()]
    openings = found[1].split("|") if (found := _WHOLE_OPENINGS.match(pattern)) else []
    opened_by = tuple(Start(literal, _words_at(literal, openings)) for literal in literals)
    if all(start.words for start in opened_by):
        groups.append(frozenset[bytes]().union(*(start.words for start in opened_by)))
    return Shape(
        starts=opened_by,
        pattern=re.compile(rf"(?:(?<!\w)|(?!\w))(?:{_bounded(pattern)})"),
        needs=tuple(groups),
    )


class Place(NamedTuple):
    """A stretch of a text to try rules in."""

    lower: str
    first: int
    last: int
    known: frozenset[bytes] | None = None  # the words there that matter to any rule, where that was found out


class Index:
    """Rules by the words they need: a word sets its bits, and a rule is worth trying where all of its bits are set.

    The bits of a rule stand side by side with a free one above them, so that adding one at the lowest of each rule
    carries into the free bits of just those rules whose bits are all set.
    """

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._bits: dict[bytes, int] = {}
        self._rules: dict[int, Rule] = {}  # by the free bit
        self._needless: list[Rule] = []
        self._lowest = 0
        bit = 1
        for rule in rules:
            if not rule.shape.needs:
                self._needless.append(rule)
                continue
            self._lowest |= bit
            for group in rule.shape.needs:
                for word in group:
                    self._bits[word] = self._bits.get(word, 0) | bit
                bit <<= 1
            for word in frozenset[bytes]().union(*(start.words for start in rule.shape.starts)):
                self._bits.setdefault(word, 0)
            self._rules[bit] = rule
            bit <<= 1
        self._free = sum(self._rules)
        self._words = frozenset(self._bits)

    def worth_trying(self, lower: str, *, strange: bool) -> Iterator[tuple[Rule, Place]]:
        """The rules with the stretches of the text that have all their words."""
        bits_of, intersection = self._bits.__getitem__, self._words.intersection
        yield from ((rule, Place(lower, 0, len(lower))) for rule in self._needless)
        for first, last in _stretches(lower):
            known = intersection(_words(lower[first:last], strange=strange))
            fitting = (reduce(or_, map(bits_of, known), 0) + self._lowest) & self._free
            if not fitting:
                continue
            place = Place(lower, first, last, known)
            while fitting:
                bit = fitting & -fitting
                fitting ^= bit
                yield self._rules[bit], place


def _stretches(lower: str) -> Iterator[tuple[int, int]]:
    """A text cut at blank lines into pieces that are not too small."""
    first = 0
    while first < len(lower):
        last = lower.find("\n\n", first + _SHORTEST_STRETCH)
        last = last if last >= 0 else len(lower)
        yield first, last
        first = last


def _words(lower: str, *, strange: bool) -> list[bytes]:
    """The words of a text; Latin ones alone, unless it has characters that are strange among those."""
    words = lower.encode("latin-1", "replace").translate(_SPLIT["latin-1"]).split()
    return words + lower.encode("cp1251", "replace").translate(_SPLIT["cp1251"]).split() if strange else words


def _token(word: str) -> bytes:
    """A word as it is looked for."""
    return word.encode("latin-1" if max(word) <= "\xff" else "cp1251")


def matches(rule: Rule, place: Place, work: Work, *, most: int) -> Iterator[re.Match[str]]:
    """Every match of the rule in a place, after at most so many tries."""
    lower, first, last, known = place
    find, match_at = lower.find, rule.shape.pattern.match
    tries = 0
    for start, words in rule.shape.starts:
        if words and known is not None and words.isdisjoint(known):
            continue
        at = find(start, first, last)
        while at >= 0 and tries < most:
            tries += 1
            found = match_at(lower, at)
            if found:
                yield found
            at = find(start, found.end() if found else at + len(start), last)
    work.tries += tries


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
    return _token(max(words, key=len))


def _words_at(literal: str, openings: Sequence[str]) -> frozenset[bytes]:
    """Words of which one is whole wherever the literal opens a match, given all its openings, if they are known."""
    if whole := [opening for opening in openings if opening.startswith(literal)]:
        return frozenset(map(_rarest_word, whole))
    # The last word of the literal may go on after it.
    words = [found[0] for found in _WORD.finditer(literal) if found.end() < len(literal)]
    return frozenset([_token(max(words, key=len))] if words else [])
