"""The index of one collection: kept in the database, searched in memory, shared with other processes.

Memory changes only by reading what the database says has changed, before every search, by one small query;
this process's own changes take the same way. Nothing unchanged is embedded twice. A part of the documents may stay
in a server, which then names the candidates of each search.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from habitus import sql
from habitus.search import learned, likeness, ranking, request, signals, store, words
from habitus.search.calibration import tier_of
from habitus.search.corpus import Corpus
from habitus.search.embedding import Embedder, Vectors, default_embedder
from habitus.search.entry import digest, encode, meaning_of, text_digest
from habitus.search.explain import explain
from habitus.search.model import Document, Hit, Report, Results
from habitus.search.postings import Slots
from habitus.search.server import ServerIndex
from habitus.search.words import code, forget_codes

log = logging.getLogger(__name__)

_LIKED = 40
_AT_A_TIME = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexEvidence:
    """The candidates of one request and what speaks for each."""

    ids: tuple[str, ...]
    corpus: Corpus
    asked: request.SearchRequest
    signals: signals.Signals
    usage: ranking.UseCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class Supposed:
    """An index as it might be. It asks no database, and never learns what others change."""

    index: Index

    def search(self, query: str, *, k: int = 10, among: Collection[str] | None = None) -> Results:
        return self.index.search(query, k=k, among=among, look=False)

    def similar(self, to: Document, *, k: int = 5) -> tuple[Hit, ...]:
        return self.index.similar(to, k=k, look=False)


class Index:
    """Open one with `Index.open`; every method may be called from any thread."""

    def __init__(self, engine: sa.Engine, collection: str, embedder: Embedder, clock: Callable[[], float]) -> None:
        self._engine = engine
        self._space = store.Space(collection=collection, model=embedder.name, width=embedder.width)
        self._embedder = embedder
        self._tier = tier_of(embedder.name)
        self._clock = clock
        self._corpus = Corpus(embedder)
        self._learned = learned.Learned(embedder.width)
        self._generation = 0
        self.server: ServerIndex | None = None  # has the documents that are not in this index
        self._gone: frozenset[str] = frozenset()  # the server's documents that are supposed not to be there
        self._among: tuple[Collection[str], Slots] | None = None  # the last ids that can't change, and their slots
        self.project: Collection[str] = ()  # words that say what the project around is: a weak prior
        self.notes: list[str] = []  # what `describe` tells besides
        self._lock = threading.RLock()  # never held by one who waits for the database: who writes may want to search

    @property
    def embedder(self) -> Embedder:
        return self._embedder

    @classmethod
    def open(
        cls,
        engine: sa.Engine,
        collection: str,
        *,
        embedder: Embedder | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Index:
        index = cls(engine, collection, embedder or default_embedder(), clock)
        index._look()
        return index

    def search(self, query: str, *, k: int = 10, among: Collection[str] | None = None, look: bool = True) -> Results:
        """The best `k` documents for a request, of all or only `among` these ids.

        Whoever asks thousands of times in a row has looked once for what others changed, and need not again.
        """
        with self._hold_lock(look=look):
            found = self.evidence(query, among=among, look=False)
            if found is None:
                return Results()
            ranked = ranking.rank(found.signals, found.usage, self._tier, found.corpus.share_with_body)
            # Machines add up in different orders: what differs by less than this is equal, and comes by its id.
            scores = np.round(ranked.scores, 4).tolist()
            order = sorted(range(len(found.ids)), key=lambda row: (-scores[row], found.ids[row]))
            fit = ranking.confidence(found.signals, found.usage, self._tier).tolist()
            best = order[: max(k, 0)]
            parts = explain(found.corpus, found.asked, found.signals, ranked, best)
            hits = (Hit(id=found.ids[row], score=fit[row], parts=why) for row, why in zip(best, parts, strict=True))
            sure = fit[order[0]]
            least = ranking.floor(self._tier, found.corpus.documents if among is None else len(among))
            return Results(hits=tuple(hits), fits=sure >= least, confidence=sure, least=max(0.0, least))

    def evidence(self, query: str, *, among: Collection[str] | None = None, look: bool = True) -> IndexEvidence | None:
        """What speaks for every candidate, before it is weighed; for calibration. None when nothing can match."""
        with self._hold_lock(look=look):
            asked = request.read(query)
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
            ids = tuple(corpus.entries[slot].id for slot in found.slots.tolist())
            usage = ranking.UseCounts.of(liking, ids).beside_twins(corpus.vectors[found.slots])
            return IndexEvidence(ids=ids, corpus=corpus, asked=asked, signals=found, usage=usage)

    def _with(self, server: ServerIndex, named: store.Loaded) -> Corpus:
        """The documents in memory and those that a server named; what is rare is rare in the whole library."""
        corpus = self._corpus.beside(server).copy()
        ours = corpus.slots.keys() | self._gone
        new = [at for at, entry in enumerate(named.entries) if entry.id not in ours]
        corpus.replace([named.entries[at] for at in new], named.vectors[new])
        return corpus

    def _slots_of(self, corpus: Corpus, among: Collection[str] | None) -> Slots | None:
        if among is None:
            return None
        if corpus is not self._corpus:  # a few of many
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
        """The nearest documents, 1.0 for the same text; a document is not similar to itself.

        What means something else, below `least_meaning`, is left out without a closer look, which saves time.
        """
        document = Document(id="", name="", description=to) if isinstance(to, str) else to
        with self._hold_lock(look=look):
            corpus, entry = self._corpus, encode(document)
            vector = self._vectors_of([meaning_of(document)])[0]
            if self.server is not None:
                codes = np.unique(entry.summary)
                worth = corpus.beside(self.server).rarity(codes)
                corpus = self._with(self.server, self.server.candidates(codes, worth, vector))
            return likeness.nearest(corpus, entry, vector, k, least_meaning) if corpus.slots else ()

    def neighbours(self, least: float = 0.0) -> dict[str, tuple[Hit, ...]]:
        """For every document the few that are most like it, by at least so much."""
        with self._hold_lock():
            server = self.server
            corpus = self._corpus if server is None else self._with(server, server.everything())
            return likeness.neighbours(corpus, least)

    def supposing(self, documents: Sequence[Document], gone: Sequence[str] = ()) -> Supposed:
        """The same with these documents and without those that are gone, to be searched; nothing of it is kept."""
        with self._hold_lock():
            other = copy.copy(self)
            other._among, other._corpus, other._gone = None, self._corpus.copy(), frozenset(gone)
            vectors = self._vectors_of([meaning_of(document) for document in documents])
            other._corpus.replace([encode(document) for document in documents], vectors, gone)
            return Supposed(index=other)

    def without_server(self, documents: Sequence[Document]) -> Supposed:
        """The same with these documents in place of a server that is away; asks nobody, and nothing of it is kept."""
        vectors = self._vectors_of([meaning_of(document) for document in documents])
        entries = [encode(document) for document in documents]
        with self._lock:
            other = copy.copy(self)
            other.server, other._among, other._corpus = None, None, self._corpus.copy()
        other._corpus.replace(entries, vectors)
        return Supposed(index=other)

    def put(self, documents: Iterable[Document], *, look: bool = True) -> int:
        """Take documents in, new or changed; says how many were not there like that already.

        Whoever puts many, some at a time, need not look before the last: the next search does.
        """
        newest = {document.id: document for document in documents}
        with self._hold_lock(look=look):
            slots, entries = self._corpus.slots, self._corpus.entries
            changed = [
                document
                for id, document in newest.items()
                if id not in slots or entries[slots[id]].digest != digest(document)
            ]
        for start in range(0, len(changed), _AT_A_TIME):
            self._write(changed[start : start + _AT_A_TIME])
        if look:
            forget_codes()
            self._look()
        return len(changed)

    def _write(self, documents: Sequence[Document]) -> None:
        items = [(document, encode(document)) for document in documents]
        vectors = self._new_vectors({entry.meaning: meaning_of(document) for document, entry in items})
        with sql.writing(self._engine) as connection:
            generation = store.next_generation(connection, self._space.collection)
            store.write(connection, self._space.collection, generation, items)
            store.write_vectors(connection, self._space.model, vectors)

    def remove(self, ids: Iterable[str], *, forget: bool = True) -> None:
        """Let documents go, with what was learned for them unless they only are elsewhere now."""
        gone = list(dict.fromkeys(ids))
        with self._hold_lock():
            forgotten = [key for id in gone for key in self._learned.keys_of(id)] if forget else []
        with sql.writing(self._engine) as connection:
            store.next_generation(connection, self._space.collection)
            store.delete_requests(connection, self._space.collection, forgotten)
            store.delete(connection, self._space.collection, gone)
        self._look()

    def learn(self, id: str, text: str, *, weight: float = 1.0, when: float | None = None) -> None:
        """Remember that this was a request for this document. The caller has redacted it."""
        self.learn_all([(id, text)], weight=weight, when=when)

    def learn_all(self, pairs: Iterable[tuple[str, str]], *, weight: float = 1.0, when: float | None = None) -> None:
        """`learn` for many pairs of id and text at once."""
        if not np.isfinite(weight) or weight <= 0:
            return
        asked = [(id, request.own_words(text)) for id, text in pairs]
        asked = [(id, text) for id, text in asked if text]
        now = self._clock() if when is None else when
        vectors = self._new_vectors({text_digest(text): text for _, text in asked})
        with sql.writing(self._engine) as connection, self._lock:
            self._look()
            new, gone = self._learned.with_new(asked, weight, now)
            generation = store.next_generation(connection, self._space.collection)
            store.write_requests(connection, self._space.collection, generation, new)
            store.delete_requests(connection, self._space.collection, gone)
            store.write_vectors(connection, self._space.model, vectors)
        self._look()

    def forget_learned(self, which: Callable[[str, str], bool] | Collection[str]) -> int:
        """Forget the learned requests of these ids, or those for which `which(id, text)` is true."""
        with self._hold_lock():
            gone = [
                (past.item, past.digest)
                for past in self._learned.all()
                if (which(past.item, past.text) if callable(which) else past.item in which)
            ]
        with sql.writing(self._engine) as connection:
            store.next_generation(connection, self._space.collection)
            store.delete_requests(connection, self._space.collection, gone)
            store.drop_vectors(connection, [digest for _, digest in gone])
        self._look()
        return len(gone)

    def learned_texts(self) -> frozenset[str]:
        with self._hold_lock():
            return frozenset(past.text for past in self._learned.all())

    def learned_ids(self) -> frozenset[str]:
        """The ids for which anything was learned."""
        with self._hold_lock():
            return self._learned.items()

    def ids(self) -> frozenset[str]:
        """The ids of all documents."""
        with self._hold_lock():
            return frozenset(self._corpus.slots)

    @property
    def known_ids(self) -> Collection[str]:
        """The ids of the documents in memory as of the last look."""
        return self._corpus.slots.keys()

    @property
    def share_with_body(self) -> float:
        return self._corpus.share_with_body

    def describe(self) -> Report:
        with self._hold_lock():
            documents = len(self._corpus) + (0 if self.server is None else self.server.documents)
            return Report(
                collection=self._space.collection,
                documents=documents,
                learned=len(self._learned),
                embedding=self._embedder.name,
                floor=ranking.floor(self._tier, documents),
                notes=tuple(self.notes),
            )

    @contextmanager
    def _hold_lock(self, *, look: bool = True) -> Iterator[None]:
        """What is in memory, as it is in the database now, for one thread alone."""
        if look:
            self._look()
        with nullcontext() if self.server is None else self.server.at_once(), self._lock:
            yield

    def _look(self) -> None:
        """Read what has changed since the last look, and mend what is damaged."""
        space, seen = self._space, self._generation
        with sql.reading(self._engine) as connection, self._lock:
            now = store.generation(connection, space.collection)
            if now == self._generation or now < self._generation != seen:  # somebody has looked since, and saw more
                return
            loaded = store.load(connection, space, after=self._generation)
            requests = store.load_requests(connection, space, after=self._generation)
            self._among = None
            self._corpus.replace(loaded.entries, loaded.vectors)
            self._learned.take(requests.sound)
            if len(self._corpus) + len(loaded.damaged) != store.count(connection, space.collection):
                self._corpus.replace(
                    [], loaded.vectors[:0], sorted(self._corpus.slots.keys() - store.ids(connection, space.collection))
                )
            if len(self._learned) + len(requests.damaged) != store.request_count(connection, space.collection):
                self._learned.drop(self._learned.keys() - store.request_keys(connection, space.collection))
            self._generation = now
        if loaded.damaged or requests.damaged:
            self._mend(loaded.damaged, requests.damaged)

    def _mend(self, ids: Sequence[str], requests: Sequence[learned.LearnedRequest]) -> None:
        """Make rows anew from their texts: they were damaged, or another model's."""
        self._say(f"{len(ids)} documents and {len(requests)} learned requests had no sound vector or terms; made anew")
        with sql.reading(self._engine) as connection:
            documents = store.read_documents(connection, self._space.collection, ids)
        for start in range(0, len(documents), _AT_A_TIME):
            self._write(documents[start : start + _AT_A_TIME])
        vectors = self._new_vectors({past.digest: past.text for past in requests})
        with sql.writing(self._engine) as connection:
            generation = store.next_generation(connection, self._space.collection)
            store.write_requests(connection, self._space.collection, generation, requests)
            store.write_vectors(connection, self._space.model, vectors)
        self._look()

    def _new_vectors(self, texts: dict[str, str]) -> dict[str, Vectors]:
        """Vectors of the texts that have none yet, by digest."""
        if not self._space.width:
            return {}
        with sql.reading(self._engine) as connection:
            known = store.known_vectors(connection, self._space, list(texts))
        missing = [key for key in texts if key not in known]
        return dict(zip(missing, self._vectors_of([texts[key] for key in missing]), strict=True))

    def _vectors_of(self, texts: Sequence[str]) -> Vectors:
        """A text whose vector is not a number is left to its words."""
        vectors = self._embedder.embed(texts).astype(np.float32)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            self._say(
                f"{self._embedder.name} gave {int(bad.sum())} vectors that are not numbers; words alone count there"
            )
            vectors[bad] = 0.0
        return vectors

    def _say(self, note: str) -> None:
        log.warning("Search index '%s': %s.", self._space.collection, note)
        self.notes = [*self.notes[-9:], note]
