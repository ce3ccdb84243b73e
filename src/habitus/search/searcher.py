"""Searches documents in memory or mapped from a file, and compares documents with each other; queries no database.

Some documents may stay in a server, which then names the candidates of each search. Similarity is for lint,
deduplication and reinforcement: 1.0 is the same text, 0 nothing shared.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from habitus.search import learned_requests, ranking, signals
from habitus.search.calibration import get_calibration
from habitus.search.corpus import SearchCorpus
from habitus.search.model import IndexHit, SearchDocument, SearchResults
from habitus.search.postings import Slots
from habitus.search.ranking import explain_scores
from habitus.search.signals import find_positions_of_highest_scores
from habitus.search.texts import words
from habitus.search.texts.embedding import Embedder, Vectors
from habitus.search.texts.index_entry import Codes, IndexEntry, Vector, build_embedding_text, encode_document
from habitus.search.texts.words import hash_term

if TYPE_CHECKING:
    from habitus.search.learned_requests import LoadedIndexEntries
    from habitus.search.postgres_index import PostgresSkillIndex


_MAX_COMPARED = 60
_SHORTEST_BODY = 20
_RAREST, _SHARING, _NEAREST = 8, 300, 4
# Documents with less similar meanings are not neighbours.
_SAME_MATTER = 0.6


def find_documents_nearest_to_entry(
    corpus: SearchCorpus, entry: IndexEntry, vector: Vector, k: int, min_cosine: float = 0.0
) -> tuple[IndexHit, ...]:
    """Return the most similar documents; words are compared only above `min_cosine`."""
    slots = [at for at in _choose_slots_to_compare(corpus, entry, vector) if corpus.ids[at] != entry.id]
    if min_cosine and corpus.vectors.shape[1]:
        slots = [at for at in slots if float(corpus.vectors[at] @ vector) >= min_cosine]
    mine, *others = _build_comparison_profiles(
        corpus, [entry, *(corpus.get_entry_at_slot(at) for at in slots)], [vector, *corpus.vectors[slots]]
    )
    return _sort_hits([_build_hit_by_comparing_profiles(mine, other) for other in others])[:k]


def find_neighbours_of_each_document(corpus: SearchCorpus, min_score: float = 0.0) -> dict[str, tuple[IndexHit, ...]]:
    """Return for every document the few most similar ones, by at least `min_score`, among those that share its rarest
    terms.
    """
    # Each document meets a handful of others, so the work grows with documents, not with pairs.
    slots = sorted(corpus.slots.values())
    found = _build_comparison_profiles(
        corpus, [corpus.get_entry_at_slot(slot) for slot in slots], corpus.vectors[slots]
    )
    profiles = dict(zip(slots, found, strict=True))
    return {id: _find_similar_documents(corpus, profiles, slot, min_score) for id, slot in sorted(corpus.slots.items())}


def _find_similar_documents(
    corpus: SearchCorpus, profiles: Mapping[int, _ComparisonProfile], slot: int, least: float
) -> tuple[IndexHit, ...]:
    mine = profiles[slot]
    others, shared = _find_documents_sharing_rarest_terms(corpus, slot, mine)
    if corpus.vectors.shape[1]:
        shared = corpus.vectors[others] @ mine.vector
        others, shared = others[shared >= _SAME_MATTER], shared[shared >= _SAME_MATTER]
    near = others[find_positions_of_highest_scores(shared, _NEAREST)].tolist()
    met = [
        _build_hit_by_comparing_profiles(mine, profiles[other])
        for other in near
        if _can_documents_reach_similarity(mine, profiles[other], least)
    ]
    return _sort_hits([hit for hit in met if hit.score >= least])


def _find_documents_sharing_rarest_terms(
    corpus: SearchCorpus, slot: int, mine: _ComparisonProfile
) -> tuple[Slots, NDArray[np.float32]]:
    """Return the other documents with the rarest terms of this one's summary, and the worth of the shared terms."""
    counts = mine.summary.counts
    rarest = np.argsort(np.where(counts > 1, counts, np.iinfo(np.int64).max), kind="stable")[:_RAREST]
    shared = np.zeros(len(corpus.ids), dtype=np.float32)
    room = _SHARING
    for place in rarest[counts[rarest] > 1].tolist():
        slots = corpus.postings.find_postings_of_terms(mine.summary.codes[place : place + 1]).slots[:room]
        shared[slots] += mine.summary.rarity[place]
        room -= len(slots)
    shared[slot] = 0.0
    others = np.flatnonzero(shared)
    others = others[corpus.alive[others]]
    return others, shared[others]


