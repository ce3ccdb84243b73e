"""The documents of one index, in memory or mapped from a file: entries by slot with postings, vectors and words.

An edited document gets a new slot and its old one dies; slots are renumbered after many changes. For a library in a
server (see `server`) it holds the candidates of a search, with rarity counted over all documents. Words have numbers,
with the data of every word that was ever compared.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from habitus.search.packed_index import Packed, WordIds, pack, read_packed, write_packed
from habitus.search.postings import Postings, Slots
from habitus.search.texts.embedding import Embedder, Vectors, unit
from habitus.search.texts.index_entry import Codes, IndexEntry, Vector
from habitus.search.texts.words import word_code


class Vocabulary:
    """The words of a corpus by number. Word 0 is empty, so a document without words still has one to compare.

    Words from a file are known completely; the data of later ones is computed when they are first compared.
    """

    def __init__(self, embedder: Embedder, packed: Packed) -> None:
        self._embedder = embedder
        self.spelled = packed.spelled or [""]
        self._numbers = {word: number for number, word in enumerate(self.spelled)}
        width = embedder.words([]).shape[1]
        known = len(packed.word_codes)
        self._codes = (packed.word_codes, np.zeros(0, np.uint32))
        self._vectors = (packed.word_vectors.reshape(known, width), np.zeros((0, width), np.float32))
        self._places = (packed.word_places, np.zeros(0, np.int64))
        self._is_met = np.zeros(0, bool)

    def __len__(self) -> int:
        return len(self.spelled)

    def copy(self) -> Vocabulary:
        """Return a copy that can grow independently; data of known words is shared."""
        other = copy.copy(self)
        other.spelled, other._numbers = [*self.spelled], dict(self._numbers)
        # A word's position refers to the postings of one copy only.
        other._is_met = self._is_met.copy()
        return other

    def number(self, words: Sequence[str]) -> WordIds:
        """Return the numbers of words, adding new ones; that of the empty word if there are none."""
        known, found = self._numbers, []
        for word in words:
            number = known.get(word)
            if number is None:
                number = known[word] = len(known)
                self.spelled.append(word)
            found.append(number)
        return np.array(found or [0], dtype=np.int32)

    def look_up(self, ids: WordIds, postings: Postings) -> tuple[Codes, Vectors, Slots]:
        """Return the codes, unit vectors and posting positions of distinct words."""
        # New words are embedded here in one batch: a search meets few of a large library's words, and need not pay for
        # the rest.
        self._meet(ids, postings)
        return _take(self._codes, ids), _take(self._vectors, ids), _take(self._places, ids)

    def place(self, postings: Postings) -> None:
        """Find the positions of all words in rebuilt postings."""
        first, later = (postings.places(codes) for codes in self._codes)
        self._places = (first, later)

    def everything(self, postings: Postings) -> tuple[Codes, Vectors, Slots]:
        return self.look_up(np.arange(len(self), dtype=np.int32), postings)

    def distinct(self, ids: WordIds) -> tuple[WordIds, WordIds]:
        """Return the sorted distinct words, and for each given word the index of its distinct one."""
        is_there = np.zeros(len(self), dtype=bool)
        is_there[ids] = True
        different = np.flatnonzero(is_there).astype(np.int32)
        number = np.empty(len(self), dtype=np.int32)
        number[different] = np.arange(len(different), dtype=np.int32)
        return different, number[ids]

    def _meet(self, ids: WordIds, postings: Postings) -> None:
        first = len(self._codes[0])
        more = len(self) - first - len(self._is_met)
        if more:
            self._is_met = _lengthen(self._is_met, more)
            self._codes = (self._codes[0], _lengthen(self._codes[1], more))
            self._vectors = (self._vectors[0], _lengthen(self._vectors[1], more))
            self._places = (self._places[0], _lengthen(self._places[1], more))
        later = ids[ids >= first] - first
        new = later[~self._is_met[later]]
        if len(new):
            words = [self.spelled[number] for number in (new + first).tolist()]
            codes = np.array([word_code(word) for word in words], dtype=np.uint32)
            self._codes[1][new] = codes
            self._vectors[1][new] = unit(self._embedder.words(words))
            self._places[1][new] = postings.places(codes)
            self._is_met[new] = True


def _lengthen(array: NDArray[Any], more: int) -> NDArray[Any]:
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), dtype=array.dtype)])


def _take(parts: tuple[NDArray[Any], NDArray[Any]], ids: WordIds) -> NDArray[Any]:
    first, later = parts
    if not len(later) or not len(first):
        return first.take(ids, axis=0).astype(later.dtype, copy=False) if len(first) else later.take(ids, axis=0)
    found = np.empty((len(ids), *first.shape[1:]), dtype=later.dtype)
    is_later = ids >= len(first)
    found[~is_later], found[is_later] = first[ids[~is_later]], later[ids[is_later] - len(first)]
    return found


_REBUILD_AFTER = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Words:
    """Term codes, unit vectors and idf of some words."""

    codes: Codes
    vectors: Vectors
    rarity: NDArray[np.float32]


class Beyond(Protocol):
    """Documents outside memory that can be counted."""

    documents: int
    with_body: int

    def counts(self, codes: Codes) -> NDArray[np.int64]:
        """Return the number of these documents that contain each term."""
        ...


class Corpus:
    """The searchable documents of one index, by slot."""

    def __init__(self, embedder: Embedder, packed: Packed | None = None) -> None:
        self._embedder = embedder
        # The corpus in memory and the remote documents that count for rarity.
        self._beyond: tuple[Corpus, Beyond] | None = None
        nothing = pack([], np.zeros((0, embedder.width), dtype=np.float32), lambda words: np.zeros(0, np.int32))
        self._vocabulary = Vocabulary(embedder, packed or nothing)
        self._take(packed or nothing)

    @classmethod
    def in_file(cls, path: Path, embedder: Embedder) -> Corpus | None:
        """Return the corpus saved in a file; None if the file is missing, damaged or outdated."""
        packed = read_packed(path, embedder)
        return None if packed is None else cls(embedder, packed)

    def keep(self, path: Path) -> None:
        """Save all living documents to a file, rebuilt first if there were changes."""
        if self._later or self._dead:
            self._fill(sorted(self.slots.values()), [], self.vectors[:0])
        codes, vectors, places = self._vocabulary.everything(self.postings)
        halves = vectors.astype(np.float16)
        packed = replace(self._first, word_codes=codes, word_vectors=halves, word_places=places)
        write_packed(path, packed, self._embedder)

    def __len__(self) -> int:
        return len(self.slots)

    def copy(self) -> Corpus:
        """Return a copy that can be changed independently."""
        other = copy.copy(self)
        other._vocabulary, other.slots, other.ids = self._vocabulary.copy(), dict(self.slots), [*self.ids]
        other._later, other._later_words = [*self._later], [*self._later_words]
        other.alive, other._room = self.alive.copy(), self._room.copy()
        other.postings = self.postings.copy()
        return other

    def beside(self, beyond: Beyond) -> Corpus:
        """Return this corpus as part of a larger library: the same documents, with rarity over all of them."""
        other = copy.copy(self)
        other._beyond = (self, beyond)
        return other

    def replace(self, entries: Sequence[IndexEntry], vectors: Vectors, gone: Sequence[str] = ()) -> None:
        """Add these entries, replacing those with the same ids, and remove the documents in `removed_ids`."""
        for id in (*gone, *(entry.id for entry in entries)):
            slot = self.slots.pop(id, None)
            if slot is not None:
                self.alive[slot] = False
                self.postings.remove(self.codes(slot))
        # A rebuild costs about as much as a thousand single changes.
        is_much = len(entries) > min(_REBUILD_AFTER, len(self.slots) // 4)
        if not self.slots or is_much or self.postings.added + self._dead > _REBUILD_AFTER:
            self._fill(sorted(self.slots.values()), entries, vectors)
            return
        for entry, vector in zip(entries, vectors, strict=True):
            self._append(entry, vector)

    def follow(self, digests: Mapping[str, str]) -> list[str]:
        """Remove documents whose digest changed; return the ids that have to be loaded."""
        self.replace([], self.vectors[:0], [id for id in self.ids if digests.get(id) != self.digest(id)])
        return [id for id in digests if id not in self.slots]

    def _fill(self, kept: Sequence[int], entries: Sequence[IndexEntry], vectors: Vectors) -> None:
        """Rebuild from the kept slots and more entries."""
        together = np.concatenate([self.vectors[kept], vectors]) if len(kept) else vectors
        every = (*(self.entry(slot) for slot in kept), *entries)
        packed = pack(every, together, self._vocabulary.number)
        self._take(replace(packed, spelled=self._vocabulary.spelled))
        self._vocabulary.place(self.postings)

    def _take(self, packed: Packed) -> None:
        self._first = packed
        self._later: list[IndexEntry] = []
        self._later_words: list[WordIds] = []
        self.ids = [*packed.ids]
        self.slots = {id: slot for slot, id in enumerate(self.ids)}
        self.alive = np.ones(len(self.ids), dtype=bool)
        self.lengths, self.says_when, self.name_words = packed.lengths, packed.says_when, packed.name_words
        self._room = packed.vectors
        self.postings = packed.postings

    def _append(self, entry: IndexEntry, vector: Vector) -> None:
        slot = len(self.ids)
        if slot == len(self._room):
            # Grown by a quarter, so that appending stays cheap on average.
            more = np.zeros((max(64, slot // 4), self._room.shape[1]), dtype=np.float32)
            self._room = np.concatenate([self._room, more])
        self._room[slot] = vector
        self.ids.append(entry.id)
        self._later.append(entry)
        self._later_words.append(self._vocabulary.number(entry.words))
        self.alive = np.append(self.alive, True)
        self.lengths = np.append(self.lengths, np.array([entry.lengths], dtype=np.int32), axis=0)
        self.says_when = np.append(self.says_when, entry.says_when)
        self.name_words = np.append(self.name_words, np.int32(entry.name_words))
        self.postings.add(slot, entry)
        self.slots[entry.id] = slot

    def entry(self, slot: int) -> IndexEntry:
        """Return the entry of a slot."""
        later = slot - len(self._first)
        return self._first.entry(slot) if later < 0 else self._later[later]

    def digest(self, id: str) -> str:
        """Return the digest of the document with this id; empty if there is none."""
        slot = self.slots.get(id, -1)
        if slot < 0:
            return ""
        later = slot - len(self._first)
        return self._first.digests[slot] if later < 0 else self._later[later].digest

    def codes(self, slot: int) -> Codes:
        """Return the term codes of a slot, in reading order."""
        later = slot - len(self._first)
        return self._first.codes_of(slot) if later < 0 else self._later[later].codes

    def words(self, slot: int) -> WordIds:
        """Return the word numbers of a slot."""
        later = slot - len(self._first)
        return self._first.words_of(slot) if later < 0 else self._later_words[later]

    @property
    def vectors(self) -> Vectors:
        return self._room[: len(self.ids)]

    @property
    def _dead(self) -> int:
        return len(self.ids) - len(self.slots)

    @property
    def _with_body(self) -> int:
        return int((self.alive & (self.lengths[:, -1] > 0)).sum())

    @property
    def share_with_body(self) -> float:
        """The share of documents with a body: none for lessons and tools, nearly all for skills."""
        with_body = self._with_body
        if self._beyond is not None:
            held, rest = self._beyond
            with_body = held._with_body + rest.with_body
        return with_body / self.documents if self.documents else 0.0

    @property
    def documents(self) -> int:
        """The number of documents in the whole library."""
        if self._beyond is None:
            return len(self.slots)
        held, rest = self._beyond
        return len(held.slots) + rest.documents

    def rarity(self, codes: Codes) -> NDArray[np.float32]:
        """Return the idf of each term."""
        return self._rarity(codes, None)

    def _rarity(self, codes: Codes, places: Slots | None) -> NDArray[np.float32]:
        if self._beyond is None:
            counts = self.postings.counts(codes, places)
        else:
            held, rest = self._beyond
            counts = held.postings.counts(codes) + rest.counts(codes)
        total = max(self.documents, 1)
        return np.log1p((total - counts + 0.5) / (counts + 0.5)).astype(np.float32)

    def distinct_words(self, slots: Sequence[WordIds]) -> tuple[WordIds, WordIds]:
        """Return the sorted distinct words of some documents, and for each of their words the index of its distinct
        one.
        """
        return self._vocabulary.distinct(np.concatenate(slots))

    def words_of(self, ids: WordIds) -> Words:
        """Return the codes, vectors and idf of distinct words."""
        codes, vectors, places = self._vocabulary.look_up(ids, self.postings)
        return Words(codes=codes, vectors=vectors, rarity=self._rarity(codes, places))
