"""A second look at a text that no rule objects to: does it work as an order, in whatever words and language?

What a sentence speaks of (secrets, payments, approval …) and in which mood (allowed, granted already, without …) is
read off `concepts.toml`; how far each of these, each two together, and the meaning of the whole speak for an order was
learned from labelled sentences by `benchmarks/train_admission.py` and is kept in `second_look.json`. Pure.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from typing import Any, Protocol

_SENTENCES = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？।])")
_MOST_SENTENCES = 24
_MARKS = re.compile(r"[\u0300-\u036f\u064b-\u0655\u0591-\u05c7\u093c]")
_WORDS = re.compile(r"[\w\u0900-\u0dff]+")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ARTICLES = re.compile(r"^(?:وال|بال|لل|ال|و|ب|ل|ה|ו|ב|ל|ש)(?=\w{3})")
_LONGEST_PHRASE = 5


class Embedder(Protocol):
    """Turns texts into vectors, one row each; the weights were learned for it by its name."""

    @property
    def name(self) -> str: ...
    def embed(self, texts: Sequence[str]) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """How much each concept, each two of them, and the meaning speak for an order; from `floor` on a text waits."""

    floor: float
    bias: float
    concepts: Mapping[str, float]
    meaning: Any = None  # a vector of the embedder's width, where there is one


def works_as_order(text: str, embedder: Embedder | None) -> bool:
    """Whether any sentence of it, or all of it together, should be seen by a person first."""
    vectors = embedder if embedder is not None and embedder.name in _learned() else None
    weights = _learned()[vectors.name if vectors else "none"]
    return max(scores(_parts(text), vectors, weights), default=weights.floor - 1) >= weights.floor


def _parts(text: str) -> list[str]:
    sentences = [part for part in _SENTENCES.split(text) if part.strip()]
    return [text, *sentences[:_MOST_SENTENCES]] if len(sentences) > 1 else [text]


def scores(texts: Sequence[str], embedder: Embedder | None, weights: Weights) -> list[float]:
    found = [weights.bias + sum(weights.concepts.get(name, 0.0) for name in features(text)) for text in texts]
    if embedder is None or weights.meaning is None:
        return found
    meant = embedder.embed(texts) @ weights.meaning
    return [score + float(meaning) for score, meaning in zip(found, meant, strict=True)]


def features(text: str) -> list[str]:
    """The concepts of a text, and each two of them that stand in it together."""
    found = sorted(concepts(text))
    return [*found, *(f"{one} {other}" for one, other in combinations(found, 2))]


def concepts(text: str) -> set[str]:
    """What a text speaks of, and in which mood."""
    plain, lexicon = _folded(text), _lexicon()
    found: set[str] = set()
    words = _WORDS.findall(plain)
    for start, word in enumerate(words):
        found.update(*_named(word, lexicon))
        shorter = _ARTICLES.sub("", word)
        if shorter != word:
            found.update(*_named(shorter, lexicon))
        if word in lexicon.phrase_starts:
            for end in range(start + 2, min(start + _LONGEST_PHRASE, len(words)) + 1):
                found.update(*_named(" ".join(words[start:end]), lexicon, shortest=end - start))
    if _UNSPACED.search(plain):
        for entry, names in lexicon.anywhere.items():
            if entry in plain:
                found |= names
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Lexicon:
    whole: Mapping[str, set[str]]
    beginnings: Mapping[str, set[str]]
    anywhere: Mapping[str, set[str]]
    phrase_starts: frozenset[str]


def _named(words: str, lexicon: Lexicon, shortest: int = 2) -> Iterable[set[str]]:
    if words in lexicon.whole:
        yield lexicon.whole[words]
    for end in range(shortest, len(words) + 1):
        if words[:end] in lexicon.beginnings:
            yield lexicon.beginnings[words[:end]]


def _folded(text: str) -> str:
    """Lower case without accents and unseen characters; both sides of a comparison are folded."""
    whole = unicodedata.normalize("NFKD", "".join(c for c in text[:4000] if unicodedata.category(c) != "Cf"))
    return unicodedata.normalize("NFC", _MARKS.sub("", whole)).casefold().replace("ı", "i").replace("ł", "l")


@functools.cache
def _lexicon() -> Lexicon:
    """Read when the first text is judged."""
    whole: dict[str, set[str]] = {}
    beginnings: dict[str, set[str]] = {}
    anywhere: dict[str, set[str]] = {}
    starts: set[str] = set()
    for concept, languages in tomllib.loads(_data("concepts.toml")).items():
        for entry in (entry.strip() for line in languages.values() for entry in line.split(",")):
            plain = " ".join(_WORDS.findall(_folded(entry)))
            place = anywhere if _UNSPACED.search(plain) else beginnings if entry.endswith("*") else whole
            place.setdefault(plain, set()).add(concept)
            if " " in plain:
                starts.add(plain.split(" ", 1)[0])
    return Lexicon(whole=whole, beginnings=beginnings, anywhere=anywhere, phrase_starts=frozenset(starts))


@functools.cache
def _learned() -> Mapping[str, Weights]:
    """By the name of the embedder; `none` is for texts whose meaning is not known."""
    import numpy as np  # whoever judges a text has it loaded; whoever imports memory may not need it

    return {
        name: Weights(
            floor=kept["floor"],
            bias=kept["bias"],
            concepts=kept["concepts"],
            meaning=np.array(kept["meaning"], dtype=np.float32) if kept["meaning"] else None,
        )
        for name, kept in json.loads(_data("second_look.json")).items()
    }


def _data(name: str) -> str:
    return (files("habitus.screening") / name).read_text("utf-8")
