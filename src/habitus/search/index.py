"""The index of one collection: stored in the database, searched in memory, shared between processes.

Before every search one small query asks whether the database has changed, and only changes are loaded; this process's
own changes take the same way. Nothing unchanged is embedded twice. A file beside the database may hold the same
content, which is mapped instead of rebuilding it from rows.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid
from habitus.search import learned, ranking, store
from habitus.search.corpus import Corpus
from habitus.search.learned import Loaded
from habitus.search.model import Document, Report
from habitus.search.packed_index import give_back_memory, index_file
from habitus.search.searcher import Searcher
from habitus.search.texts import words
from habitus.search.texts.embedding import Embedder, Vectors, default_embedder
from habitus.search.texts.index_entry import digest, encode, meaning_of, text_digest
from habitus.search.texts.minilm import MiniLM
from habitus.search.texts.weights import Unavailable, find_weights
from habitus.search.texts.words import forget_codes

_AT_A_TIME = 2000
# The file is rewritten when more than one in so many documents differ from it.
_UNKEPT = 50


class Index(Searcher):
    """A search index on a database collection; open one with `SearchIndex.open`. Every method is thread-safe."""

    def __init__(
        self,
        engine: sa.Engine,
        collection: str,
        embedder: Embedder,
        clock: Callable[[], float],
        folder: Path | None = None,
    ) -> None:
        super().__init__(embedder, Corpus(embedder), learned.Learned(embedder.width), clock)
        self._engine = engine
        self._space = store.Space(collection=collection, model=embedder.name, width=embedder.width)
        self._file = None if folder is None else index_file(folder, collection, embedder)
        # Documents that differ from those in the file.
        self._unkept = 0
        self._generation = 0
        self._damaged: dict[str, None] = {}
        self._damaged_requests: list[learned.LearnedRequest] = []

    @classmethod
    def open(
        cls,
        engine: sa.Engine,
        collection: str,
        *,
        embedder: Embedder | None = None,
        clock: Callable[[], float] = time.time,
        folder: Path | None = None,
    ) -> Index:
        """Open the index of a collection; `folder` is where a file with the same content is kept for the next
        process.
        """
        index = cls(engine, collection, embedder or default_embedder(), clock, folder)
        # The caller may be about to replace everything, so repairs wait for the first search.
        index._look(hint=False)
        return index

    def supposing(self, documents: Sequence[Document], gone: Sequence[str] = ()) -> Searcher:
        self._look()
        return super().supposing(documents, gone)

    def put(self, documents: Iterable[Document], *, look: bool = True) -> int:
        """Add new or changed documents; return how many were changed.

        With `refresh=False` the next search reads the changes, which is faster for a series of calls.
        """
        newest = {document.id: document for document in documents}
        with self._hold_lock(look=look, hint=False):
            digests = {id: digest(document) for id, document in newest.items()}
            changed = [newest[id] for id, now in digests.items() if self._corpus.digest(id) != now]
        for start in range(0, len(changed), _AT_A_TIME):
            self._write(changed[start : start + _AT_A_TIME], digests)
        if look:
            forget_codes()
            self._look(hint=False)
        return len(changed)

    def _write(self, documents: Sequence[Document], digests: Mapping[str, str]) -> None:
        items = [(document, encode(document, digests.get(document.id, ""))) for document in documents]
        vectors = self._new_vectors({entry.meaning: meaning_of(document) for document, entry in items})
        with sql.writing(self._engine) as connection:
            generation = store.next_generation(connection, self._space.collection)
            store.write(connection, self._space.collection, generation, items)
            store.write_vectors(connection, self._space.model, vectors)

    def complete(self) -> None:
        """Repair damaged rows, and those of another model, now instead of at the next search."""
        self._look()

    def remove(self, ids: Iterable[str], *, forget: bool = True) -> None:
        """Remove documents, with the requests learned for them unless `forget` is False."""
        gone = list(dict.fromkeys(ids))
        with self._hold_lock():
            forgotten = [key for id in gone for key in self._learned.keys_of(id)] if forget else []
        with sql.writing(self._engine) as connection:
            store.next_generation(connection, self._space.collection)
            store.delete_requests(connection, self._space.collection, forgotten)
            store.delete(connection, self._space.collection, gone)
        self._look()

    def learn(self, id: str, text: str, *, weight: float = 1.0, when: float | None = None) -> None:
        """Remember that a request led to this document. The caller has redacted it."""
        self.learn_all([(id, text)], weight=weight, when=when)

    def learn_all(self, pairs: Iterable[tuple[str, str]], *, weight: float = 1.0, when: float | None = None) -> None:
        """Remember many pairs of id and request in one transaction."""
        if not np.isfinite(weight) or weight <= 0:
            return
        asked = [(id, words.own_words(text)) for id, text in pairs]
        asked = [(id, text) for id, text in asked if text]
        now = self._clock() if when is None else when
        vectors = self._new_vectors({text_digest(text): text for _, text in asked})
        with sql.writing(self._engine) as connection, self._lock:
            self._look(hint=False)
            new, gone = self._learned.with_new(asked, weight, now)
            generation = store.next_generation(connection, self._space.collection)
            store.write_requests(connection, self._space.collection, generation, new)
            store.delete_requests(connection, self._space.collection, gone)
            store.write_vectors(connection, self._space.model, vectors)
        self._look()

    def forget_learned(self, which: Callable[[str, str], bool] | Collection[str]) -> int:
        """Forget the requests learned for these ids, or those for which `which(id, text)` is true; return how many."""
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
        """Return the texts of all learned requests."""
        with self._hold_lock():
            return frozenset(past.text for past in self._learned.all())

    def learned_ids(self) -> frozenset[str]:
        """Return the ids that have learned requests."""
        with self._hold_lock(hint=False):
            return self._learned.items()

    def ids(self) -> frozenset[str]:
        """Return the ids of all documents."""
        with self._hold_lock():
            return frozenset(self._corpus.slots)

    @property
    def known_ids(self) -> Collection[str]:
        """The ids of the documents in memory as of the last refresh."""
        return self._corpus.slots.keys()

    @property
    def share_with_body(self) -> float:
        return self._corpus.share_with_body

    def describe(self) -> Report:
        """Return the size and the embedding model of the index, with notes about problems."""
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
    def _hold_lock(self, *, look: bool = True, hint: bool = True) -> Iterator[None]:
        """Refresh from the database, then hold the lock on the memory for this thread."""
        if look:
            self._look(hint=hint)
        with super()._hold_lock():
            yield

    def _look(self, *, hint: bool = True) -> None:
        """Load the changes since the last refresh, and repair damaged rows."""
        self._follow()
        if hint and (self._damaged or self._damaged_requests):
            self._hint()

    def _follow(self) -> None:
        space, seen = self._space, self._generation
        with sql.reading(self._engine) as connection, self._lock:
            now = store.generation(connection, space.collection)
            # Another thread may have refreshed meanwhile, to a later generation.
            if now == self._generation or now < self._generation != seen:
                return
            requests = store.load_requests(connection, space, after=self._generation)
            loaded = self._begin_with_file(connection) or store.load(connection, space, after=self._generation)
            self._among = None
            self._corpus.replace(loaded.entries, loaded.vectors)
            self._learned.take(requests.sound)
            # Deletions leave no row behind; a differing count reveals them.
            if len(self._corpus) + len(loaded.damaged) != store.count(connection, space.collection):
                gone = sorted(self._corpus.slots.keys() - store.ids(connection, space.collection))
                self._corpus.replace([], loaded.vectors[:0], gone)
            if len(self._learned) + len(requests.damaged) != store.request_count(connection, space.collection):
                self._learned.drop(self._learned.keys() - store.request_keys(connection, space.collection))
            self._generation = now
            self._unkept += len(loaded.entries)
            self._damaged = dict.fromkeys(
                [*(id for id in self._damaged if id not in self._corpus.slots), *loaded.damaged]
            )
            self._damaged_requests += requests.damaged
        # Frees much memory after a full load, before the file is written.
        del loaded, requests
        self._keep()

    def _begin_with_file(self, connection: sa.Connection) -> Loaded | None:
        """Use the index file, and return the entries it lacks; None if there is no usable file or it is not the first
        load.
        """
        kept = None if self._file is None or self._generation else Corpus.in_file(self._file, self._embedder)
        if kept is None:
            return None
        self._corpus = kept
        return store.load_some(connection, self._space, kept.follow(store.digests(connection, self._space.collection)))

    def _keep(self) -> None:
        """Rewrite the index file if much of it is outdated, and map it, which takes less memory."""
        with self._lock:
            if self._file is not None and self._unkept * _UNKEPT > len(self._corpus):
                self._corpus.keep(self._file)
                self._corpus = Corpus.in_file(self._file, self._embedder) or self._corpus
                self._among, self._unkept = None, 0
                give_back_memory()

    def _hint(self) -> None:
        """Recompute damaged rows, and those of another model, from their texts."""
        ids, requests = [*self._damaged], self._damaged_requests
        self._damaged, self._damaged_requests = {}, []
        self._say(f"{len(ids)} documents and {len(requests)} learned requests had no sound vector or terms; made anew")
        with sql.reading(self._engine) as connection:
            documents = store.read_documents(connection, self._space.collection, ids)
        for start in range(0, len(documents), _AT_A_TIME):
            self._write(documents[start : start + _AT_A_TIME], {})
        vectors = self._new_vectors({past.digest: past.text for past in requests})
        with sql.writing(self._engine) as connection:
            generation = store.next_generation(connection, self._space.collection)
            store.write_requests(connection, self._space.collection, generation, requests)
            store.write_vectors(connection, self._space.model, vectors)
        self._follow()

    def _new_vectors(self, texts: dict[str, str]) -> dict[str, Vectors]:
        """Return vectors for the texts that have none yet, by digest."""
        if not self._space.width:
            return {}
        with sql.reading(self._engine) as connection:
            known = store.known_vectors(connection, self._space, list(texts))
        missing = [key for key in texts if key not in known]
        return dict(zip(missing, self._vectors_of([texts[key] for key in missing]), strict=True))


# A search can wait until so many documents are embedded.
_FEW = 100


def open_index(
    engine: sa.Engine, collection: str, encoder_name: str, weights: Path, folder: Path | None = None
) -> Index:
    """Open an index with the configured encoder; while most documents lack its vectors, use the static one and add a
    note.
    """
    if is_soon_ready(engine, collection, encoder_name, weights):
        return Index.open(engine, collection, embedder=encoder(encoder_name, weights), folder=folder)
    index = Index.open(engine, collection, folder=folder)
    there, missing = _counts(engine, collection, encoder(encoder_name, weights))
    index.notes.append(f"{encoder_name} has {there} of {there + missing} ready; until then the static one answers")
    return index


def is_soon_ready(engine: sa.Engine, collection: str, encoder_name: str, weights: Path) -> bool:
    """Return whether so few documents lack a vector of the encoder that a search can wait for them."""
    return encoder_name == "static" or _counts(engine, collection, encoder(encoder_name, weights))[1] <= _FEW


def encoder(name: str, weights: Path) -> Embedder:
    """Return the `static` or `minilm` embedder; raise Invalid if its weights are missing, without a fallback."""
    if name == "static":
        return default_embedder()
    try:
        return _minilm(find_weights(weights))
    except Unavailable as missing:
        raise Invalid(
            f"The setting search.encoder is '{name}', and {missing}.",
            hint="Run 'habitus config set search.encoder minilm', which fetches it (90 MB), or set it to 'static'.",
        ) from None


def _counts(engine: sa.Engine, collection: str, embedder: Embedder) -> tuple[int, int]:
    """Return how many documents have a vector of this encoder, and how many have none."""
    space = store.Space(collection=collection, model=embedder.name, width=embedder.width)
    with sql.reading(engine) as connection:
        there = store.embedded_count(connection, space)
        return there, store.count(connection, collection) - there


@functools.cache
def _minilm(weights: Path) -> MiniLM:
    return MiniLM(weights)
