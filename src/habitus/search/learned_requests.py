"""Learning from use: remembers requests that led to a document, and compares new requests with them.

An item is compared by meaning (a shrunken discriminant: its mean request against the mean of all, in units of how
requests scatter), by words (a naive Bayes log-ratio) and by its nearest request. Each is measured against what all
requests have in common: an item without uses scores zero and is neither helped nor hurt. Damaged rows of the stored
index are reported, never trusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from habitus.search.texts.embedding import Vectors, normalize_rows
from habitus.search.texts.index_entry import IndexEntry, Vector, compute_text_digest, unpack_entry
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
        return compute_text_digest(self.text)


def compute_strength(request: LearnedRequest, now: float) -> float:
    """Return the weight of a request after ageing."""
    # A clock that went back must not make a request heavier than when it was learned.
    age = max(0.0, now - request.at) / _DAY
    return float(request.weight * 0.5 ** (age / HALF_LIFE_DAYS))


def select_excess(requests: Iterable[LearnedRequest], now: float) -> list[LearnedRequest]:
    """Return the requests of one item beyond the limit: the weakest, and of equals the oldest."""
    ordered = sorted(requests, key=lambda r: (-compute_strength(r, now), -r.at, r.digest))
    return ordered[MAX_REQUESTS_PER_ITEM:]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestSimilarity:
    """How similar a new request is to the learned requests of each item, with the cosines to the nearest and to their
    mean.
    """

    items: Mapping[str, int]
    values: NDArray[np.float32]
    nearest: NDArray[np.float32]
    usual: NDArray[np.float32]
    familiarity: NDArray[np.float32]

    def list_most_similar(self, count: int) -> list[str]:
        """Return the items whose learned requests are most similar."""
        # Dictionary order is row order.
        items = list(self.items)
        order = np.argsort(-(self.values.sum(1) + self.nearest), kind="stable")[:count]
        return [items[row] for row in order.tolist()]


class LearnedRequestSet:
    """All remembered requests of a collection, with statistics per item that are recomputed daily."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._requests: dict[str, dict[str, LearnedRequest]] = {}
        self._count = 0
        self._summary: _RequestStatistics | None = None
        self._day = -1

    def __len__(self) -> int:
        return self._count

    def list_requests(self) -> list[LearnedRequest]:
        return [request for of_item in self._requests.values() for request in of_item.values()]

    def list_items(self) -> frozenset[str]:
        return frozenset(self._requests)

    def list_keys(self) -> set[tuple[str, str]]:
        return {(item, digest) for item, of_item in self._requests.items() for digest in of_item}

    def list_item_keys(self, item: str) -> list[tuple[str, str]]:
        return [(item, digest) for digest in self._requests.get(item, ())]

    def plan_additions(
        self, asked: Sequence[tuple[str, str]], weight: float, now: float
    ) -> tuple[list[LearnedRequest], list[tuple[str, str]]]:
        """Return the requests to store for these pairs of item and text, and the keys to delete. Changes nothing
        here.
        """
        nothing = np.zeros(self._width, dtype=np.float32)
        after = {item: dict(self._requests.get(item, {})) for item, _ in asked}
        new: dict[tuple[str, str], LearnedRequest] = {}
        for item, text in asked:
            key = compute_text_digest(text)
            before = after[item].get(key)
            total = weight + (compute_strength(before, now) if before else 0.0)
            request = LearnedRequest(item=item, text=text, weight=min(total, MAX_WEIGHT), at=now, vector=nothing)
            new[item, key] = after[item][key] = request
        gone = [(r.item, r.digest) for of_item in after.values() for r in select_excess(of_item.values(), now)]
        return [request for key, request in new.items() if key not in set(gone)], gone

    def add_requests(self, requests: Iterable[LearnedRequest]) -> None:
        """Add requests, replacing those with the same keys."""
        for request in requests:
            of_item = self._requests.setdefault(request.item, {})
            self._count += request.digest not in of_item
            of_item[request.digest] = request
            self._summary = None

    def drop_requests(self, keys: Iterable[tuple[str, str]]) -> None:
        """Remove the requests with these keys."""
        for item, digest in keys:
            if self._requests.get(item, {}).pop(digest, None) is not None:
                self._count -= 1
                self._summary = None
        self._requests = {item: of_item for item, of_item in self._requests.items() if of_item}

    def compute_similarity(self, text: str, vector: Vector, now: float) -> RequestSimilarity | None:
        """Return the similarity of a new request to each item's; None while nothing was learned."""
        if not self._count:
            return None
        day = int(now // _DAY)
        if self._summary is None or day != self._day:
            self._summary = _RequestStatistics(
                sorted(self.list_requests(), key=lambda r: (r.item, r.digest)), now, self._width
            )
            self._day = day
        return self._summary.compute_similarity(text, vector)


class _RequestStatistics:
    def __init__(self, requests: list[LearnedRequest], now: float, width: int) -> None:
        self._items: dict[str, int] = {}
        self._owners = np.array([self._items.setdefault(r.item, len(self._items)) for r in requests])
        self._strengths = np.array([compute_strength(r, now) for r in requests], dtype=np.float32)
        self._counts = np.bincount(self._owners, weights=self._strengths).astype(np.float32)
        self._vectors = np.array([r.vector for r in requests], dtype=np.float32).reshape(len(requests), width)
        if width:
            self._means, self._directions, self._offsets = self._compute_discriminant()
        self._said = [_extract_features(request.text) for request in requests]
        self._words, self._word_sums = self._count_words()

    def _compute_discriminant(self) -> tuple[Vectors, Vectors, NDArray[np.float32]]:
        """Return the unit mean request of each item, then the discriminant's directions and offsets."""
        weighted = self._vectors * self._strengths[:, None]
        everything = weighted.sum(0) / max(float(self._strengths.sum()), 1e-9)
        sums = np.zeros((len(self._items), self._vectors.shape[1]), dtype=np.float32)
        np.add.at(sums, self._owners, weighted)
        means = (sums + _SHRINK_MEAN * everything) / (self._counts + _SHRINK_MEAN)[:, None]
        # A sample is enough for the scatter, whose cost grows with the number of requests.
        spacing = -(-len(self._vectors) // _SCATTER_SAMPLE)
        off = (self._vectors - means[self._owners])[::spacing]
        scatter = off.T @ off / len(off)
        shrink = max(_SHRINK_SCATTER, 64 / (64 + len(off)))
        even = np.eye(len(scatter), dtype=np.float32) * (np.trace(scatter) / len(scatter) + 1e-4)
        # Shrinking keeps the matrix invertible with few requests.
        inverse = np.linalg.inv((1 - shrink) * scatter + shrink * even)
        directions = (means @ inverse).astype(np.float32)
        base = everything @ inverse
        offsets = ((directions * means).sum(1) - base @ everything) / 2
        return normalize_rows(sums), directions - base, offsets.astype(np.float32)

    def _count_words(self) -> tuple[dict[int, dict[int, float]], NDArray[np.float32]]:
        """Return how often each word occurs in the requests of each item, and the sums per item."""
        words: dict[int, dict[int, float]] = {}
        sums = np.zeros(len(self._items), dtype=np.float32)
        for said, owner, weight in zip(self._said, self._owners.tolist(), self._strengths.tolist(), strict=True):
            for number in said:
                per_item = words.setdefault(number, {})
                per_item[owner] = per_item.get(owner, 0.0) + weight
            sums[owner] += weight * len(said)
        return words, sums

    def compute_similarity(self, text: str, vector: Vector) -> RequestSimilarity:
        asked = _extract_features(text)
        meaning = np.zeros(len(self._items), dtype=np.float32)
        nearest, usual = np.zeros_like(meaning), np.zeros_like(meaning)
        if len(vector):
            meaning = self._directions @ vector - self._offsets
            usual = self._means @ vector
            np.maximum.at(nearest, self._owners, self._vectors @ vector)
        else:
            np.maximum.at(nearest, self._owners, self._compute_word_overlap(asked))
        return RequestSimilarity(
            items=self._items,
            values=np.stack([meaning / 10, self._score_by_words(asked) / 10, _scale_above_chance(nearest)], axis=1),
            nearest=nearest,
            usual=usual,
            familiarity=self._counts / (self._counts + _FAMILIARITY_HALFWAY),
        )

    def _score_by_words(self, asked: set[int]) -> NDArray[np.float32]:
        """Return per item the log-ratio of the known words under its requests and under all requests."""
        known = [number for number in sorted(asked) if number in self._words]
        ratios = len(known) * np.log(_SHRINK_WORDS / (self._word_sums + _SHRINK_WORDS))
        total = max(float(self._word_sums.sum()), 1e-9)
        for number in known:
            per_item = self._words[number]
            where = np.fromiter(per_item, dtype=np.int64, count=len(per_item))
            counts = np.fromiter(per_item.values(), dtype=np.float64, count=len(per_item))
            ratios[where] += np.log1p(counts * total / (_SHRINK_WORDS * counts.sum()))
        return np.asarray(ratios, dtype=np.float32)

    def _compute_word_overlap(self, asked: set[int]) -> NDArray[np.float32]:
        """Return per learned request the share of common words, which replaces the cosine without a model."""
        return np.array([len(asked & past) / max(len(asked | past), 1) for past in self._said], dtype=np.float32)


def _scale_above_chance(nearest: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale cosines so unrelated requests score 0 and equal ones 1."""
    # Two unrelated requests have a cosine of about 0.4.
    above: NDArray[np.float32] = np.clip((nearest - 0.4) / 0.6, 0, 1).astype(np.float32)
    return above


def _extract_features(text: str) -> set[int]:
    """Return the hashed terms and pairs of neighbouring terms."""
    found = extract_terms(text)
    return {hash_term(term) for term in found} | {hash_term(f"{a} {b}") for a, b in pairwise(found)}


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedEntries:
    """Valid entries with their vectors, and the ids of damaged rows."""

    entries: list[IndexEntry]
    vectors: Vectors
    damaged: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedLearnedRequests:
    """Valid learned requests, and those without a vector."""

    sound: list[LearnedRequest]
    damaged: list[LearnedRequest]


def parse_entry_rows(rows: Iterable[Sequence[Any]], width: int) -> LoadedEntries:
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
    return LoadedEntries(
        entries=[entry for entry, is_sound in zip(entries, sound, strict=True) if is_sound],
        vectors=matrix if sound.all() else matrix[sound],
        damaged=damaged,
    )


def parse_request_rows(rows: Iterable[Sequence[Any]], width: int) -> LoadedLearnedRequests:
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
