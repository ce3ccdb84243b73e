"""The documents of one index, in memory or mapped from a file: entries by slot with postings, vectors and words.

An edited document gets a new slot and its old one dies; slots are renumbered after many changes. For a library in a
server (see `server`) it holds the candidates of a search, with rarity counted over all documents. Words have numbers,
with the data of every word that was ever compared.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from habitus.search.packed_index import PackedIndex, WordIds, pack_entries, read_index_file, write_index_file
from habitus.search.postings import Slots
from habitus.search.texts.embedding import Embedder, Vectors, normalize_rows, widen_half_floats
from habitus.search.texts.index_entry import Codes, IndexEntry, Vector
from habitus.search.texts.words import hash_term_of_content_word

# Words whose vectors fit into the cache of a processor.
_PIECE = 128


class Vocabulary:
    """The words of a corpus by number, each with its term code and unit vector.

    Word 0 is empty, so a document without words still has one to compare. Vectors of words from a file stay mapped.
    """

    def __init__(self, embedder: Embedder, packed: PackedIndex) -> None:
        self._embedder = embedder
        self.spelled = packed.spelled
        self._numbers = {word: number for number, word in enumerate(self.spelled)}
        self.codes = packed.word_codes
        width = embedder.embed_words([]).shape[1]
        self._mapped = packed.word_vectors.reshape(len(self.codes), width)
        self._added = np.zeros((0, width), np.float16)
        if not self.spelled:
            self.assign_word_ids([""])

    def copy(self) -> Vocabulary:
        """Return a copy that can grow independently; the data of words is shared."""
        other = copy.copy(self)
        other.spelled, other._numbers = [*self.spelled], dict(self._numbers)
        return other

    def assign_word_ids(self, words: Sequence[str]) -> WordIds:
        """Return the numbers of words, adding new ones; that of the empty word if there are none."""
        known, found = self._numbers, []
        for word in words:
            number = known.get(word)
            if number is None:
                number = known[word] = len(known)
                self.spelled.append(word)
            found.append(number)
        return np.array(found or [0], dtype=np.int32)

    def compute_codes_and_vectors_of_new_words(self) -> None:
        """Compute codes and vectors of the words that were numbered since, all in one batch."""
        words = self.spelled[len(self.codes) :]
        if words:
            codes = np.array([hash_term_of_content_word(word) for word in words], dtype=np.uint32)
            vectors = normalize_rows(self._embedder.embed_words(words)).astype(np.float16)
            self.codes, self._added = np.concatenate([self.codes, codes]), np.concatenate([self._added, vectors])

    @property
    def vectors(self) -> NDArray[np.float16]:
        """The vectors of all words."""
        return np.concatenate([self._mapped, self._added])

    def compute_cosines(self, ids: WordIds, others: Vectors) -> Vectors:
        """Return the cosine of each of some distinct, sorted words (rows) with each of other unit vectors."""
        known = int(np.searchsorted(ids, len(self._mapped)))
        found = np.empty((len(ids), len(others)), dtype=np.float32)
        for table, first, start, end in (
            (self._mapped, 0, 0, known),
            (self._added, len(self._mapped), known, len(ids)),
        ):
            # In pieces that fit into the processor's cache, which halves the time.
            for at in range(start, end, _PIECE):
                piece = ids[at : min(at + _PIECE, end)] - first
                np.matmul(widen_half_floats(table.take(piece, axis=0)), others.T, out=found[at : at + len(piece)])
        return found

    def find_distinct_word_ids(self, ids: WordIds) -> tuple[WordIds, WordIds]:
        """Return the sorted distinct words, and for each given word the index of its distinct one."""
        is_there = np.zeros(len(self.spelled), dtype=bool)
        is_there[ids] = True
        different = np.flatnonzero(is_there).astype(np.int32)
        number = np.empty(len(self.spelled), dtype=np.int32)
        number[different] = np.arange(len(different), dtype=np.int32)
        return different, number[ids]


_REBUILD_AFTER = 1000
_Number = TypeVar("_Number", np.uint32, np.int32)


def _slice_values_by_slot(values: NDArray[_Number], starts: Slots, places: Slots) -> list[NDArray[_Number]]:
    # One pass over plain integers: a call for each slot takes three times as long.
    spans = zip(starts[places].tolist(), starts[places + 1].tolist(), strict=True)
    return [values[start:end] for start, end in spans]


class RemoteDocumentCounter(Protocol):
    """Documents outside memory that can be counted."""

    documents: int
    with_body: int

    def count_documents_with_each_term(self, codes: Codes) -> NDArray[np.int64]:
        """Return the number of these documents that contain each term."""
        ...


class SearchCorpus:
    """The searchable documents of one index, by slot. Change a copy of one that may be searched, and swap the two."""

    def __init__(self, embedder: Embedder, packed: PackedIndex | None = None) -> None:
        self._embedder = embedder
        # The corpus in memory and the remote documents that count for rarity.
        self._beyond: tuple[SearchCorpus, RemoteDocumentCounter] | None = None
        nothing = pack_entries([], np.zeros((0, embedder.width), dtype=np.float32), lambda words: np.zeros(0, np.int32))
        self._vocabulary = Vocabulary(embedder, packed or nothing)
        self._use_packed_index(packed or nothing)

    @classmethod
    def load_file(cls, path: Path, embedder: Embedder) -> SearchCorpus | None:
        """Return the corpus saved in a file; None if the file is missing, damaged or outdated."""
        packed = read_index_file(path, embedder)
        return None if packed is None else cls(embedder, packed)

    def save_file(self, path: Path) -> None:
        """Save all living documents to a file, rebuilt first if there were changes."""
        if self._later or self._dead_slot_count:
            self._rebuild_index(sorted(self.slots.values()), [], self.vectors[:0])
        words = self._vocabulary
        packed = replace(self._first, word_codes=words.codes, word_vectors=words.vectors)
        write_index_file(path, packed, self._embedder)

    def __len__(self) -> int:
        return len(self.slots)

    def copy(self) -> SearchCorpus:
        """Return a copy that can be changed independently."""
        other = copy.copy(self)
        other._vocabulary, other.slots, other.ids = self._vocabulary.copy(), dict(self.slots), [*self.ids]
        other._later, other._later_words = [*self._later], [*self._later_words]
        other.alive, other._room = self.alive.copy(), self._room.copy()
        other.postings = self.postings.copy()
        return other

    def with_rarity_over_remote_documents(self, beyond: RemoteDocumentCounter) -> SearchCorpus:
        """Return this corpus as part of a larger library: the same documents, with rarity over all of them."""
        other = copy.copy(self)
        other._beyond = (self, beyond)
        return other

    def add_or_replace_and_remove_entries(
        self, entries: Sequence[IndexEntry], vectors: Vectors, removed_ids: Sequence[str] = ()
    ) -> None:
        """Add these entries, replacing those with the same ids, and remove the documents in `removed_ids`."""
        for id in (*removed_ids, *(entry.id for entry in entries)):
            slot = self.slots.pop(id, None)
            if slot is not None:
                self.alive[slot] = False
                self.postings.subtract_removed_document_from_counts(self.get_term_codes_at_slot(slot))
        # A rebuild costs about as much as a thousand single changes.
        is_much = len(entries) > min(_REBUILD_AFTER, len(self.slots) // 4)
        if not self.slots or is_much or self.postings.added_count + self._dead_slot_count > _REBUILD_AFTER:
            self._rebuild_index(sorted(self.slots.values()), entries, vectors)
        else:
            for entry, vector in zip(entries, vectors, strict=True):
                self._append_entry(entry, vector)
        self._vocabulary.compute_codes_and_vectors_of_new_words()
        self._forget_counts()

    def drop_outdated_and_list_ids_to_load(self, digests: Mapping[str, str]) -> list[str]:
        """Remove documents whose digest changed; return the ids that have to be loaded."""
        self.add_or_replace_and_remove_entries(
            [], self.vectors[:0], [id for id in self.ids if digests.get(id) != self.get_digest_of_document(id)]
        )
        return [id for id in digests if id not in self.slots]

    def _rebuild_index(self, kept: Sequence[int], entries: Sequence[IndexEntry], vectors: Vectors) -> None:
        """Rebuild from the kept slots and more entries."""
        together = np.concatenate([self.vectors[kept], vectors]) if len(kept) else vectors
        every = (*(self.get_entry_at_slot(slot) for slot in kept), *entries)
        packed = pack_entries(every, together, self._vocabulary.assign_word_ids)
        self._use_packed_index(replace(packed, spelled=self._vocabulary.spelled))

    def _use_packed_index(self, packed: PackedIndex) -> None:
        self._first = packed
        self._later: list[IndexEntry] = []
        self._later_words: list[WordIds] = []
        self.ids = [*packed.ids]
        self.slots = {id: slot for slot, id in enumerate(self.ids)}
        self.alive = np.ones(len(self.ids), dtype=bool)
        self.lengths, self.says_when, self.name_words = packed.lengths, packed.says_when, packed.name_words
        self._room = packed.vectors
        self.postings = packed.postings
        # Computed when a search first needs them.
        self._built_word_counts: NDArray[np.int64] | None = None
        self._forget_counts()

    def _forget_counts(self) -> None:
        """Drop what a search counts once until the documents change."""
        self._living_slots: Slots | None = None
        self._with_body: int | None = None

    def _append_entry(self, entry: IndexEntry, vector: Vector) -> None:
        slot = len(self.ids)
        if slot == len(self._room):
            # Grown by a quarter, so that appending stays cheap on average.
            more = np.zeros((max(64, slot // 4), self._room.shape[1]), dtype=np.float32)
            self._room = np.concatenate([self._room, more])
        self._room[slot] = vector
        self.ids.append(entry.id)
        self._later.append(entry)
        self._later_words.append(self._vocabulary.assign_word_ids(entry.words))
        self.alive = np.append(self.alive, True)
        self.lengths = np.append(self.lengths, np.array([entry.lengths], dtype=np.int32), axis=0)
        self.says_when = np.append(self.says_when, entry.says_when)
        self.name_words = np.append(self.name_words, np.int32(entry.name_words))
        self.postings.add_entry(slot, entry)
        self.slots[entry.id] = slot

    def get_entry_at_slot(self, slot: int) -> IndexEntry:
        """Return the entry of a slot."""
        later = slot - len(self._first)
        return self._first.get_entry_at_slot(slot) if later < 0 else self._later[later]

    def get_digest_of_document(self, id: str) -> str:
        """Return the digest of the document with this id; empty if there is none."""
        slot = self.slots.get(id, -1)
        if slot < 0:
            return ""
        later = slot - len(self._first)
        return self._first.digests[slot] if later < 0 else self._later[later].digest

    def collect_term_codes_of_slots(self, slots: Slots) -> list[Codes]:
        """Return the term codes of each of these slots."""
        if self._later:
            return [self.get_term_codes_at_slot(slot) for slot in slots.tolist()]
        return _slice_values_by_slot(self._first.codes, self._first.code_starts, slots)

    def collect_word_ids_of_slots(self, slots: Slots) -> list[WordIds]:
        """Return the word numbers of each of these slots."""
        if self._later:
            return [self.get_word_ids_at_slot(slot) for slot in slots.tolist()]
        return _slice_values_by_slot(self._first.word_ids, self._first.word_starts, slots)

    def get_term_codes_at_slot(self, slot: int) -> Codes:
        """Return the term codes of a slot, in reading order."""
        later = slot - len(self._first)
        return self._first.get_term_codes_at_slot(slot) if later < 0 else self._later[later].codes

    def get_word_ids_at_slot(self, slot: int) -> WordIds:
        """Return the word numbers of a slot."""
        later = slot - len(self._first)
        return self._first.get_word_ids_at_slot(slot) if later < 0 else self._later_words[later]

    @property
    def vectors(self) -> Vectors:
        return self._room[: len(self.ids)]

    @property
    def _dead_slot_count(self) -> int:
        return len(self.ids) - len(self.slots)

    @property
    def living_slots(self) -> Slots:
        """The slots of all documents."""
        if self._living_slots is None:
            self._living_slots = np.flatnonzero(self.alive)
        return self._living_slots

    @property
    def _document_with_body_count(self) -> int:
        if self._with_body is None:
            self._with_body = int((self.alive & (self.lengths[:, -1] > 0)).sum())
        return self._with_body

    @property
    def share_having_body(self) -> float:
        """The share of documents with a body: none for lessons and tools, nearly all for skills."""
        with_body = self._document_with_body_count
        if self._beyond is not None:
            held, rest = self._beyond
            with_body = held._document_with_body_count + rest.with_body
        return with_body / self.document_count if self.document_count else 0.0

    @property
    def document_count(self) -> int:
        """The number of documents in the whole library."""
        if self._beyond is None:
            return len(self.slots)
        held, rest = self._beyond
        return len(held.slots) + rest.documents

    def compute_rarity(self, codes: Codes) -> NDArray[np.float32]:
        """Return the idf of each term."""
        held = self if self._beyond is None else self._beyond[0]
        return self._compute_rarity_by_counts(codes, held.postings.count_living_documents_with_each_term(codes))

    def _compute_rarity_by_counts(self, codes: Codes, counts: NDArray[np.int64]) -> NDArray[np.float32]:
        if self._beyond is not None:
            counts = counts + self._beyond[1].count_documents_with_each_term(codes)
        total = max(self.document_count, 1)
        return np.log1p((total - counts + 0.5) / (counts + 0.5)).astype(np.float32)

    def _count_documents_with_each_word(self, ids: WordIds, codes: Codes) -> NDArray[np.int64]:
        """Return the number of documents with the terms of sorted distinct words; those of the words that were there
        at the last rebuild are counted once.
        """
        counted = self._built_word_counts
        if counted is None:
            counted = self._built_word_counts = self.postings.count_documents_with_each_term_at_rebuild(
                self._vocabulary.codes
            )
        known = int(np.searchsorted(ids, len(counted)))
        counts = counted[ids[:known]]
        if known < len(ids):
            counts = np.concatenate([counts, self.postings.count_documents_with_each_term_at_rebuild(codes[known:])])
        return self.postings.adjust_counts_for_changes_since_rebuild(codes, counts)

    def find_distinct_words(self, ids: WordIds) -> tuple[WordIds, WordIds]:
        """Return the sorted distinct words, and for each given word the index of its distinct one."""
        return self._vocabulary.find_distinct_word_ids(ids)

    def get_codes_and_rarity_of_words(self, ids: WordIds) -> tuple[Codes, NDArray[np.float32]]:
        """Return the term code and idf of sorted distinct words."""
        codes, held = self._vocabulary.codes[ids], self if self._beyond is None else self._beyond[0]
        return codes, self._compute_rarity_by_counts(codes, held._count_documents_with_each_word(ids, codes))

    def compute_cosines_of_words(self, ids: WordIds, others: Vectors) -> Vectors:
        """Return the cosine of each of some sorted distinct words (rows) with each of other unit vectors."""
        return self._vocabulary.compute_cosines(ids, others)
