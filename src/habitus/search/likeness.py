"""How alike two documents are, for lint, deduplication and reinforcement: 1.0 is the same text, 0 nothing shared."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
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
    slots = [slot for slot in _near(corpus, entry, vector) if corpus.ids[slot] != entry.id]
    if least and corpus.vectors.shape[1]:
        slots = [slot for slot in slots if float(corpus.vectors[slot] @ vector) >= least]
    mine, *others = _profiles(
        corpus, [entry, *(corpus.entry(slot) for slot in slots)], [vector, *corpus.vectors[slots]]
    )
    return _sort_hits([_compare(mine, other) for other in others])[:k]


def neighbours(corpus: Corpus, least: float = 0.0) -> dict[str, tuple[Hit, ...]]:
    """For every document the few that are most like it, by at least so much, among those with which it shares its
    rarest terms.

    Work grows with the number of documents, not of pairs: each one meets a handful of others.
    """
    slots = sorted(corpus.slots.values())
    found = _profiles(corpus, [corpus.entry(slot) for slot in slots], corpus.vectors[slots])
    profiles = dict(zip(slots, found, strict=True))
    return {id: _find_like(corpus, profiles, slot, least) for id, slot in sorted(corpus.slots.items())}


def _find_like(corpus: Corpus, profiles: Mapping[int, _Profile], slot: int, least: float) -> tuple[Hit, ...]:
    mine = profiles[slot]
    others, shared = _sharing(corpus, slot, mine)
    if corpus.vectors.shape[1]:
        shared = corpus.vectors[others] @ mine.vector
        others, shared = others[shared >= _SAME_MATTER], shared[shared >= _SAME_MATTER]
    near = others[highest(shared, _NEAREST)].tolist()
    met = [_compare(mine, profiles[other]) for other in near if _words_allow(mine, profiles[other], least)]
    return _sort_hits([hit for hit in met if hit.score >= least])


def _sharing(corpus: Corpus, slot: int, mine: _Profile) -> tuple[Slots, NDArray[np.float32]]:
    """The other documents that have the rarest terms of this one's summary, and the worth of what they share."""
    counts = mine.summary.counts
    rarest = np.argsort(np.where(counts > 1, counts, np.iinfo(np.int64).max), kind="stable")[:_RAREST]
    shared = np.zeros(len(corpus.ids), dtype=np.float32)
    room = _SHARING
    for place in rarest[counts[rarest] > 1].tolist():
        slots = corpus.postings.of(int(mine.summary.codes[place]))[0][:room]
        shared[slots] += mine.summary.rarity[place]
        room -= len(slots)
    shared[slot] = 0.0
    others = np.flatnonzero(shared)
    others = others[corpus.alive[others]]
    return others, shared[others]


def _near(corpus: Corpus, entry: IndexEntry, vector: Vector) -> list[int]:
    """The slots worth comparing: nearest by meaning, and those that share the rarest terms."""
    meaning = np.where(corpus.alive, corpus.vectors @ vector, -1.0)
    codes = np.unique(entry.summary)
    rarity = corpus.rarity(codes)
    shared = np.zeros(len(corpus.ids), dtype=np.float32)
    for number, worth in zip(codes.tolist(), rarity.tolist(), strict=True):
        shared[corpus.postings.of(number)[0]] += worth
    shared[~corpus.alive] = -1.0
    chosen: set[int] = set()
    for scores in (meaning, shared):
        chosen.update(slot for slot in highest(scores, _LOOK_AT).tolist() if corpus.alive[slot])
    return sorted(chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weighed:
    """The different terms of a text in order, how often each is there, in how many documents, and what it is worth."""

    codes: Codes
    times: NDArray[np.int64]
    counts: NDArray[np.int64]
    rarity: NDArray[np.float32]
    total: float


def _weigh_all(corpus: Corpus, texts: Sequence[Codes]) -> list[_Weighed]:
    """The terms of many texts, sorted and looked up in one go."""
    sizes = [len(codes) for codes in texts]
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), sizes)
    packed, times = np.unique((owners << np.uint64(32)) | np.concatenate([*texts, _NONE]), return_counts=True)
    codes = (packed & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    counts, rarity = corpus.postings.counts(codes), corpus.rarity(codes) + np.float32(0.1)
    ends = np.searchsorted(packed >> np.uint64(32), np.arange(len(texts), dtype=np.uint64), side="right").tolist()
    return [
        _Weighed(
            codes=codes[start:end],
            times=times[start:end],
            counts=counts[start:end],
            rarity=rarity[start:end],
            total=float((times[start:end] * rarity[start:end]).sum()),
        )
        for start, end in zip([0, *ends], ends, strict=False)
    ]


class _Profile:
    """What is compared of a document; its terms are looked up once, however many others it meets."""

    def __init__(self, corpus: Corpus, entry: IndexEntry, vector: Vector, summary: _Weighed) -> None:
        self._corpus, self._entry = corpus, entry
        self.id, self.vector, self.summary = entry.id, vector, summary

    @functools.cached_property
    def body(self) -> _Weighed | None:
        """Looked up when it is first compared: most are not."""
        has_body = self._entry.lengths[-1] >= _SHORTEST_BODY
        return _weigh_all(self._corpus, [self._entry.body])[0] if has_body else None


def _profiles(corpus: Corpus, entries: Sequence[IndexEntry], vectors: Iterable[Vector]) -> list[_Profile]:
    summaries = _weigh_all(corpus, [entry.summary for entry in entries])
    return [_Profile(corpus, *parts) for parts in zip(entries, vectors, summaries, strict=True)]


def _words_allow(mine: _Profile, other: _Profile, least: float) -> bool:
    """Whether two may be so much alike, whatever their bodies are."""
    words, meaning = _said_alike(mine, other)
    return words + meaning + 1 >= 3 * least


def _compare(mine: _Profile, other: _Profile) -> Hit:
    words, meaning = _said_alike(mine, other)
    parts = {"words": words, "meaning": meaning}
    score = (words + meaning) / 2
    if mine.body is not None and other.body is not None:
        parts["body"] = _overlap(mine.body, other.body)
        score = (2 * score + parts["body"]) / 3
    return Hit(id=other.id, score=min(1.0, score), parts={name: round(value, 3) for name, value in parts.items()})


def _said_alike(mine: _Profile, other: _Profile) -> tuple[float, float]:
    """How alike the summaries are, in words and in meaning."""
    words = _overlap(mine.summary, other.summary)
    return words, float(np.clip(other.vector @ mine.vector, 0.0, 1.0)) if len(mine.vector) else words


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


def _sort_hits(hits: list[Hit]) -> tuple[Hit, ...]:
    return tuple(sorted(hits, key=lambda hit: (-round(hit.score, 6), hit.id)))


_NONE: Codes = np.zeros(0, dtype=np.uint32)
