"""A request taken apart: which sentences ask, which only give background, and what the parts of a long one are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from habitus.search.words import content_words, terms

# The sentence that comes first usually says what is wanted; a later statement about the asker is background.
# Found by a sweep over first = 1…3 and background = 0.3…1, see docs/decisions/search.md.
_FIRST, _BACKGROUND = 2.0, 0.4
_MOST_PARTS = 8
_MOST_TERMS = 96
_MOST_WORDS = 40
_HEAD, _TAIL = 6000, 2000

_SENTENCE_END = re.compile(r"(?<=[.!?;。！？；])\s+|(?<=[。！？；])|\n+")
_PART_END = re.compile(r"(?<=[.!?;。！？；])\s+|\n+|,?\s(?:and then|and also|and|then|also)\s|,\s")
_STATEMENT = re.compile(
    r"(?:we|i|our|my|it|its|they|this|that|these|those|the|a|an|there|here|he|she|his|her|their|currently)\b", re.I
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRequest:
    """`terms` and `words` carry a weight: how much the sentence they stand in says about what is wanted."""

    text: str
    terms: Mapping[str, float]
    words: Mapping[str, float]
    phrases: frozenset[tuple[str, str]]
    parts: tuple[str, ...]

    @property
    def has_words(self) -> bool:
        """Even `what can you do` has, though none that is worth counting."""
        return any(char.isalnum() for char in self.text)


def read(text: str) -> SearchRequest:
    text = shortened(text)
    weighted = _weighted_sentences(text)
    return SearchRequest(
        text=text,
        terms=_heaviest([(term, weight) for sentence, weight in weighted for term in terms(sentence)], _MOST_TERMS),
        words=_heaviest([(w, weight) for sentence, weight in weighted for w in content_words(sentence)], _MOST_WORDS),
        phrases=frozenset(pair for sentence, _ in weighted for pair in pairwise(terms(sentence))),
        parts=_parts(text),
    )


def shortened(text: str) -> str:
    """What is wanted stands at the beginning or the end of a long paste, not in its middle."""
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def _weighted_sentences(text: str) -> list[tuple[str, float]]:
    sentences = [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]
    return [(sentence, _weight(sentence, place, len(sentences))) for place, sentence in enumerate(sentences)]


def _weight(sentence: str, place: int, count: int) -> float:
    weight = _FIRST if place == 0 else 1.0
    is_background = count > 1 and not sentence.endswith(("?", "？")) and _STATEMENT.match(sentence)
    return weight * _BACKGROUND if is_background else weight


def _heaviest(found: list[tuple[str, float]], most: int) -> dict[str, float]:
    weights: dict[str, float] = {}
    for key, weight in found:
        weights[key] = max(weight, weights.get(key, 0.0))
    if len(weights) <= most:
        return weights
    return dict(sorted(weights.items(), key=lambda item: -item[1])[:most])


def _parts(text: str) -> tuple[str, ...]:
    """The things a request asks for, longest first when there are too many; one part is the request itself."""
    parts = [part for part in _PART_END.split(text) if len(part.split()) > 1]
    if len(parts) > _MOST_PARTS:
        parts = sorted(parts, key=lambda part: -len(part))[:_MOST_PARTS]
    return tuple(parts) or (text,)
