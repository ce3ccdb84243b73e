"""Corrections: what a person said right after refusing, interrupting or undoing, as a rule in their own words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from habitus.learning.transcripts.model import Said, Stop
from habitus.memory.model import Kind

SHORTEST, LONGEST = 3, 40  # words of a rule
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+|;\s+")
_UNDOING = re.compile(
    r"(?:no\b[\s,.!]*)?(?:please )?(?:undo|revert|roll(?: it)? back|put (?:it|that) back|take (?:it|that) back)", re.I
)
_LEADING = re.compile(
    r"^(?:no|nope|stop|wait|hey|please|undo that|undo this|undo|revert that|revert this|revert|and|but|also|ok|well"
    r"|don't do that|not like that)\b[\s,.!:—-]*(?!-)",
    re.I,
)
_STANDING = re.compile(
    r"\b(?:always|never|don'?t ever|do not ever|from now on|every time|in this (?:project|repo(?:sitory)?|codebase)"
    r"|we (?:always|never|only|don'?t)|in general|any(?:where|time)|under no circumstances|whenever)\b",
    re.I,
)
_ORDER = re.compile(
    r"\b(?:don'?t|do not|never|always|must(?: not|n'?t)?|should(?: not|n'?t)?|use|prefer|only|instead|avoid|without|ask"
    r"|keep|leave|run|make sure|no need)\b",
    re.I,
)
_NEVER = re.compile(r"\b(?:never|don'?t|do not|mustn'?t|must not|shouldn'?t|should not|avoid|under no)\b", re.I)
_WHEN = re.compile(r"^(?:when(?:ever)?|if|before|after|each time|every time)\b", re.I)


@dataclass(frozen=True, kw_only=True, slots=True)
class Correction:
    """A rule in a person's words, and where they said it."""

    text: str
    kind: Kind
    after: Stop
    turn: str
    at: str = ""
    is_standing: bool = False  # it speaks of more than the moment

    @property
    def words(self) -> frozenset[str]:
        return frozenset(re.findall(r"[\w.-]{3,}", self.text.lower())) - _FILLERS


_FILLERS = frozenset(["the", "and", "you", "that", "this", "for", "not", "with", "are", "please", "ever", "just"])


def corrections(said: Iterable[Said], turn: str) -> Iterator[Correction]:
    for each in said:
        after = each.after or (Stop.UNDONE if _UNDOING.match(each.words.strip()) else None)
        if after is not None:
            yield from _rules(each, after, turn)


def _rules(said: Said, after: Stop, turn: str) -> Iterator[Correction]:
    for sentence in _SENTENCE.split(said.words.strip()):
        text = _without_leading(sentence.strip())
        count = len(text.split())
        if not SHORTEST <= count <= LONGEST or not _ORDER.search(text) or text.endswith("?"):
            continue
        if (
            not _STANDING.search(text)
            and not _NEVER.search(text)
            and " instead" not in text.lower()
            and not re.match("use ", text, re.I)
        ):
            continue
        yield Correction(
            text=text if text.endswith((".", "!")) else f"{text}.",
            kind=Kind.WHEN if _WHEN.match(text) else Kind.NEVER if _NEVER.search(text) else Kind.ALWAYS,
            after=after,
            turn=turn,
            at=said.at,
            is_standing=_STANDING.search(text) is not None,
        )


def _without_leading(sentence: str) -> str:
    while (found := _LEADING.match(sentence)) and found.end() < len(sentence):
        sentence = sentence[found.end() :]
    return sentence[:1].upper() + sentence[1:]


def is_again(one: Correction, other: Correction) -> bool:
    """Whether two say the same: most of the words that carry it are shared."""
    shared = len(one.words & other.words)
    return one.kind is other.kind and bool(shared) and shared / min(len(one.words), len(other.words)) >= 0.7
