"""Postings: which documents contain a term and how strongly, by BM25F over weighted fields, in two sorted arrays.

The strength depends on the document alone (lengths are compared with fixed means), so adding one document never changes
another, and the order of additions never changes a result.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from habitus.search.calibration import (
    FIELD_LENGTHS,
    FIELD_NORMS,
    FIELD_WEIGHTS,
    SATURATION,
    TEXT_LENGTH,
    TEXT_NORM,
    TEXT_SATURATION,
)
from habitus.search.texts.index_entry import FIELDS, Codes, IndexEntry

Slots = NDArray[np.int64]
Strengths = NDArray[np.float32]
# Plain BM25 in 255 steps, a quarter of the memory of floats.
TextSteps = NDArray[np.uint8]

_WEIGHTS = np.array([FIELD_WEIGHTS[name] for name in FIELDS], dtype=np.float32)
_NORMS = np.array([FIELD_NORMS[name] for name in FIELDS], dtype=np.float32)
_MEANS = np.array([FIELD_LENGTHS[name] for name in FIELDS], dtype=np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class SortedTermPostings:
    """Terms with the slots that contain them: one row per pair, sorted by term and slot."""

    terms: Codes
    slots: NDArray[np.int32]
    # By BM25F, and by plain BM25 over the whole text.
    strengths: Strengths
    text_steps: TextSteps


@dataclass(frozen=True, kw_only=True, slots=True)
class PostingsOfTerms:
    """The slots that contain each of some terms, term by term, with both strengths; `sizes` are the rows per term."""

    sizes: list[int]
    slots: Slots
    strengths: Strengths
    text_steps: TextSteps


class Postings:
    """Built once from many entries; later entries are kept separately until the owner rebuilds."""

    def __init__(
        self, terms: Codes, starts: Slots, slots: NDArray[np.int32], strengths: Strengths, text_steps: TextSteps
    ) -> None:
        """Take every term once, in order, and where its slots and strengths begin."""
        self._terms, self._starts, self._slots = terms, starts, slots
        self._strengths, self._text_steps = strengths, text_steps
        # Tuples, so that copies share them.
        self._added: dict[int, tuple[tuple[int, float, int], ...]] = {}
        self._removed: dict[int, int] = {}
        self.added_count = 0

    def copy(self) -> Postings:
        """Return a copy that can grow independently; the built arrays are shared."""
        other = copy.copy(self)
        other._added = dict(self._added)
        other._removed = dict(self._removed)
        return other

    def add_entry(self, slot: int, entry: IndexEntry) -> None:
        found = compute_term_strengths([entry], first=slot)
        rows = zip(found.terms.tolist(), found.strengths.tolist(), found.text_steps.tolist(), strict=True)
        for term, strength, step in rows:
            self._added[term] = (*self._added.get(term, ()), (slot, strength, step))
        self.added_count += 1

    def subtract_removed_document_from_counts(self, codes: Codes) -> None:
        """Count a document with these terms as removed."""
        # Its slot stays in the arrays until the next rebuild; only the counts change.
        for term in np.unique(codes).tolist():
            self._removed[term] = self._removed.get(term, 0) + 1

    def find_postings_of_terms(self, terms: Codes, among: Slots | None = None) -> PostingsOfTerms:
        """Return the slots that contain each term, dead ones included, and both strengths in each; `among` restricts
        long lists.
        """
        parts = [
            self._restrict_row_span_to_slots(start, end, among) for start, end in self._find_row_spans_of_terms(terms)
        ]
        sizes = [part.stop - part.start if isinstance(part, slice) else len(part) for part in parts]
        columns = [[column[part] for part in parts] for column in (self._slots, self._strengths, self._text_steps)]
        for place, term in enumerate(terms.tolist() if self._added else ()):
            extra = self._added.get(term, ())
            sizes[place] += len(extra)
            for column, values in zip(columns, zip(*extra, strict=True), strict=False):
                column[place] = np.concatenate([column[place], np.array(values, dtype=column[place].dtype)])
        slots, strengths, text_steps = columns
        return PostingsOfTerms(
            sizes=sizes,
            slots=np.concatenate([_NO_ROWS, *slots]).astype(np.int64),
            strengths=np.concatenate([_NO_STRENGTHS, *strengths]),
            text_steps=np.concatenate([_NO_STEPS, *text_steps]),
        )

    def _find_row_spans_of_terms(self, terms: Codes) -> list[tuple[int, int]]:
        """Return where the rows of each term begin and end; nowhere for an unknown one."""
        if not len(self._terms):
            return [(0, 0)] * len(terms)
        at = np.minimum(np.searchsorted(self._terms, terms), len(self._terms) - 1)
        ends = np.where(self._terms[at] == terms, self._starts[at + 1], self._starts[at])
        return list(zip(self._starts[at].tolist(), ends.tolist(), strict=True))

    def _restrict_row_span_to_slots(self, start: int, end: int, among: Slots | None) -> slice | Slots:
        if among is None or 4 * len(among) > end - start:
            return slice(start, end)
        # Both are sorted, so a binary search is enough, which does not touch the other rows.
        slots = self._slots[start:end]
        at = np.minimum(np.searchsorted(slots, among.astype(np.int32)), len(slots) - 1)
        rows: Slots = start + at[slots[at] == among]
        return rows

    def count_living_documents_with_each_term(self, terms: Codes) -> NDArray[np.int64]:
        """Return the number of living documents with each term."""
        return self.adjust_counts_for_changes_since_rebuild(
            terms, self.count_documents_with_each_term_at_rebuild(terms)
        )

    def count_documents_with_each_term_at_rebuild(self, terms: Codes) -> NDArray[np.int64]:
        """Return the number of documents with each term as of the last rebuild."""
        if not len(self._terms):
            return np.zeros(len(terms), dtype=np.int64)
        at = np.minimum(np.searchsorted(self._terms, terms), len(self._terms) - 1)
        return np.where(self._terms[at] == terms, self._starts[at + 1] - self._starts[at], 0)

    def adjust_counts_for_changes_since_rebuild(self, terms: Codes, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add what was added and removed since the last rebuild to the counts of that time."""
        if self._added:
            counts = counts + np.array([len(self._added.get(term, ())) for term in terms.tolist()], dtype=np.int64)
        if self._removed:
            counts = counts - np.array([self._removed.get(term, 0) for term in terms.tolist()], dtype=np.int64)
        return counts


