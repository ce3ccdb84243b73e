"""Searches documents in memory or mapped from a file, and compares documents with each other; queries no database.

Some documents may stay in a server, which then names the candidates of each search. Similarity is for lint,
deduplication and reinforcement: 1.0 is the same text, 0 nothing shared.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from habitus.search import learned, ranking, signals
from habitus.search.calibration import tier_of
from habitus.search.corpus import Corpus
from habitus.search.model import Document, Hit, Results
from habitus.search.postings import Slots
from habitus.search.ranking import explain
from habitus.search.signals import highest
from habitus.search.texts import words
from habitus.search.texts.embedding import Embedder, Vectors
from habitus.search.texts.index_entry import Codes, IndexEntry, Vector, encode, meaning_of
from habitus.search.texts.words import code

if TYPE_CHECKING:
    from habitus.search.learned import Loaded
    from habitus.search.server import ServerIndex


_LOOK_AT = 60
_SHORTEST_BODY = 20
_RAREST, _SHARING, _NEAREST = 8, 300, 4
# Documents with less similar meanings are not neighbours.
_SAME_MATTER = 0.6


def nearest(corpus: Corpus, entry: IndexEntry, vector: Vector, k: int, least: float = 0.0) -> tuple[Hit, ...]:
    """Return the most similar documents; words are compared only above `min_cosine`."""
    slots = [slot for slot in _near(corpus, entry, vector) if corpus.ids[slot] != entry.id]
    if least and corpus.vectors.shape[1]:
        slots = [slot for slot in slots if float(corpus.vectors[slot] @ vector) >= least]
    mine, *others = _profiles(
        corpus, [entry, *(corpus.entry(slot) for slot in slots)], [vector, *corpus.vectors[slots]]
    )
    return _sort_hits([_compare(mine, other) for other in others])[:k]


def neighbours(corpus: Corpus, least: float = 0.0) -> dict[str, tuple[Hit, ...]]:
    """Return for every document the few most similar ones, by at least `min_score`, among those that share its rarest
    terms.
    """
    # Each document meets a handful of others, so the work grows with documents, not with pairs.
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
    """Return the other documents with the rarest terms of this one's summary, and the worth of the shared terms."""
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
    """Return the slots worth comparing: nearest by meaning, and sharing the rarest terms."""
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
    """The distinct terms of a text, sorted, with their frequency, document count and rarity."""

    codes: Codes
    times: NDArray[np.int64]
    counts: NDArray[np.int64]
    rarity: NDArray[np.float32]
    total: float


def _weigh_all(corpus: Corpus, texts: Sequence[Codes]) -> list[_Weighed]:
    """Weigh the terms of many texts in one pass."""
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
    """The data of a document that comparisons need, looked up once however many others it meets."""

    def __init__(self, corpus: Corpus, entry: IndexEntry, vector: Vector, summary: _Weighed) -> None:
        self._corpus, self._entry = corpus, entry
        self.id, self.vector, self.summary = entry.id, vector, summary

    @functools.cached_property
    def body(self) -> _Weighed | None:
        """The weighed body, looked up on first use: most bodies are never compared."""
        has_body = self._entry.lengths[-1] >= _SHORTEST_BODY
        return _weigh_all(self._corpus, [self._entry.body])[0] if has_body else None


def _profiles(corpus: Corpus, entries: Sequence[IndexEntry], vectors: Iterable[Vector]) -> list[_Profile]:
    summaries = _weigh_all(corpus, [entry.summary for entry in entries])
    return [_Profile(corpus, *parts) for parts in zip(entries, vectors, summaries, strict=True)]


def _words_allow(mine: _Profile, other: _Profile, least: float) -> bool:
    """Return whether two documents could reach this similarity, whatever their bodies are."""
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
    """Return how similar the summaries are, in words and in meaning."""
    words = _overlap(mine.summary, other.summary)
    return words, float(np.clip(other.vector @ mine.vector, 0.0, 1.0)) if len(mine.vector) else words


def _overlap(a: _Weighed, b: _Weighed) -> float:
    """Return the weighted share of common terms, by rarity and frequency."""
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
log = logging.getLogger(__name__)
_LIKED, _FIRST_FEW = 40, 5


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexEvidence:
    """The candidates of one request with their signals."""

    ids: tuple[str, ...]
    corpus: Corpus
    asked: words.SearchRequest
    signals: signals.Signals
    usage: ranking.UseCounts


