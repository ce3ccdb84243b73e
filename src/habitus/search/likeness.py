"""How alike two documents are, for lint, deduplication and reinforcement: 1.0 is the same text, 0 nothing shared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from habitus.search.corpus import Corpus
from habitus.search.entry import Codes, IndexEntry, Vector
from habitus.search.model import Hit
from habitus.search.postings import Slots
from habitus.search.signals import highest

_LOOK_AT = 60
_SHORTEST_BODY = 20
_RAREST, _SHARING, _NEAREST = 8, 300, 4
_SAME_MATTER = 0.6  # documents whose meanings are less near than this are no neighbours


def nearest(corpus: Corpus, entry: IndexEntry, vector: Vector, k: int, least: float = 0.0) -> tuple[Hit, ...]:
    """The nearest documents; of those that mean something else, below `least`, the words are not compared."""
    slots = [slot for slot in _near(corpus, entry, vector) if corpus.entries[slot].id != entry.id]
    if least and corpus.vectors.shape[1]:
        slots = [slot for slot in slots if float(corpus.vectors[slot] @ vector) >= least]
    mine = _Profile.of(corpus, entry, vector)
    return _sorted([_compare(mine, _profile(corpus, slot)) for slot in slots])[:k]


def neighbours(corpus: Corpus) -> dict[str, tuple[Hit, ...]]:
    """For every document the few that are most like it, among those with which it shares its rarest terms.

    Work grows with the number of documents, not of pairs: each one meets a handful of others.
    """
    profile = functools.cache(lambda slot: _profile(corpus, slot))
    return {id: _met(corpus, slot, profile) for id, slot in sorted(corpus.slots.items())}


def _met(corpus: Corpus, slot: int, profile: Callable[[int], _Profile]) -> tuple[Hit, ...]:
    mine = profile(slot)
    others, shared = _sharing(corpus, slot, mine)
    if corpus.vectors.shape[1]:
        shared = corpus.vectors[others] @ mine.vector
        others, shared = others[shared >= _SAME_MATTER], shared[shared >= _SAME_MATTER]
    return _sorted([_compare(mine, profile(other)) for other in others[highest(shared, _NEAREST)].tolist()])


def _sharing(corpus: Corpus, slot: int, mine: _Profile) -> tuple[Slots, NDArray[np.float32]]:
    """The other documents that have the rarest terms of this one's summary, and the worth of what they share."""
    counts = corpus.postings.counts(mine.summary.codes)
    rarest = np.argsort(np.where(counts > 1, counts, np.iinfo(np.int64).max), kind="stable")[:_RAREST]
    found: list[Slots] = []
    worths: list[NDArray[np.float32]] = []
    room = _SHARING
    for place in rarest[counts[rarest] > 1].tolist():
        slots = corpus.postings.of(int(mine.summary.codes[place]))[0][:room]
        found.append(slots)
        worths.append(np.full(len(slots), mine.summary.rarity[place], dtype=np.float32))
        room -= len(slots)
    if not found:
        return np.zeros(0, np.int64), np.zeros(0, np.float32)
    others, which = np.unique(np.concatenate(found), return_inverse=True)
    shared = np.bincount(which, np.concatenate(worths)).astype(np.float32)
    is_other = corpus.alive[others] & (others != slot)
    return others[is_other], shared[is_other]


def _near(corpus: Corpus, entry: IndexEntry, vector: Vector) -> list[int]:
    """The slots worth comparing: nearest by meaning, and those that share the rarest terms."""
    meaning = np.where(corpus.alive, corpus.vectors @ vector, -1.0)
    codes = np.unique(entry.summary)
    rarity = corpus.rarity(codes)
    shared = np.zeros(len(corpus.entries), dtype=np.float32)
    for number, worth in zip(codes.tolist(), rarity.tolist(), strict=True):
        shared[corpus.postings.of(number)[0]] += worth
    shared[~corpus.alive] = -1.0
    chosen: set[int] = set()
    for scores in (meaning, shared):
        chosen.update(slot for slot in highest(scores, _LOOK_AT).tolist() if corpus.alive[slot])
    return sorted(chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weighed:
    """The different terms of a text in order, how often each is there, and what it is worth."""

    codes: Codes
    times: NDArray[np.int64]
    rarity: NDArray[np.float32]
    total: float

    @classmethod
    def of(cls, corpus: Corpus, codes: Codes) -> _Weighed:
        different, times = np.unique(codes, return_counts=True)
        rarity = corpus.rarity(different) + np.float32(0.1)
        return cls(codes=different, times=times, rarity=rarity, total=float((times * rarity).sum()))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Profile:
    """What is compared of a document; its terms are looked up once, however many others it meets."""

    id: str
    vector: Vector
    summary: _Weighed
    body: _Weighed | None

    @classmethod
    def of(cls, corpus: Corpus, entry: IndexEntry, vector: Vector) -> _Profile:
        has_body = entry.lengths[-1] >= _SHORTEST_BODY
        return cls(
            id=entry.id,
            vector=vector,
            summary=_Weighed.of(corpus, entry.summary),
            body=_Weighed.of(corpus, entry.body) if has_body else None,
        )


def _profile(corpus: Corpus, slot: int) -> _Profile:
    return _Profile.of(corpus, corpus.entries[slot], corpus.vectors[slot])


def _compare(mine: _Profile, other: _Profile) -> Hit:
    words = _overlap(mine.summary, other.summary)
    meaning = float(np.clip(other.vector @ mine.vector, 0.0, 1.0)) if len(mine.vector) else words
    parts = {"words": words, "meaning": meaning}
    score = (words + meaning) / 2
    if mine.body is not None and other.body is not None:
        parts["body"] = _overlap(mine.body, other.body)
        score = (2 * score + parts["body"]) / 3
    return Hit(id=other.id, score=min(1.0, score), parts={name: round(value, 3) for name, value in parts.items()})


def _overlap(a: _Weighed, b: _Weighed) -> float:
    """Shared terms against all terms, each by its rarity and how often both have it."""
    if len(b.codes) < len(a.codes):
        a, b = b, a
    if not len(b.codes):
        return 1.0
    at = np.minimum(np.searchsorted(b.codes, a.codes), len(b.codes) - 1)
    times = np.where(b.codes[at] == a.codes, np.minimum(a.times, b.times[at]), 0)
    shared = float((times * a.rarity).sum())
    return shared / (a.total + b.total - shared)


def _sorted(hits: list[Hit]) -> tuple[Hit, ...]:
    return tuple(sorted(hits, key=lambda hit: (-round(hit.score, 6), hit.id)))
