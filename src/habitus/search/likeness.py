"""How alike two documents are, for lint, deduplication and reinforcement: 1.0 is the same text, 0 nothing shared."""

from __future__ import annotations

import numpy as np

from habitus.search.corpus import Corpus
from habitus.search.entry import Codes, IndexEntry, Vector
from habitus.search.model import Hit
from habitus.search.signals import highest

_LOOK_AT = 60
_SHORTEST_BODY = 20


def nearest(corpus: Corpus, entry: IndexEntry, vector: Vector, k: int, least: float = 0.0) -> tuple[Hit, ...]:
    """The nearest documents; of those that mean something else, below `least`, the words are not compared."""
    slots = [slot for slot in _near(corpus, entry, vector) if corpus.entries[slot].id != entry.id]
    if least and corpus.vectors.shape[1]:
        slots = [slot for slot in slots if float(corpus.vectors[slot] @ vector) >= least]
    hits = [_compare(corpus, entry, vector, slot) for slot in slots]
    hits.sort(key=lambda hit: (-round(hit.score, 6), hit.id))
    return tuple(hits[:k])


def _near(corpus: Corpus, entry: IndexEntry, vector: Vector) -> list[int]:
    """The slots worth comparing: nearest by meaning, and those that share the rarest terms."""
    meaning = np.where(corpus.alive, corpus.vectors @ vector, -1.0)
    codes = np.unique(_summary(entry))
    rarity = corpus.rarity(codes)
    shared = np.zeros(len(corpus.entries), dtype=np.float32)
    for number, worth in zip(codes.tolist(), rarity.tolist(), strict=True):
        shared[corpus.postings.of(number)[0]] += worth
    shared[~corpus.alive] = -1.0
    chosen: set[int] = set()
    for scores in (meaning, shared):
        chosen.update(slot for slot in highest(scores, _LOOK_AT).tolist() if corpus.alive[slot])
    return sorted(chosen)


def _compare(corpus: Corpus, entry: IndexEntry, vector: Vector, slot: int) -> Hit:
    other = corpus.entries[slot]
    meaning = float(np.clip(corpus.vectors[slot] @ vector, 0.0, 1.0))
    parts = {"words": _overlap(corpus, _summary(entry), _summary(other)), "meaning": meaning}
    if not corpus.vectors.shape[1]:
        parts["meaning"] = parts["words"]
    score = (parts["words"] + parts["meaning"]) / 2
    if min(entry.lengths[-1], other.lengths[-1]) >= _SHORTEST_BODY:
        parts["body"] = _overlap(corpus, _body(entry), _body(other))
        score = (2 * score + parts["body"]) / 3
    return Hit(id=other.id, score=min(1.0, score), parts={name: round(value, 3) for name, value in parts.items()})


def _overlap(corpus: Corpus, a: Codes, b: Codes) -> float:
    """Shared terms against all terms, each by its rarity and how often both have it."""
    codes = np.union1d(a, b)
    if not len(codes):
        return 1.0
    of_a = np.bincount(np.searchsorted(codes, a), minlength=len(codes))
    of_b = np.bincount(np.searchsorted(codes, b), minlength=len(codes))
    rarity = corpus.rarity(codes) + 0.1
    return float((np.minimum(of_a, of_b) * rarity).sum() / (np.maximum(of_a, of_b) * rarity).sum())


def _summary(entry: IndexEntry) -> Codes:
    return entry.codes[: len(entry.codes) - entry.lengths[-1]]


def _body(entry: IndexEntry) -> Codes:
    return entry.codes[len(entry.codes) - entry.lengths[-1] :]
