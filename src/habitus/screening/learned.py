"""A learned look at one sentence: how far its slots, each two together, and its meaning speak for an attack. Pure.

The weights are numbers that `benchmarks/screening.py --write` learned; `none` are those for texts without word vectors.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import combinations
from typing import Any, Protocol

from habitus.screening.slots import Sentence


class WordVectors(Protocol):
    """Turns texts into vectors, one row each; weights were learned for it by its name."""

    @property
    def name(self) -> str: ...
    def embed(self, texts: Sequence[str]) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """From its floor on, a sentence of a skill or a lesson is seen by a person first."""

    skill_floor: float
    lesson_floor: float
    bias: float
    slots: Mapping[str, float]
    meaning: Sequence[float] = ()  # as wide as the embedder's vectors, where there are some


def features(sentence: Sentence) -> list[str]:
    """The slots of a sentence, each two of them, and those around it."""
    own = sorted(sentence.own)
    return [*own, *map(" ".join, combinations(own, 2)), *(f"+{name}" for name in sentence.around if name[0].isalpha())]


def score(sentence: Sentence, learned: Weights) -> float:
    """Above the floor means: like an attack."""
    own = sorted(name for name in sentence.own if name in learned.slots)
    found = learned.bias + sum(map(learned.slots.__getitem__, own))
    for pair in combinations(own, 2):
        found += learned.slots.get(" ".join(pair), 0.0)
    return found + sum(learned.slots.get(f"+{name}", 0.0) for name in sentence.around)


def scores(sentences: Sequence[Sentence], learned: Weights, embedder: WordVectors | None) -> list[float]:
    found = [score(sentence, learned) for sentence in sentences]
    if embedder is None or not learned.meaning:
        return found
    meant = embedder.embed([sentence.text for sentence in sentences]) @ learned.meaning
    return [score + float(meaning) for score, meaning in zip(found, meant, strict=True)]


def weights(embedder: WordVectors | None = None) -> Weights:
    """Those for this embedder, or those for none."""
    known = _read()
    return known.get(embedder.name if embedder else "none", known["none"])


@functools.cache
def _read() -> Mapping[str, Weights]:
    text = (files("habitus.screening") / "weights.json").read_text("utf-8")
    return {name: Weights(**row) for name, row in json.loads(text).items()}