def _put_likest_forward(order: list[int], found: IndexEvidence) -> None:
    """Move the document whose text is most like a statement to the first few, whatever its rank."""
    likeness = found.signals.as_text.tolist()
    if not any(likeness):
        return
    # Ties go to the first.
    likest = min(order, key=lambda row: -round(likeness[row], 4))
    if order.index(likest) >= _FIRST_FEW:
        order.remove(likest)
        order.insert(_FIRST_FEW - 1, likest)


class Searcher:
    """Searches a corpus, and ranks with the requests learned from use. Every method is thread-safe."""

    def __init__(
        self, embedder: Embedder, corpus: Corpus, requests: learned.Learned, clock: Callable[[], float]
    ) -> None:
        self._embedder = embedder
        self._tier = tier_of(embedder.name)
        self._clock = clock
        self._corpus = corpus
        self._learned = requests
        # Has the documents that are not in memory.
        self.server: ServerIndex | None = None
        # Documents of the server that count as removed.
        self._gone: frozenset[str] = frozenset()
        # The last frozen set of ids and its slots: callers pass the same one again and again.
        self._among: tuple[Collection[str], Slots] | None = None
        # Words that describe the surrounding project, a weak prior.
        self.project: Collection[str] = ()
        # Problems that `describe` reports.
        self.notes: list[str] = []
        # Never held while waiting for the database, because a writer may want to search.
        self._lock = threading.RLock()

    @property
    def embedder(self) -> Embedder:
        return self._embedder

    def search(self, query: str, *, k: int = 10, among: Collection[str] | None = None, look: bool = True) -> Results:
        """Return the best `k` documents for a request, among all or the given ids.

        With `refresh=False` changes by others are not loaded first, which is faster for thousands of calls in a row.
        """
        with self._hold_lock(look=look):
            found = self.evidence(query, among=among)
            if found is None:
                return Results()
            ranked = ranking.rank(found.signals, found.usage, self._tier, found.corpus.share_with_body)
            # Machines sum in different orders: scores that differ by less are equal and sorted by id.
            scores = np.round(ranked.scores, 4).tolist()
            order = sorted(range(len(found.ids)), key=lambda row: (-scores[row], found.ids[row]))
            _put_likest_forward(order, found)
            fit = ranking.confidence(found.signals, found.usage, self._tier).tolist()
            best = order[: max(k, 0)]
            parts = explain(found.corpus, found.asked, found.signals, ranked, best)
            hits = (Hit(id=found.ids[row], score=fit[row], parts=why) for row, why in zip(best, parts, strict=True))
            sure = fit[order[0]]
            least = ranking.floor(self._tier, found.corpus.documents if among is None else len(among))
            return Results(hits=tuple(hits), fits=sure >= least, confidence=sure, least=max(0.0, least))

    def evidence(self, query: str, *, among: Collection[str] | None = None, look: bool = False) -> IndexEvidence | None:
        """Return the signals of every candidate before weighing, for calibration; None if nothing can match."""
        with self._hold_lock(look=look):
            asked = words.read(query)
            if not asked.has_words:
                return None
            vectors = self._vectors_of(asked.texts(self._embedder.request_words))
            liking = self._learned.liking(asked.text, vectors[0], self._clock())
            liked = [] if liking is None else liking.most_liked(_LIKED)
            corpus = self._corpus
            if self.server is not None:
                terms = signals.Asked.of(corpus.beside(self.server), asked, None)
                named = self.server.candidates(terms.codes, terms.worth, vectors[0], more=liked, among=among)
                corpus = self._with(self.server, named)
            if not corpus.slots:
                return None
            more = np.array([corpus.slots[id] for id in liked if id in corpus.slots], dtype=np.int64)
            project = np.array([code(term) for term in words.terms(" ".join(self.project))], dtype=np.uint32)
            allowed = self._slots_of(corpus, among)
            found = signals.gather(corpus, self._embedder, asked, vectors, allowed, more, project)
            if not len(found.slots):
                return None
            ids = tuple(corpus.ids[slot] for slot in found.slots.tolist())
            usage = ranking.UseCounts.of(liking, ids).beside_twins(corpus.vectors[found.slots])
            return IndexEvidence(ids=ids, corpus=corpus, asked=asked, signals=found, usage=usage)

    def _with(self, server: ServerIndex, named: Loaded) -> Corpus:
        """Return the documents in memory plus those that a server named, with rarity over the whole library."""
        corpus = self._corpus.beside(server).copy()
        ours = corpus.slots.keys() | self._gone
        new = [at for at, entry in enumerate(named.entries) if entry.id not in ours]
        corpus.replace([named.entries[at] for at in new], named.vectors[new])
        return corpus

    def _slots_of(self, corpus: Corpus, among: Collection[str] | None) -> Slots | None:
        if among is None:
            return None
        # A temporary corpus of few candidates is not worth caching.
        if corpus is not self._corpus:
            return np.array(sorted(slot for id, slot in corpus.slots.items() if id in among), dtype=np.int64)
        if self._among is None or self._among[0] is not among:
            known = corpus.slots
            slots = np.array(sorted(known[id] for id in among if id in known), dtype=np.int64)
            if not isinstance(among, frozenset):
                return slots
            self._among = (among, slots)
        return self._among[1]

    def similar(
        self, to: Document | str, *, k: int = 5, least_meaning: float = 0.0, look: bool = True
    ) -> tuple[Hit, ...]:
        """Return the most similar documents, 1.0 for the same text, without the document itself.

        Documents below `min_cosine` are left out without a closer look, which saves time.
        """
        document = Document(id="", name="", description=to) if isinstance(to, str) else to
        with self._hold_lock(look=look):
            corpus, entry = self._corpus, encode(document)
            vector = self._vectors_of([meaning_of(document)])[0]
            if self.server is not None:
                codes = np.unique(entry.summary)
                worth = corpus.beside(self.server).rarity(codes)
                corpus = self._with(self.server, self.server.candidates(codes, worth, vector))
            return nearest(corpus, entry, vector, k, least_meaning) if corpus.slots else ()

    def neighbours(self, least: float = 0.0) -> dict[str, tuple[Hit, ...]]:
        """Return for every document the few most similar ones, by at least `min_score`."""
        with self._hold_lock():
            server = self.server
            corpus = self._corpus if server is None else self._with(server, server.everything())
            return neighbours(corpus, least)

    def supposing(self, documents: Sequence[Document], gone: Sequence[str] = ()) -> Searcher:
        """Return a searcher with these documents added and those in `removed_ids` removed; nothing is stored."""
        return self._beside(documents, gone, self.server)

    def without_server(self, documents: Sequence[Document]) -> Searcher:
        """Return a searcher with these documents in place of an unreachable server; nothing is stored."""
        return self._beside(documents, (), None)

    def _beside(self, documents: Sequence[Document], gone: Sequence[str], server: ServerIndex | None) -> Searcher:
        vectors = self._vectors_of([meaning_of(document) for document in documents])
        entries = [encode(document) for document in documents]
        with self._lock:
            other = Searcher(self._embedder, self._corpus.copy(), self._learned, self._clock)
        other.server, other.project, other.notes, other._lock = server, self.project, self.notes, self._lock
        other._gone = frozenset(gone)
        other._corpus.replace(entries, vectors, gone)
        return other

    @contextmanager
    def _hold_lock(self, *, look: bool = True, hint: bool = True) -> Iterator[None]:
        """Hold the lock on the memory for this thread; an index in a database refreshes first."""
        with nullcontext() if self.server is None else self.server.at_once(), self._lock:
            yield

    def _vectors_of(self, texts: Sequence[str]) -> Vectors:
        """Embed texts; invalid vectors become zeros, so only the words of such a text count."""
        vectors = self._embedder.embed(texts).astype(np.float32)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            self._say(
                f"{self._embedder.name} gave {int(bad.sum())} vectors that are not numbers; words alone count there"
            )
            vectors[bad] = 0.0
        return vectors

    def _say(self, note: str) -> None:
        log.warning("Search: %s.", note)
        self.notes = [*self.notes[-9:], note]
