"""A request taken apart: which sentences ask, which only give background, what is quoted or pasted, and what the
parts of a long one are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from habitus.search.words import content_words, terms

# The sentence that comes first usually says what is wanted; a later statement about the asker is background.
# Found by a sweep over first = 1…3 and background = 0.3…1, see docs/decisions/search.md.
_FIRST, _BACKGROUND, _PASTED = 2.0, 0.4, 0.1
_MOST_PARTS = 8
_MOST_TERMS = 96
_MOST_WORDS = 40
_HEAD, _TAIL = 6000, 2000  # characters that are looked at
_OWN, _OF_PASTE = (1000, 400), (300, 0)  # characters that count: first and last of the asker's words, of a paste

_SENTENCE_END = re.compile(r"(?<=[.!?;。！？；])\s+|(?<=[。！？；])|\n+")
_PART_END = re.compile(r"(?<=[.!?;。！？；])\s+|\n+|,?\s(?:and then|and also|and|then|also)\s|,\s")
_STATEMENT = re.compile(
    r"(?:we|i|our|my|it|its|they|this|that|these|those|the|a|an|there|here|he|she|his|her|their|currently)\b", re.I
)


_ASKS = re.compile(r"\b(?:i|we|our|my|me|us|you|your|help|please)\b|[?？]|我|帮|请|吗", re.I)
# Of an address the name of the place says something; what is before and behind it is rare and means nothing.
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://(?:[\w-]+@)?([\w.-]+)[^\s<>\"'）)，。]*", re.I)
_PLACE_ENDS = frozenset(["www", "mp", "com", "cn", "org", "net", "io", "dev", "co", "uk", "de"])

# What somebody else wrote, or a program: fenced, quoted as mail quotes, in quotation marks at length, a traceback.
_LINE = r"[^\n]*(?:\n|\Z)"
_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|\"{3}.*?(?:\"{3}|\Z)"
    rf"|(?:^[ \t]*>{_LINE})+|^Traceback \(most recent call last\):\n(?:[ \t]{_LINE})*(?:\w[\w.]*:{_LINE})?"
    r"|[“\"«„][^”\"»“\n]{80,}[”\"»“]",
    re.MULTILINE | re.DOTALL,
)
_INTRODUCED = re.compile(r"[:：][ \t]*\n")
_LONG_PASTE = 20  # words after "…:" and a new line that are no longer a list of what is wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRequest:
    """`terms` and `words` carry a weight: how much the sentence they stand in says about what is wanted.

    `text` are the asker's own words, without what they quote or paste.
    """

    text: str
    terms: Mapping[str, float]
    words: Mapping[str, float]
    phrases: frozenset[tuple[str, str]]
    parts: tuple[str, ...]
    is_asked: bool  # somebody asks for themselves: "help me", "our", "?"; a bare topic or statement does not

    def texts(self, most: int) -> list[str]:
        """The request and then its parts, for a model that is to read no more than so many words in all."""
        text = " ".join(self.text.split()[:most])
        left = most - len(text.split())
        parts: list[str] = []
        for part in self.parts:
            left -= len(part.split())
            if left >= 0 or part == text:
                parts.append(part)
        return [text, *(parts or [text])]

    @property
    def has_words(self) -> bool:
        """Even `what can you do` has, though none that is worth counting."""
        return any(char.isalnum() for char in self.text)


def read(text: str) -> SearchRequest:
    own, pasted = _split_quotes(_without_paths(shorten_request(text)))
    weighted = [*_weighted_sentences(own), *((sentence, _PASTED) for sentence in _sentences(pasted))]
    return SearchRequest(
        text=own,
        terms=_heaviest([(term, weight) for sentence, weight in weighted for term in terms(sentence)], _MOST_TERMS),
        words=_heaviest([(w, weight) for sentence, weight in weighted for w in content_words(sentence)], _MOST_WORDS),
        phrases=frozenset(pair for sentence, _ in weighted for pair in pairwise(terms(sentence))),
        parts=_parts(own),
        is_asked=_ASKS.search(own) is not None,
    )


def _without_paths(text: str) -> str:
    """Addresses cut down to the words of their host."""
    return _ADDRESS.sub(lambda at: " " + " ".join(w for w in at[1].split(".") if w not in _PLACE_ENDS) + " ", text)


def own_words(text: str) -> str:
    """A request without what is quoted or pasted in it; all of it where there is nothing else."""
    return _split_quotes(shorten_request(text))[0].strip()


def _split_quotes(text: str) -> tuple[str, str]:
    pasted = [found[0] for found in _QUOTED.finditer(text)]
    own = _QUOTED.sub("\n", text)
    if introduced := _INTRODUCED.search(own):
        before, after = own[: introduced.end()], own[introduced.end() :]
        *paragraphs, last = re.split(r"\n[ \t]*\n", after.strip())
        asks_last = bool(paragraphs) and len(last.split()) <= _LONG_PASTE
        shown = "\n\n".join(paragraphs) if asks_last else after
        if len(shown.split()) > _LONG_PASTE:
            own, pasted = f"{before}{last if asks_last else ''}", [*pasted, shown]
    own = own.strip()
    if not any(char.isalnum() for char in own):
        own, pasted = text, []
    return shorten_request(own, *_OWN), shorten_request("\n".join(pasted), *_OF_PASTE)


def shorten_request(text: str, head: int = _HEAD, tail: int = _TAIL) -> str:
    """What is wanted stands at the beginning or the end of a long text, not in its middle."""
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n{text[len(text) - tail :]}"


def _weighted_sentences(text: str) -> list[tuple[str, float]]:
    sentences = _sentences(text)
    return [(sentence, _weight(sentence, place, len(sentences))) for place, sentence in enumerate(sentences)]


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


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