def compute_term_strengths(entries: Sequence[IndexEntry], *, first: int) -> SortedTermPostings:
    """Return how strongly each entry has each of its terms; the first entry gets slot `first`."""
    if not entries:
        return SortedTermPostings(terms=_NO_TERMS, slots=_NO_ROWS, strengths=_NO_STRENGTHS, text_steps=_NO_STEPS)
    lengths = np.array([entry.lengths for entry in entries], dtype=np.int64)
    codes = np.concatenate([entry.codes for entry in entries]).astype(np.uint64)
    field_of = np.repeat(np.tile(np.arange(len(FIELDS)), len(entries)), lengths.ravel()).astype(np.uint64)
    row_of = np.repeat(np.arange(len(entries)), lengths.sum(1)).astype(np.uint64)
    # One sort over packed (term, slot, field) numbers replaces a loop over the documents.
    packed = np.sort((codes << np.uint64(32)) | (row_of << np.uint64(3)) | field_of)
    firsts = _find_run_starts(packed)
    counts = np.diff(np.append(firsts, len(packed)))
    kinds = packed[firsts]
    fields = (kinds & np.uint64(7)).astype(np.int64)
    rows = ((kinds >> np.uint64(3)) & np.uint64(0x1FFFFFFF)).astype(np.int64)
    norms = 1 - _NORMS + _NORMS * lengths.astype(np.float32) / _MEANS
    weighted = counts * _WEIGHTS[fields] / norms[rows, fields]
    pairs = kinds >> np.uint64(3)
    starts = _find_run_starts(pairs)
    if not len(starts):
        return compute_term_strengths([], first=first)
    sums, times = np.add.reduceat(weighted, starts), np.add.reduceat(counts, starts)
    dampening = TEXT_SATURATION * (1 - TEXT_NORM + TEXT_NORM * lengths.sum(1) / TEXT_LENGTH)
    rows = rows[starts]
    return SortedTermPostings(
        terms=(pairs[starts] >> np.uint64(29)).astype(np.uint32),
        slots=(rows + first).astype(np.int32),
        strengths=(sums / (SATURATION + sums)).astype(np.float32),
        text_steps=np.round(255 * times / (times + dampening[rows])).astype(np.uint8),
    )


def merge_term_strengths(parts: Sequence[SortedTermPostings], sizes: Sequence[int]) -> SortedTermPostings:
    """Merge the results of `compute_term_strengths` for batches of these sizes, each counted from slot 0."""
    firsts = np.cumsum([0, *sizes], dtype=np.int32)
    terms = np.concatenate([_NO_TERMS, *(part.terms for part in parts)])
    slots = np.concatenate([_NO_ROWS, *(part.slots + first for part, first in zip(parts, firsts, strict=False))])
    # Stable: the batches are sorted runs, and later ones have higher slots.
    order = np.argsort(terms, kind="stable")
    return SortedTermPostings(
        terms=terms[order],
        slots=slots[order],
        strengths=np.concatenate([_NO_STRENGTHS, *(part.strengths for part in parts)])[order],
        text_steps=np.concatenate([_NO_STEPS, *(part.text_steps for part in parts)])[order],
    )


def _find_run_starts(ordered: NDArray[np.unsignedinteger[Any]]) -> Slots:
    """Return where each run of equal values begins."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: len(ordered)]


_NO_TERMS = np.zeros(0, np.uint32)
_NO_ROWS = np.zeros(0, np.int32)
_NO_STRENGTHS = np.zeros(0, np.float32)
_NO_STEPS = np.zeros(0, np.uint8)
