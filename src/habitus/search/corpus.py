"""The documents of one index in memory: entries by slot, their postings, vectors and words.

An edited document gets a new slot and its old one dies; the slots are counted anew when many have come or gone.
Of a library that stays in a server (see `server`) it holds those that are worth a look; rarity is counted over all.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from habitus.search.embedding import Embedder, Vectors, unit
from habitus.search.entry import Codes, IndexEntry, Vector
from habitus.search.postings import Postings
from habitus.search.words import word_code

_REBUILD_AFTER = 1000

WordIds = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """Of some words: term codes, unit vectors and idf."""

    codes: Codes
    vectors: Vectors
    rarity: NDArray[np.float32]


class Beyond(Protocol):
    """Documents that are not in memory, as far as they can be counted."""

    documents: int
    with_body: int

    def counts(self, codes: Codes) -> NDArray[np.int64]:
        """In how many of them each term is."""
        ...


class Corpus:
    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._beyond: tuple[Corpus, Beyond] | None = None  # all that counts: what was in memory before, and the rest
        # Word 0 is the empty word: a document without words still has one to compare.
        self._vocabulary: dict[str, int] = {"": 0}
        # Of each word of the vocabulary; made when the word is first compared.
        self._spelled: list[str] = []
        self._word_codes = np.zeros(0, dtype=np.uint32)
        self._word_vectors = embedder.words([])
        self._word_places = np.zeros(0, dtype=np.int64)
        self._is_met = np.zeros(0, dtype=bool)
        self._fill([], np.zeros((0, embedder.width), dtype=np.float32))

    def __len__(self) -> int:
        return len(self.slots)

    def copy(self) -> Corpus:
        """One that can be changed without this one noticing. What both have met of words they share: it is the same."""
        other = copy.copy(self)
        other._vocabulary, other.slots = dict(self._vocabulary), dict(self.slots)
        other.entries, other.words = [*self.entries], [*self.words]
        other.alive, other._room = self.alive.copy(), self._room.copy()
        other.postings = self.postings.copy()
        return other

    def beside(self, beyond: Beyond) -> Corpus:
        """This one as a part of a larger library: the same documents, and what is rare is rare among all of them."""
        other = copy.copy(self)
        other._beyond = (self, beyond)
        return other

    def replace(self, entries: Sequence[IndexEntry], vectors: Vectors, gone: Sequence[str] = ()) -> None:
        """Take these entries in, each instead of the one with its id, and let the `gone` go."""
        for id in (*gone, *(entry.id for entry in entries)):
            slot = self.slots.pop(id, None)
            if slot is not None:
                self.alive[slot] = False
                self.postings.remove(self.entries[slot])
                self._with_body -= self.entries[slot].lengths[-1] > 0
        is_much = len(entries) > min(_REBUILD_AFTER, len(self.slots) // 4)
        if not self.slots or is_much or self.postings.added + self._dead > _REBUILD_AFTER:
            kept = sorted(self.slots.values())
            self._fill(
                [*(self.entries[slot] for slot in kept), *entries], np.concatenate([self.vectors[kept], vectors])
            )
            return
        for entry, vector in zip(entries, vectors, strict=True):
            self._append(entry, vector)

    def _fill(self, entries: Sequence[IndexEntry], vectors: Vectors) -> None:
        self.entries = list(entries)
        self.slots = {entry.id: slot for slot, entry in enumerate(entries)}
        self.alive = np.ones(len(entries), dtype=bool)
        self._room = np.ascontiguousarray(vectors, dtype=np.float32)
        self.postings = Postings(entries)
        self._word_places = self.postings.places(self._word_codes)
        self.words = [self._ids_of(entry.words) for entry in entries]
        self._with_body = sum(entry.lengths[-1] > 0 for entry in entries)

    def _append(self, entry: IndexEntry, vector: Vector) -> None:
        slot = len(self.entries)
        if slot == len(self._room):
            more = np.zeros((max(64, slot // 4), self._room.shape[1]), dtype=np.float32)
            self._room = np.concatenate([self._room, more])
        self._room[slot] = vector
        self.entries.append(entry)
        self.alive = np.append(self.alive, True)
        self.words.append(self._ids_of(entry.words))
        self.postings.add(slot, entry)
        self.slots[entry.id] = slot
        self._with_body += entry.lengths[-1] > 0

    @property
    def vectors(self) -> Vectors:
        return self._room[: len(self.entries)]

    @property
    def _dead(self) -> int:
        return len(self.entries) - len(self.slots)

    @property
    def share_with_body(self) -> float:
        """How many of the documents have a body: none for lessons and tools, nearly all for skills."""
        with_body = self._with_body
        if self._beyond is not None:
            held, rest = self._beyond
            with_body = held._with_body + rest.with_body
        return with_body / self.documents if self.documents else 0.0

    @property
    def documents(self) -> int:
        """How many there are in the whole library."""
        if self._beyond is None:
            return len(self.slots)
        held, rest = self._beyond
        return len(held.slots) + rest.documents

    def rarity(self, codes: Codes) -> NDArray[np.float32]:
        """The idf of each term."""
        return self._rarity(codes, None)

    def _rarity(self, codes: Codes, places: NDArray[np.int64] | None) -> NDArray[np.float32]:
        if self._beyond is None:
            counts = self.postings.counts(codes, places)
        else:
            held, rest = self._beyond
            counts = held.postings.counts(codes) + rest.counts(codes)
        total = max(self.documents, 1)
        return np.log1p((total - counts + 0.5) / (counts + 0.5)).astype(np.float32)

    def words_of(self, ids: WordIds) -> Words:
        """What is known of different words. Those never compared before are embedded and looked up in one go: in a
        large library that is a small part of all, and a single search need not pay for the others."""
        self._meet(ids)
        codes = self._word_codes[ids]
        rarity = self._rarity(codes, self._word_places[ids])
        return Words(codes=codes, vectors=self._word_vectors[ids], rarity=rarity)

    def _meet(self, ids: WordIds) -> None:
        more = len(self._vocabulary) - len(self._is_met)
        if more:
            self._spelled = list(self._vocabulary)
            self._is_met = np.concatenate([self._is_met, np.zeros(more, dtype=bool)])
            self._word_codes = np.concatenate([self._word_codes, np.zeros(more, dtype=np.uint32)])
            self._word_places = np.concatenate([self._word_places, np.zeros(more, dtype=np.int64)])
            blank = np.zeros((more, self._word_vectors.shape[1]), dtype=np.float32)
            self._word_vectors = np.concatenate([self._word_vectors, blank])
        new = ids[~self._is_met[ids]]
        if len(new):
            words = [self._spelled[id] for id in new.tolist()]
            codes = np.array([word_code(word) for word in words], dtype=np.uint32)
            self._word_codes[new] = codes
            self._word_vectors[new] = unit(self._embedder.words(words))
            self._word_places[new] = self.postings.places(codes)
            self._is_met[new] = True

    def distinct(self, ids: WordIds) -> tuple[WordIds, WordIds]:
        """The different words among these in order, and for each of these which one it is."""
        is_there = np.zeros(len(self._vocabulary), dtype=bool)
        is_there[ids] = True
        different = np.flatnonzero(is_there).astype(np.int32)
        number = np.empty(len(self._vocabulary), dtype=np.int32)
        number[different] = np.arange(len(different), dtype=np.int32)
        return different, number[ids]

    def _ids_of(self, words: Sequence[str]) -> WordIds:
        known = self._vocabulary
        return np.array([known.setdefault(word, len(known)) for word in words] or [0], dtype=np.int32)