def _choose_slots_to_compare(corpus: SearchCorpus, entry: IndexEntry, vector: Vector) -> list[int]:
    """Return the slots worth comparing: nearest by meaning, and sharing the rarest terms."""
    meaning = np.where(corpus.alive, corpus.vectors @ vector, -1.0)
    codes = np.unique(entry.summary_term_codes)
    rarity = corpus.compute_rarity(codes)
    shared = np.zeros(len(corpus.ids), dtype=np.float32)
    for place, worth in enumerate(rarity.tolist()):
        shared[corpus.postings.find_postings_of_terms(codes[place : place + 1]).slots] += worth
    shared[~corpus.alive] = -1.0
    chosen: set[int] = set()
    for scores in (meaning, shared):
        chosen.update(
            slot for slot in find_positions_of_highest_scores(scores, _MAX_COMPARED).tolist() if corpus.alive[slot]
        )
    return sorted(chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class _WeighedTerms:
    """The distinct terms of a text, sorted, with their frequency, document count and rarity."""

    codes: Codes
    times: NDArray[np.int64]
    counts: NDArray[np.int64]
    rarity: NDArray[np.float32]
    total: float


def _weigh_terms_of_texts(corpus: SearchCorpus, texts: Sequence[Codes]) -> list[_WeighedTerms]:
    """Weigh the terms of many texts in one pass."""
    sizes = [len(codes) for codes in texts]
    owners = np.repeat(np.arange(len(texts), dtype=np.uint64), sizes)
    packed, times = np.unique((owners << np.uint64(32)) | np.concatenate([*texts, _NONE]), return_counts=True)
    codes = (packed & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    counts, rarity = (
        corpus.postings.count_living_documents_with_each_term(codes),
        corpus.compute_rarity(codes) + np.float32(0.1),
    )
    ends = np.searchsorted(packed >> np.uint64(32), np.arange(len(texts), dtype=np.uint64), side="right").tolist()
    return [
        _WeighedTerms(
            codes=codes[start:end],
            times=times[start:end],
            counts=counts[start:end],
            rarity=rarity[start:end],
            total=float((times[start:end] * rarity[start:end]).sum()),
        )
        for start, end in zip([0, *ends], ends, strict=False)
    ]


class _ComparisonProfile:
    """The data of a document that comparisons need, looked up once however many others it meets."""

    def __init__(self, corpus: SearchCorpus, entry: IndexEntry, vector: Vector, summary: _WeighedTerms) -> None:
        self._corpus, self._entry = corpus, entry
        self.id, self.vector, self.summary = entry.id, vector, summary

    @functools.cached_property
    def weighed_body(self) -> _WeighedTerms | None:
        """The weighed body, looked up on first use: most bodies are never compared."""
        has_body = self._entry.lengths[-1] >= _SHORTEST_BODY
        return _weigh_terms_of_texts(self._corpus, [self._entry.body_term_codes])[0] if has_body else None


def _build_comparison_profiles(
    corpus: SearchCorpus, entries: Sequence[IndexEntry], vectors: Iterable[Vector]
) -> list[_ComparisonProfile]:
    summaries = _weigh_terms_of_texts(corpus, [entry.summary_term_codes for entry in entries])
    return [_ComparisonProfile(corpus, *parts) for parts in zip(entries, vectors, summaries, strict=True)]


def _can_documents_reach_similarity(mine: _ComparisonProfile, other: _ComparisonProfile, least: float) -> bool:
    """Return whether two documents could reach this similarity, whatever their bodies are."""
    words, meaning = _compute_summary_similarities(mine, other)
    return words + meaning + 1 >= 3 * least


def _build_hit_by_comparing_profiles(mine: _ComparisonProfile, other: _ComparisonProfile) -> IndexHit:
    words, meaning = _compute_summary_similarities(mine, other)
    parts = {"words": words, "meaning": meaning}
    score = (words + meaning) / 2
    if mine.weighed_body is not None and other.weighed_body is not None:
        parts["body"] = _compute_weighted_term_overlap(mine.weighed_body, other.weighed_body)
        score = (2 * score + parts["body"]) / 3
    return IndexHit(id=other.id, score=min(1.0, score), parts={name: round(value, 3) for name, value in parts.items()})


def _compute_summary_similarities(mine: _ComparisonProfile, other: _ComparisonProfile) -> tuple[float, float]:
    """Return how similar the summaries are, in words and in meaning."""
    words = _compute_weighted_term_overlap(mine.summary, other.summary)
    return words, float(np.clip(other.vector @ mine.vector, 0.0, 1.0)) if len(mine.vector) else words


def _compute_weighted_term_overlap(a: _WeighedTerms, b: _WeighedTerms) -> float:
    """Return the weighted share of common terms, by rarity and frequency."""
    if len(b.codes) < len(a.codes):
        a, b = b, a
    if not len(b.codes):
        return 1.0
    at = np.minimum(np.searchsorted(b.codes, a.codes), len(b.codes) - 1)
    times = np.where(b.codes[at] == a.codes, np.minimum(a.times, b.times[at]), 0)
    shared = float((times * a.rarity).sum())
    return shared / (a.total + b.total - shared)


def _sort_hits(hits: list[IndexHit]) -> tuple[IndexHit, ...]:
    return tuple(sorted(hits, key=lambda hit: (-round(hit.score, 6), hit.id)))


_NONE: Codes = np.zeros(0, dtype=np.uint32)
log = logging.getLogger(__name__)
_MAX_SIMILAR_ITEMS, _FIRST_FEW, _FIRST_BY_TEXT = 40, 5, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class RankingCandidates:
    """The candidates of one request with their signals."""

    ids: tuple[str, ...]
    corpus: SearchCorpus
    asked: words.ParsedSearchRequest
    signals: signals.CandidateSignals
    usage: learned_requests.SimilarityToLearnedRequests


def _promote_most_similar_texts(order: list[int], found: RankingCandidates) -> list[int]:
    """Return the order with the documents whose texts are most like a text among the first few."""
    likeness = found.signals.text_similarity_column.tolist()
    if not any(likeness):
        return order
    # Ties go to the first.
    likest = sorted(order, key=lambda row: -round(likeness[row], 4))[:_FIRST_BY_TEXT]
    late = [row for row in likest if row not in order[:_FIRST_FEW]]
    last = [row for row in order[:_FIRST_FEW] if row not in likest][_FIRST_FEW - _FIRST_BY_TEXT :]
    moved = {*late, *last}
    front = [row for row in order[:_FIRST_FEW] if row not in moved]
    return [*front, *late, *(row for row in order if row not in late and row not in front)] if late else order


class DocumentSearcher:
    """Searches a corpus, and ranks with the requests learned from use. Every method is thread-safe.

    A search reads the corpus that is current when it begins; writers swap it for a changed copy and hold up no search.
    """

    def __init__(
        self,
        embedder: Embedder,
        corpus: SearchCorpus,
        requests: learned_requests.LearnedRequestSet,
        clock: Callable[[], float],
    ) -> None:
        self._embedder = embedder
        self._tier = get_calibration(embedder.name)
        self._clock = clock
        self._corpus = corpus
        self._learned = requests
        # Has the documents that are not in memory.
        self.server: PostgresSkillIndex | None = None
        # Documents of the server that count as removed.
        self._gone: frozenset[str] = frozenset()
        # The last frozen set of ids and its slots in a corpus: callers pass the same one again and again.
        self._among: tuple[SearchCorpus, Collection[str], Slots] | None = None
        # Words that describe the surrounding project, a weak prior.
        self.project: Collection[str] = ()
        # Problems that `describe` reports.
        self.notes: list[str] = []

    @property
    def embedder(self) -> Embedder:
        return self._embedder

    def search(
        self, query: str, *, k: int = 10, among: Collection[str] | None = None, refresh: bool = True
    ) -> SearchResults:
        """Return the best `k` documents for a request, among all or the given ids.

        With `refresh=False` changes by others are not loaded first, which is faster for thousands of calls in a row.
        """
        with self._open_current_corpus(refresh=refresh) as corpus:
            found = self._gather_candidates(corpus, query, among)
            if found is None:
                return SearchResults()
            ranked = ranking.score_candidates(found.signals, found.usage, self._tier, found.corpus.share_having_body)
            # Machines sum in different orders: scores that differ by less are equal and sorted by id.
            scores = (-np.round(ranked.scores, 4)).tolist()
            order = [row for _, _, row in sorted(zip(scores, found.ids, range(len(scores)), strict=True))]
            if signals.is_statement_or_long_task(found.asked):
                order = _promote_most_similar_texts(order, found)
            fit = ranking.compute_confidence(found.signals, found.usage, self._tier).tolist()
            top = order[: max(k, 0)]
            parts = explain_scores(found.corpus, found.signals, ranked, top)
            hits = (IndexHit(id=found.ids[row], score=fit[row], parts=why) for row, why in zip(top, parts, strict=True))
            sure = fit[order[0]]
            least = ranking.compute_offer_threshold(
                self._tier, found.corpus.document_count if among is None else len(among)
            )
            return SearchResults(hits=tuple(hits), fits=sure >= least, confidence=sure, min_confidence=max(0.0, least))

    def gather_candidates(
        self, query: str, *, among: Collection[str] | None = None, refresh: bool = False
    ) -> RankingCandidates | None:
        """Return the signals of every candidate before weighing, for calibration; None if nothing can match."""
        with self._open_current_corpus(refresh=refresh) as corpus:
            return self._gather_candidates(corpus, query, among)

    def _gather_candidates(
        self, corpus: SearchCorpus, query: str, among: Collection[str] | None
    ) -> RankingCandidates | None:
        asked = words.parse_request(query)
        if not asked.has_words:
            return None
        vectors = self._embed_texts(asked.list_request_and_part_texts(self._embedder.max_request_words))
        liking = self._learned.compute_similarity(asked.text, vectors[0], self._clock())
        liked = liking.list_items_with_most_similar_requests(_MAX_SIMILAR_ITEMS)
        if self.server is not None:
            terms = signals.WeighedRequest.from_request(
                corpus.with_rarity_over_remote_documents(self.server), asked, None
            )
            named = self.server.find_candidates(terms.codes, terms.worth, vectors[0], more=liked, among=among)
            corpus = self._build_corpus_with_remote_candidates(corpus, self.server, named)
        if not corpus.slots:
            return None
        more = np.array([corpus.slots[id] for id in liked if id in corpus.slots], dtype=np.int64)
        codes = np.array([hash_term(term) for term in words.extract_terms(" ".join(self.project))], dtype=np.uint32)
        allowed = self._find_slots_of_ids(corpus, among)
        found = signals.choose_candidates_and_compute_signals(
            corpus, self._embedder, asked, vectors, allowed, more, codes
        )
        if not len(found.slots):
            return None
        ids = tuple([corpus.ids[slot] for slot in found.slots.tolist()])
        usage = liking.select_similarities_of_items(ids)
        if liking.items:
            usage = ranking.penalize_unused_near_duplicates(usage, corpus.vectors[found.slots])
        return RankingCandidates(ids=ids, corpus=corpus, asked=asked, signals=found, usage=usage)

    def _build_corpus_with_remote_candidates(
        self, corpus: SearchCorpus, server: PostgresSkillIndex, named: LoadedIndexEntries
    ) -> SearchCorpus:
        """Return the documents in memory plus those that a server named, with rarity over the whole library."""
        corpus = corpus.with_rarity_over_remote_documents(server).copy()
        ours = corpus.slots.keys() | self._gone
        new = [at for at, entry in enumerate(named.entries) if entry.id not in ours]
        corpus.add_or_replace_and_remove_entries([named.entries[at] for at in new], named.vectors[new])
        return corpus

    def _find_slots_of_ids(self, corpus: SearchCorpus, among: Collection[str] | None) -> Slots | None:
        if among is None:
            return None
        # A temporary corpus of few candidates is not worth caching.
        if corpus is not self._corpus:
            return np.array(sorted(slot for id, slot in corpus.slots.items() if id in among), dtype=np.int64)
        kept = self._among
        if kept is not None and kept[0] is corpus and kept[1] is among:
            return kept[2]
        known = corpus.slots
        slots = np.array(sorted(known[id] for id in among if id in known), dtype=np.int64)
        if isinstance(among, frozenset):
            self._among = (corpus, among, slots)
        return slots

    def find_similar(
        self, to: SearchDocument | str, *, k: int = 5, min_cosine: float = 0.0, refresh: bool = True
    ) -> tuple[IndexHit, ...]:
        """Return the most similar documents, 1.0 for the same text, without the document itself.

        Documents below `min_cosine` are left out without a closer look, which saves time.
        """
        document = SearchDocument(id="", name="", description=to) if isinstance(to, str) else to
        with self._open_current_corpus(refresh=refresh) as corpus:
            entry = encode_document(document)
            vector = self._embed_texts([build_embedding_text(document)])[0]
            if self.server is not None:
                codes = np.unique(entry.summary_term_codes)
                worth = corpus.with_rarity_over_remote_documents(self.server).compute_rarity(codes)
                named = self.server.find_candidates(codes, worth, vector)
                corpus = self._build_corpus_with_remote_candidates(corpus, self.server, named)
            return find_documents_nearest_to_entry(corpus, entry, vector, k, min_cosine) if corpus.slots else ()

    def find_neighbours_of_each_document(self, min_score: float = 0.0) -> dict[str, tuple[IndexHit, ...]]:
        """Return for every document the few most similar ones, by at least `min_score`."""
        with self._open_current_corpus() as corpus:
            server = self.server
            return find_neighbours_of_each_document(
                corpus
                if server is None
                else self._build_corpus_with_remote_candidates(corpus, server, server.load_all_entries()),
                min_score,
            )

    def with_documents(self, documents: Sequence[SearchDocument], removed_ids: Sequence[str] = ()) -> DocumentSearcher:
        """Return a searcher with these documents added and those in `removed_ids` removed; nothing is stored."""
        return self._copy_with_changes(documents, removed_ids, self.server)

    def with_documents_replacing_server(self, documents: Sequence[SearchDocument]) -> DocumentSearcher:
        """Return a searcher with these documents in place of an unreachable server; nothing is stored."""
        return self._copy_with_changes(documents, (), None)

    def _copy_with_changes(
        self, documents: Sequence[SearchDocument], gone: Sequence[str], server: PostgresSkillIndex | None
    ) -> DocumentSearcher:
        vectors = self._embed_texts([build_embedding_text(document) for document in documents])
        entries = [encode_document(document) for document in documents]
        corpus = self._corpus.copy()
        corpus.add_or_replace_and_remove_entries(entries, vectors, gone)
        other = DocumentSearcher(self._embedder, corpus, self._learned, self._clock)
        other.server, other.project, other.notes, other._gone = server, self.project, self.notes, frozenset(gone)
        return other

    @contextmanager
    def _open_current_corpus(self, *, refresh: bool = True, repair: bool = True) -> Iterator[SearchCorpus]:
        """Yield the current corpus, which nobody changes any more; an index in a database refreshes first."""
        with nullcontext() if self.server is None else self.server.open_transaction():
            yield self._corpus

    def _embed_texts(self, texts: Sequence[str]) -> Vectors:
        """Embed texts; invalid vectors become zeros, so only the words of such a text count."""
        vectors = self._embedder.embed(texts).astype(np.float32)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            self._add_note(
                f"{self._embedder.name} gave {int(bad.sum())} vectors that are not numbers; words alone count there"
            )
            vectors[bad] = 0.0
        return vectors

    def _add_note(self, note: str) -> None:
        log.warning("Search: %s.", note)
        self.notes = [*self.notes[-9:], note]
