"""The form of a rule, and the quick test of which rules a text is worth trying.

A rule is tried only in a text that has a word of each of its parts, and only at the places where its first part stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from habitus.skills.scan.findings import Category, Risk

# Within a sentence: a stop ends the gap unless it is inside a name such as backup.sh; a wrapped line does not end it.
_GAP = r"(?:[^.!?\n]|[.!?](?=\S)|\n(?=[^\W_])){0,%d}?"
_LEAD = re.compile(r"[^\W_]\w+")
_NOT_WORD = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) == "_")}
_SPLIT = bytes(32 if code in _NOT_WORD else code for code in range(256))

MOST_TRIES = 20_000
"""Per rule and text. Nobody writes that many openings of one attack by accident."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A class of attack as a pattern over lower-case text."""

    name: str
    category: Category
    severity: Risk | None  # None: says nothing alone, only next to others
    why: str
    starts: tuple[str, ...]  # literals, one of which opens each match
    pattern: re.Pattern[str]
    needs: tuple[frozenset[bytes], ...]  # a word of each must be in the text
    is_command: bool = False  # something to run rather than something to obey
    is_common: bool = False  # stands in many texts: tried only near a rarer sign


@dataclass(slots=True)
class Work:
    """How many places were tried: the cost of a scan in something that can be counted."""

    tries: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a rule looks for."""

    starts: tuple[str, ...]
    pattern: re.Pattern[str]
    needs: tuple[frozenset[bytes], ...]


def near(*parts: str, gap: int = 40) -> Shape:
    """Words in this order within one sentence. A part is a list of alternatives split by `|`, each of plain words."""
    alternatives = [part.split("|") for part in parts]
    pattern = (_GAP % gap).join(rf"(?<!\w)(?:{'|'.join(map(_regex, words))})(?!\w)" for words in alternatives)
    needs = tuple(frozenset(_first_word(phrase).encode() for phrase in words) for words in alternatives)
    return Shape(starts=tuple(dict.fromkeys(map(_start, alternatives[0]))), pattern=re.compile(pattern), needs=needs)


def text(pattern: str, *, starts: str | tuple[str, ...], needs: str = "") -> Shape:
    """A pattern as it is. `starts` are the literals that open it, `needs` words it can't match without."""
    literals = tuple(starts.split("|")) if isinstance(starts, str) else starts
    groups = (frozenset(word.encode() for word in group.split("|")) for group in needs.split())
    return Shape(starts=literals, pattern=re.compile(pattern), needs=tuple(groups))


def words_of(lower: str) -> frozenset[bytes]:
    return frozenset(lower.encode("utf-8", "replace").translate(_SPLIT).split())


def worth_trying(rules: Iterable[Rule], words: frozenset[bytes]) -> Iterator[Rule]:
    for rule in rules:
        for group in rule.needs:
            if group.isdisjoint(words):
                break
        else:
            yield rule


def matches(rule: Rule, lower: str, work: Work, first: int = 0, last: int | None = None) -> Iterator[re.Match[str]]:
    """Every place where the rule matches; it stops when the text repeats its openings without end."""
    tries = 0
    for start in rule.starts:
        place = lower.find(start, first, last)
        while place >= 0 and tries < MOST_TRIES:
            tries += 1
            work.tries += 1
            if match := rule.pattern.match(lower, place):
                yield match
                place = lower.find(start, max(match.end(), place + 1), last)
            else:
                place = lower.find(start, place + len(start), last)


def _regex(phrase: str) -> str:
    """`key*` is any word that begins so; a space is any run of white space."""
    return re.escape(phrase).replace(r"\*", r"\w*").replace(r"\ ", r"\s+")


def _start(phrase: str) -> str:
    """Enough to find it by: short first words stand everywhere."""
    word = _first_word(phrase)
    return word if len(word) > 4 else phrase.partition("*")[0]


def _first_word(phrase: str) -> str:
    lead = _LEAD.match(phrase)
    if lead is None or phrase[lead.end() : lead.end() + 1] == "*":
        raise ValueError(f"'{phrase}' does not begin with a whole word.")
    return lead.group()
