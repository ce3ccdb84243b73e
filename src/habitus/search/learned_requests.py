"""Learning from use: remembers requests that led to a document, and compares new requests with them.

An item is compared by meaning (a shrunken discriminant: its mean request against the mean of all, in units of how
requests scatter), by words (a naive Bayes log-ratio) and by its nearest request. Each is measured against what all
requests have in common: an item without uses scores zero and is neither helped nor hurt. Damaged rows of the stored
index are reported, never trusted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from habitus.search.texts.embedding import Vectors
from habitus.search.texts.index_entry import IndexEntry, Vector, compute_normalized_text_digest, unpack_entry
from habitus.search.texts.words import extract_terms, hash_term

MAX_REQUESTS_PER_ITEM = 32
HALF_LIFE_DAYS = 90.0
MAX_WEIGHT = 3.0
USE_SIGNAL_NAMES = ("used_meaning", "used_words", "used_before")

_SHRINK_MEAN = 3.0
_SHRINK_SCATTER = 0.3
_SHRINK_WORDS = 30.0
_FAMILIARITY_HALFWAY = 5.0
_SCATTER_SAMPLE = 4096
_DAY = 86_400.0
# Below this a sum is zero but for rounding.
_NOTHING = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnedRequest:
    """A remembered request of an item; `at` is in seconds."""

    item: str
    text: str
    weight: float
    at: float
    vector: Vector

    @property
    def digest(self) -> str:
        return compute_normalized_text_digest(self.text)


def compute_aged_weight(request: LearnedRequest, now: float) -> float:
    """Return the weight of a request after ageing."""
    # A clock that went back must not make a request heavier than when it was learned.
    age = max(0.0, now - request.at) / _DAY
    return float(request.weight * 0.5 ** (age / HALF_LIFE_DAYS))


def select_excess_requests(requests: Iterable[LearnedRequest], now: float) -> list[LearnedRequest]:
    """Return the requests of one item beyond the limit: the weakest, and of equals the oldest."""
    ordered = sorted(requests, key=lambda r: (-compute_aged_weight(r, now), -r.at, r.digest))
    return ordered[MAX_REQUESTS_PER_ITEM:]


@dataclass(frozen=True, kw_only=True, slots=True)
class SimilarityToLearnedRequests:
    """How similar a new request is to the learned requests of each item, with the cosines to the nearest and to their
    mean.
    """

    items: Mapping[str, int]
    values: NDArray[np.float32]
    nearest: NDArray[np.float32]
    usual: NDArray[np.float32]
    familiarity: NDArray[np.float32]

    def list_items_with_most_similar_requests(self, count: int) -> list[str]:
        """Return the items whose learned requests are most similar."""
        # Dictionary order is row order.
        items = list(self.items)
        order = np.argsort(-(self.values.sum(1) + self.nearest), kind="stable")[:count]
        return [items[row] for row in order.tolist()]

    def select_similarities_of_items(self, ids: Sequence[str]) -> SimilarityToLearnedRequests:
        """Return the similarity to these items; zeros for one without learned requests."""
        rows = [self.items.get(id, -1) for id in ids] if self.items else np.full(len(ids), -1)

        def select(array: NDArray[np.float32]) -> NDArray[np.float32]:
            # The last row, of zeros, is that of an unknown item.
            return np.concatenate([array, np.zeros((1, *array.shape[1:]), dtype=np.float32)])[rows]

        return SimilarityToLearnedRequests(
            items=dict(zip(ids, range(len(ids)), strict=True)),
            values=select(self.values),
            nearest=select(self.nearest),
            usual=select(self.usual),
            familiarity=select(self.familiarity),
        )


_NONE = np.zeros(0, dtype=np.float32)
_NO_SIMILARITY = SimilarityToLearnedRequests(
    items={}, values=np.zeros((0, len(USE_SIGNAL_NAMES)), np.float32), nearest=_NONE, usual=_NONE, familiarity=_NONE
)


class LearnedRequestSet:
    """All remembered requests of a collection, with statistics per item that are recomputed daily."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._requests: dict[str, dict[str, LearnedRequest]] = {}
        self._count = 0
        self._summary: _LearnedRequestStatistics | None = None
        self._day = -1
        # The statistics are kept up in place, so comparing with them waits for a change of them, and for nothing else.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return self._count

    def list_requests(self) -> list[LearnedRequest]:
        with self._lock:
            return [request for of_item in self._requests.values() for request in of_item.values()]

    def list_ids_of_items_with_requests(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._requests)

    def list_request_keys(self) -> set[tuple[str, str]]:
        with self._lock:
            return {(item, digest) for item, of_item in self._requests.items() for digest in of_item}

    def list_keys_of_item(self, item: str) -> list[tuple[str, str]]:
        return [(item, digest) for digest in self._requests.get(item, ())]

    def plan_requests_to_store_and_delete(
        self, asked: Sequence[tuple[str, str]], weight: float, now: float
    ) -> tuple[list[LearnedRequest], list[tuple[str, str]]]:
        """Return the requests to store for these pairs of item and text, and the keys to delete. Changes nothing
        here.
        """
        nothing = np.zeros(self._width, dtype=np.float32)
        after = {item: dict(self._requests.get(item, {})) for item, _ in asked}
        new: dict[tuple[str, str], LearnedRequest] = {}
        for item, text in asked:
            key = compute_normalized_text_digest(text)
            before = after[item].get(key)
            total = weight + (compute_aged_weight(before, now) if before else 0.0)
            request = LearnedRequest(item=item, text=text, weight=min(total, MAX_WEIGHT), at=now, vector=nothing)
            new[item, key] = after[item][key] = request
        gone = [(r.item, r.digest) for of_item in after.values() for r in select_excess_requests(of_item.values(), now)]
        return [request for key, request in new.items() if key not in set(gone)], gone

    def add_requests(self, requests: Iterable[LearnedRequest]) -> None:
        """Add requests, replacing those with the same keys."""
        with self._lock:
            for request in requests:
                of_item, digest = self._requests.setdefault(request.item, {}), request.digest
                if self._summary is not None:
                    if digest in of_item:
                        self._summary.remove_request((request.item, digest))
                    self._summary.add_request(request)
                self._count += digest not in of_item
                of_item[digest] = request

    def drop_requests(self, keys: Iterable[tuple[str, str]]) -> None:
        """Remove the requests with these keys."""
        with self._lock:
            for item, digest in keys:
                if self._requests.get(item, {}).pop(digest, None) is not None:
                    self._count -= 1
                    # An item without requests leaves no row behind.
                    if not self._requests[item]:
                        self._summary = None
                    if self._summary is not None:
                        self._summary.remove_request((item, digest))
            self._requests = {item: of_item for item, of_item in self._requests.items() if of_item}

    def compute_similarity(self, text: str, vector: Vector, now: float) -> SimilarityToLearnedRequests:
        """Return the similarity of a new request to each item's."""
        if not self._count:
            return _NO_SIMILARITY
        day = int(now // _DAY)
        with self._lock:
            if self._summary is None or day != self._day:
                self._summary = _LearnedRequestStatistics(
                    sorted(self.list_requests(), key=lambda r: (r.item, r.digest)), now, self._width
                )
                self._day = day
            return self._summary.compute_similarity(text, vector)


class _LearnedRequestStatistics:
    """Sums over the learned requests, kept up request by request with the strengths of one day. Only the scatter is
    computed anew, after every twentieth part has changed: a few requests more hardly move it.
    """

    def __init__(self, requests: Iterable[LearnedRequest], now: float, width: int) -> None:
        self._now = now
        self._items: dict[str, int] = {}
        self._rows: dict[tuple[str, str], int] = {}
        # One row per request; a removed one gives its row to the last.
        self._keys: list[tuple[str, str]] = []
        self._said: list[set[int]] = []
        self._owners, self._strengths = np.zeros(64, dtype=np.int64), np.zeros(64, dtype=np.float32)
        self._vectors: Vectors = np.zeros((64, width), dtype=np.float32)
        # One row per item: sums of strengths, of vectors and of words, then the scaled square of the vector sum.
        self._counts, self._word_sums, self._squares = (np.zeros(64, dtype=np.float32) for _ in range(3))
        self._sums: Vectors = np.zeros((64, width), dtype=np.float32)
        # How often each word occurs in the requests of each item.
        self._words: dict[int, dict[int, float]] = {}
        self._inverse: Vectors | None = None
        self._changes = 0
        for request in requests:
            self.add_request(request)

    def add_request(self, request: LearnedRequest) -> None:
        """Count a request whose key is not counted yet."""
        owner, row = self._items.setdefault(request.item, len(self._items)), len(self._rows)
        self._keys.append((request.item, request.digest))
        self._rows[self._keys[row]] = row
        self._said.append(_hash_terms_and_term_pairs(request.text))
        self._vectors, self._owners, self._strengths = (
            _grow_array_if_row_is_beyond(array, row) for array in (self._vectors, self._owners, self._strengths)
        )
        self._sums, self._counts, self._word_sums, self._squares = (
            _grow_array_if_row_is_beyond(array, owner)
            for array in (self._sums, self._counts, self._word_sums, self._squares)
        )
        self._vectors[row], self._owners[row] = request.vector, owner
        self._strengths[row] = compute_aged_weight(request, self._now)
        self._add_row_to_sums_with_sign(row, 1)

    def remove_request(self, key: tuple[str, str]) -> None:
        """Stop counting a request."""
        row = self._rows.pop(key)
        self._add_row_to_sums_with_sign(row, -1)
        last_key, last_said = self._keys.pop(), self._said.pop()
        if last_key != key:
            self._keys[row], self._said[row], self._rows[last_key] = last_key, last_said, row
            for array in (self._vectors, self._owners, self._strengths):
                array[row] = array[len(self._keys)]

    def _add_row_to_sums_with_sign(self, row: int, sign: int) -> None:
        owner, weight = int(self._owners[row]), sign * float(self._strengths[row])
        self._counts[owner] += weight
        self._sums[owner] += weight * self._vectors[row]
        self._word_sums[owner] += weight * len(self._said[row])
        for number in self._said[row]:
            per_item = self._words.setdefault(number, {})
            per_item[owner] = per_item.get(owner, 0.0) + weight
            if per_item[owner] < _NOTHING:
                del per_item[owner]
        self._changes += 1
        if self._inverse is not None:
            self._squares[owner] = self._sums[owner] @ self._inverse @ self._sums[owner]

    def _compute_mean(self) -> Vector:
        """Return the mean of all requests."""
        mean: Vector = self._sums.sum(0) / max(float(self._counts.sum()), _NOTHING)
        return mean

    def _compute_scatter_inverse(self) -> Vectors:
        """Return the inverse of how requests scatter around the shrunken mean of their item."""
        if self._inverse is not None and self._changes * 20 < len(self._rows):
            return self._inverse
        # A sample is enough, and its cost is bounded.
        sample = slice(0, len(self._rows), -(-len(self._rows) // _SCATTER_SAMPLE))
        owners = self._owners[sample]
        means = self._sums[owners] + _SHRINK_MEAN * self._compute_mean()
        off = self._vectors[sample] - means / (self._counts[owners] + _SHRINK_MEAN)[:, None]
        scatter = off.T @ off / len(off)
        shrink = max(_SHRINK_SCATTER, 64 / (64 + len(off)))
        even = np.eye(len(scatter), dtype=np.float32) * (np.trace(scatter) / len(scatter) + 1e-4)
        # Shrinking keeps the matrix invertible with few requests.
        self._inverse = np.linalg.inv((1 - shrink) * scatter + shrink * even).astype(np.float32)
        self._squares = ((self._sums @ self._inverse) * self._sums).sum(1)
        self._changes = 0
        return self._inverse

    def compute_similarity(self, text: str, vector: Vector) -> SimilarityToLearnedRequests:
        asked, count = _hash_terms_and_term_pairs(text), len(self._items)
        meaning, nearest, usual = (np.zeros(count, dtype=np.float32) for _ in range(3))
        owners, counts = self._owners[: len(self._rows)], self._counts[:count]
        if len(vector):
            meaning = self._compute_discriminants_by_vector(vector)
            sums = self._sums[:count]
            usual = sums @ vector / np.maximum(np.linalg.norm(sums, axis=1), _NOTHING)
            np.maximum.at(nearest, owners, self._vectors[: len(self._rows)] @ vector)
        else:
            np.maximum.at(nearest, owners, self._compute_word_overlap_per_request(asked))
        return SimilarityToLearnedRequests(
            items=dict(self._items),
            values=np.stack(
                [meaning / 10, self._compute_word_log_ratios(asked) / 10, _scale_cosines_above_chance(nearest)], axis=1
            ),
            nearest=nearest,
            usual=usual,
            familiarity=counts / (counts + _FAMILIARITY_HALFWAY),
        )

    def _compute_discriminants_by_vector(self, vector: Vector) -> NDArray[np.float32]:
        """Return the discriminant of each item: its shrunken mean request against the mean of all."""
        inverse, mean, count = self._compute_scatter_inverse(), self._compute_mean(), len(self._items)
        sums, shrunken = self._sums[:count], self._counts[:count] + _SHRINK_MEAN
        scaled, scaled_mean = inverse @ vector, inverse @ mean
        # The square of a shrunken mean, multiplied out: only the part of the item itself is stored.
        squares = self._squares[:count] + 2 * _SHRINK_MEAN * (sums @ scaled_mean)
        squares = (squares + _SHRINK_MEAN**2 * (mean @ scaled_mean)) / shrunken**2
        nearness = (sums @ scaled + _SHRINK_MEAN * (mean @ scaled)) / shrunken - mean @ scaled
        return np.asarray(nearness - (squares - mean @ scaled_mean) / 2, dtype=np.float32)

    def _compute_word_log_ratios(self, asked: set[int]) -> NDArray[np.float32]:
        """Return per item the log-ratio of the known words under its requests and under all requests."""
        known = [number for number in sorted(asked) if self._words.get(number)]
        ratios = len(known) * np.log(_SHRINK_WORDS / (self._word_sums[: len(self._items)] + _SHRINK_WORDS))
        total = max(float(self._word_sums.sum()), _NOTHING)
        for number in known:
            per_item = self._words[number]
            where = np.fromiter(per_item, dtype=np.int64, count=len(per_item))
            counts = np.fromiter(per_item.values(), dtype=np.float64, count=len(per_item))
            ratios[where] += np.log1p(counts * total / (_SHRINK_WORDS * counts.sum()))
        return np.asarray(ratios, dtype=np.float32)

    def _compute_word_overlap_per_request(self, asked: set[int]) -> NDArray[np.float32]:
        """Return per learned request the share of common words, which replaces the cosine without a model."""
        return np.array([len(asked & past) / max(len(asked | past), 1) for past in self._said], dtype=np.float32)


def _grow_array_if_row_is_beyond(array: NDArray[Any], row: int) -> NDArray[Any]:
    """Return the array with this row, twice as long if it was full."""
    return array if row < len(array) else np.concatenate([array, np.zeros_like(array)])


def _scale_cosines_above_chance(nearest: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale cosines so unrelated requests score 0 and equal ones 1."""
    # Two unrelated requests have a cosine of about 0.4.
    above: NDArray[np.float32] = np.clip((nearest - 0.4) / 0.6, 0, 1).astype(np.float32)
    return above


def _hash_terms_and_term_pairs(text: str) -> set[int]:
    """Return the hashed terms and pairs of neighbouring terms."""
    found = extract_terms(text)
    return {hash_term(term) for term in found} | {hash_term(f"{a} {b}") for a, b in pairwise(found)}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedIndexEntries:
    """Valid entries with their vectors, and the ids of damaged rows."""

    entries: list[IndexEntry]
    vectors: Vectors
    damaged: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedLearnedRequests:
    """Valid learned requests, and those without a vector."""

    sound: list[LearnedRequest]
    damaged: list[LearnedRequest]


def parse_index_entry_rows(rows: Iterable[Sequence[Any]], width: int) -> LoadedIndexEntries:
    """Parse rows of id, digest, meaning, says_when, codes, words and vector; vectors are ignored if the width is 0."""
    entries: list[IndexEntry] = []
    blobs: list[bytes] = []
    damaged: list[str] = []
    for id, digest, meaning, says_when, codes, words, blob in rows:
        entry = unpack_entry(id=id, digest=digest, meaning=meaning, codes=codes, words=words, says_when=says_when)
        blob = blob if width else b""
        if entry is None or blob is None or len(blob) != 4 * width:
            damaged.append(id)
        else:
            entries.append(entry)
            blobs.append(blob)
    matrix = np.frombuffer(b"".join(blobs), dtype=np.float32).reshape(len(blobs), width)
    sound = np.isfinite(matrix.sum(axis=1))
    damaged += [entry.id for entry, is_sound in zip(entries, sound, strict=True) if not is_sound]
    return LoadedIndexEntries(
        entries=[entry for entry, is_sound in zip(entries, sound, strict=True) if is_sound],
        vectors=matrix if sound.all() else matrix[sound],
        damaged=damaged,
    )


def parse_learned_request_rows(rows: Iterable[Sequence[Any]], width: int) -> LoadedLearnedRequests:
    """Parse rows of document, text, weight, time and vector."""
    sound: list[LearnedRequest] = []
    damaged: list[LearnedRequest] = []
    for item, text, weight, at, blob in rows:
        blob = blob if width else b""
        has_vector = is_valid_vector(blob, width)
        vector = np.frombuffer(blob, dtype=np.float32) if has_vector else np.zeros(width, dtype=np.float32)
        request = LearnedRequest(item=item, text=text, weight=weight, at=at, vector=vector)
        (sound if has_vector else damaged).append(request)
    return LoadedLearnedRequests(sound=sound, damaged=damaged)


def is_valid_vector(blob: bytes | None, width: int) -> bool:
    """Return whether the bytes are a vector of this width without infinities and NaN."""
    if blob is None or len(blob) != 4 * width:
        return False
    # A sum is finite exactly when every element is, short of an overflow that unit vectors can't reach.
    return bool(np.isfinite(np.frombuffer(blob, dtype=np.float32).sum()))
