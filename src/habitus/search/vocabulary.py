"""The words of an index by number, and what is known of each that was ever compared."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from habitus.search.embedding import Embedder, Vectors, unit
from habitus.search.entry import Codes
from habitus.search.packed import Packed, WordIds
from habitus.search.postings import Postings, Slots
from habitus.search.words import word_code


class Vocabulary:
    """Word 0 is the empty word: a document without words still has one to compare.

    Of the first words all is known, where they come from a file; of the later ones it is made when they are first met.
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
        """One that takes words in without this one noticing. What both have met they share: it is the same."""
        other = copy.copy(self)
        other.spelled, other._numbers = [*self.spelled], dict(self._numbers)
        other._is_met = self._is_met.copy()  # a word has its place in the postings of one of them
        return other

    def number(self, words: Sequence[str]) -> WordIds:
        """The numbers of words, new ones taken in; that of the empty word where there are none."""
        known, found = self._numbers, []
        for word in words:
            number = known.get(word)
            if number is None:
                number = known[word] = len(known)
                self.spelled.append(word)
            found.append(number)
        return np.array(found or [0], dtype=np.int32)

    def look_up(self, ids: WordIds, postings: Postings) -> tuple[Codes, Vectors, Slots]:
        """Codes, unit vectors and places in the postings of different words. Those never compared before are embedded
        in one go: in a large library that is a small part of all, and a single search need not pay for the others."""
        self._meet(ids, postings)
        return _take(self._codes, ids), _take(self._vectors, ids), _take(self._places, ids)

    def place(self, postings: Postings) -> None:
        """Find the words in postings that were built anew."""
        first, later = (postings.places(codes) for codes in self._codes)
        self._places = (first, later)

    def everything(self, postings: Postings) -> tuple[Codes, Vectors, Slots]:
        return self.look_up(np.arange(len(self), dtype=np.int32), postings)

    def distinct(self, ids: WordIds) -> tuple[WordIds, WordIds]:
        """The different words among these in order, and for each of these which one it is."""
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
        return first[ids].astype(later.dtype, copy=False) if len(first) else later[ids]
    found = np.empty((len(ids), *first.shape[1:]), dtype=later.dtype)
    is_later = ids >= len(first)
    found[~is_later], found[is_later] = first[ids[~is_later]], later[ids[is_later] - len(first)]
    return found
