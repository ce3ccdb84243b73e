"""The index of one collection: stored in the database, searched in memory, shared between processes.

Before every search one small query asks whether the database has changed, and only changes are loaded; this process's
own changes take the same way. Nothing unchanged is embedded twice. A file beside the database may hold the same
content, which is mapped instead of rebuilding it from rows.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid
from habitus.search import learned_requests, ranking, store
from habitus.search.corpus import SearchCorpus
from habitus.search.model import IndexReport, SearchDocument
from habitus.search.packed_index import get_index_path, release_freed_memory
from habitus.search.searcher import DocumentSearcher
from habitus.search.texts import words
from habitus.search.texts.embedding import Embedder, Vectors, get_default_embedder
from habitus.search.texts.index_entry import (
    build_embedding_text,
    compute_document_digest,
    compute_normalized_text_digest,
    encode_document,
)
from habitus.search.texts.minilm import MiniLMEmbedder
from habitus.search.texts.weights import ModelUnavailableError, find_encoder_weights_folder
from habitus.search.texts.words import clear_term_code_cache

_BATCH_SIZE = 2000
# The file is rewritten when more than one in so many documents differ from it.
_FILE_REWRITE_RATIO = 50


class SearchIndex(DocumentSearcher):
    """A search index on a database collection; open one with `SearchIndex.open`. Every method is thread-safe."""

    def __init__(
        self,
        engine: sa.Engine,
        collection: str,
        embedder: Embedder,
        clock: Callable[[], float],
        folder: Path | None = None,
    ) -> None:
        super().__init__(embedder, SearchCorpus(embedder), learned_requests.LearnedRequestSet(embedder.width), clock)
        self._engine = engine
        self._space = store.CollectionEmbeddingModel(collection=collection, model=embedder.name, width=embedder.width)
        self._file = None if folder is None else get_index_path(folder, collection, embedder)
        # Documents that differ from those in the file.
        self._unkept = 0
        self._generation = 0
        # Held by writers while they change a copy of the corpus.
        self._lock = threading.RLock()
        self._damaged: dict[str, None] = {}
        self._damaged_requests: list[learned_requests.LearnedRequest] = []

    @classmethod
    def open(
        cls,
        engine: sa.Engine,
        collection: str,
        *,
        embedder: Embedder | None = None,
        clock: Callable[[], float] = time.time,
        folder: Path | None = None,
    ) -> SearchIndex:
        """Open the index of a collection; `folder` is where a file with the same content is kept for the next
        process.
        """
        index = cls(engine, collection, embedder or get_default_embedder(), clock, folder)
        # The caller may be about to replace everything, so repairs wait for the first search.
        index._load_changes_and_repair_rows(repair=False)
        return index

    def with_documents(self, documents: Sequence[SearchDocument], removed_ids: Sequence[str] = ()) -> DocumentSearcher:
        self._load_changes_and_repair_rows()
        return super().with_documents(documents, removed_ids)

    def put_documents(self, documents: Iterable[SearchDocument], *, refresh: bool = True) -> int:
        """Add new or changed documents; return how many were changed.

        With `refresh=False` the next search reads the changes, which is faster for a series of calls.
        """
        newest = {document.id: document for document in documents}
        digests = {id: compute_document_digest(document) for id, document in newest.items()}
        with self._open_current_corpus(refresh=refresh, repair=False) as corpus:
            changed = [newest[id] for id, now in digests.items() if corpus.get_digest_of_document(id) != now]
        for some in sql.split_batches(changed, _BATCH_SIZE):
            self._write_documents(some, digests)
        if refresh:
            clear_term_code_cache()
            self._load_changes_and_repair_rows(repair=False)
        return len(changed)

    def _write_documents(self, documents: Sequence[SearchDocument], digests: Mapping[str, str]) -> None:
        items = [(document, encode_document(document, digests.get(document.id, ""))) for document in documents]
        vectors = self._compute_missing_vectors(
            {entry.meaning: build_embedding_text(document) for document, entry in items}
        )
        with sql.write_transaction(self._engine) as conn:
            generation = store.increment_collection_generation(conn, self._space.collection)
            store.write_documents(conn, self._space.collection, generation, items)
            store.write_vectors(conn, self._space.model, vectors)

    def repair(self) -> None:
        """Repair damaged rows, and those of another model, now instead of at the next search."""
        self._load_changes_and_repair_rows()

    def remove_documents(self, ids: Iterable[str], *, forget: bool = True) -> None:
        """Remove documents, with the requests learned for them unless `forget` is False."""
        gone = list(dict.fromkeys(ids))
        with self._open_current_corpus():
            forgotten = [key for id in gone for key in self._learned.list_keys_of_item(id)] if forget else []
        with sql.write_transaction(self._engine) as conn:
            store.increment_collection_generation(conn, self._space.collection)
            store.delete_learned_requests(conn, self._space.collection, forgotten)
            store.delete_documents(conn, self._space.collection, gone)
        self._load_changes_and_repair_rows()

    def learn_request(self, id: str, text: str, *, weight: float = 1.0, at: float | None = None) -> None:
        """Remember that a request led to this document. The caller has redacted it."""
        self.learn_requests([(id, text)], weight=weight, at=at)

    def learn_requests(self, pairs: Iterable[tuple[str, str]], *, weight: float = 1.0, at: float | None = None) -> None:
        """Remember many pairs of id and request in one transaction."""
        if not np.isfinite(weight) or weight <= 0:
            return
        asked = [(id, words.remove_quotations_and_pasted_text(text)) for id, text in pairs]
        asked = [(id, text) for id, text in asked if text]
        now = self._clock() if at is None else at
        vectors = self._compute_missing_vectors({compute_normalized_text_digest(text): text for _, text in asked})
        with sql.write_transaction(self._engine) as conn, self._lock:
            self._load_changes_and_repair_rows(repair=False)
            new, gone = self._learned.plan_requests_to_store_and_delete(asked, weight, now)
            generation = store.increment_collection_generation(conn, self._space.collection)
            store.write_learned_requests(conn, self._space.collection, generation, new)
            store.delete_learned_requests(conn, self._space.collection, gone)
            store.write_vectors(conn, self._space.model, vectors)
        self._load_changes_and_repair_rows()

    def forget_requests(self, texts: Collection[str]) -> int:
        """Forget the learned requests with these texts; return how many."""
        with self._open_current_corpus():
            gone = [(past.item, past.digest) for past in self._learned.list_requests() if past.text in texts]
        with sql.write_transaction(self._engine) as conn:
            store.increment_collection_generation(conn, self._space.collection)
            store.delete_learned_requests(conn, self._space.collection, gone)
            store.delete_unused_vectors(conn, [digest for _, digest in gone])
        self._load_changes_and_repair_rows()
        return len(gone)

    def list_learned_request_texts(self) -> frozenset[str]:
        """Return the texts of all learned requests."""
        with self._open_current_corpus():
            return frozenset(past.text for past in self._learned.list_requests())

    def list_ids_with_learned_requests(self) -> frozenset[str]:
        """Return the ids that have learned requests."""
        with self._open_current_corpus(repair=False):
            return self._learned.list_ids_of_items_with_requests()

    def list_ids(self) -> frozenset[str]:
        """Return the ids of all documents."""
        with self._open_current_corpus() as corpus:
            return frozenset(corpus.slots)

    @property
    def loaded_document_ids(self) -> Collection[str]:
        """The ids of the documents in memory as of the last refresh."""
        return self._corpus.slots.keys()

    def describe(self) -> IndexReport:
        """Return the size and the embedding model of the index, with notes about problems."""
        with self._open_current_corpus() as corpus:
            documents = len(corpus) + (0 if self.server is None else self.server.documents)
            return IndexReport(
                collection=self._space.collection,
                documents=documents,
                learned=len(self._learned),
                embedding=self._embedder.name,
                floor=ranking.compute_offer_threshold(self._tier, documents),
                notes=tuple(self.notes),
            )

    @contextmanager
    def _open_current_corpus(self, *, refresh: bool = True, repair: bool = True) -> Iterator[SearchCorpus]:
        """Refresh from the database, then yield the current corpus."""
        if refresh:
            self._load_changes_and_repair_rows(repair=repair)
        with super()._open_current_corpus() as corpus:
            yield corpus

    def _load_changes_and_repair_rows(self, *, repair: bool = True) -> None:
        """Load the changes since the last refresh, and repair damaged rows."""
        self._load_changes()
        if repair and (self._damaged or self._damaged_requests):
            self._recompute_damaged_rows()

    def _load_changes(self) -> None:
        space, seen = self._space, self._generation
        with sql.read_transaction(self._engine) as conn:
            now = store.get_generation(conn, space.collection)
            # Nearly every search returns here, without waiting for a writer.
            if now != self._generation:
                with self._lock:
                    self._swap_in_corpus_of_generation(conn, now, seen)
        self._rewrite_index_file_if_outdated()

    def _swap_in_corpus_of_generation(self, conn: sa.Connection, now: int, seen: int) -> None:
        """Swap the corpus for a copy with the changes up to this generation; `seen` was the last one before."""
        # Another thread may have refreshed meanwhile, to a later generation.
        if now == self._generation or now < self._generation != seen:
            return
        space = self._space
        requests = store.load_changed_learned_requests(conn, space, after=self._generation)
        kept = None if self._file is None or self._generation else SearchCorpus.load_file(self._file, self._embedder)
        if kept is None:
            corpus, new = self._corpus.copy(), store.load_changed_entries(conn, space, after=self._generation)
        else:
            outdated = kept.drop_outdated_and_list_ids_to_load(store.load_document_digests(conn, space.collection))
            corpus, new = kept, store.load_entries_by_id(conn, space, outdated)
        corpus.add_or_replace_and_remove_entries(new.entries, new.vectors)
        self._learned.add_requests(requests.sound)
        # Deletions leave no row behind; a differing count reveals them.
        if len(corpus) + len(new.damaged) != store.count_documents(conn, space.collection):
            gone = sorted(corpus.slots.keys() - store.list_document_ids(conn, space.collection))
            corpus.add_or_replace_and_remove_entries([], new.vectors[:0], gone)
        if len(self._learned) + len(requests.damaged) != store.count_learned_requests(conn, space.collection):
            self._learned.drop_requests(
                self._learned.list_request_keys() - store.list_request_keys(conn, space.collection)
            )
        self._corpus, self._generation = corpus, now
        self._unkept += len(new.entries)
        self._damaged = dict.fromkeys([*(id for id in self._damaged if id not in corpus.slots), *new.damaged])
        self._damaged_requests += requests.damaged

    def _rewrite_index_file_if_outdated(self) -> None:
        """Rewrite the index file if much of it is outdated, and map it, which takes less memory."""
        if self._file is None or not self._is_file_outdated:
            return
        with self._lock:
            # Another thread may have written it meanwhile.
            if self._is_file_outdated:
                corpus = self._corpus.copy()
                corpus.save_file(self._file)
                self._corpus, self._unkept = SearchCorpus.load_file(self._file, self._embedder) or corpus, 0
                del corpus
                release_freed_memory()

    @property
    def _is_file_outdated(self) -> bool:
        return self._unkept * _FILE_REWRITE_RATIO > len(self._corpus)

    def _recompute_damaged_rows(self) -> None:
        """Recompute damaged rows, and those of another model, from their texts."""
        ids, requests = [*self._damaged], self._damaged_requests
        self._damaged, self._damaged_requests = {}, []
        self._add_note(
            f"{len(ids)} documents and {len(requests)} learned requests had no sound vector or terms; made anew"
        )
        with sql.read_transaction(self._engine) as conn:
            documents = store.load_documents_by_id(conn, self._space.collection, ids)
        for some in sql.split_batches(documents, _BATCH_SIZE):
            self._write_documents(some, {})
        vectors = self._compute_missing_vectors({past.digest: past.text for past in requests})
        with sql.write_transaction(self._engine) as conn:
            generation = store.increment_collection_generation(conn, self._space.collection)
            store.write_learned_requests(conn, self._space.collection, generation, requests)
            store.write_vectors(conn, self._space.model, vectors)
        self._load_changes()

    def _compute_missing_vectors(self, texts: dict[str, str]) -> dict[str, Vectors]:
        """Return vectors for the texts that have none yet, by digest."""
        if not self._space.width:
            return {}
        with sql.read_transaction(self._engine) as conn:
            known = store.find_text_digests_with_valid_vector(conn, self._space, list(texts))
        missing = [key for key in texts if key not in known]
        return dict(zip(missing, self._embed_texts([texts[key] for key in missing]), strict=True))


# A search can wait until so many documents are embedded.
_MAX_MISSING_VECTORS = 100


def open_index(engine: sa.Engine, collection: str, encoder: str, weights: Path, dir: Path | None = None) -> SearchIndex:
    """Open an index with the configured encoder; while most documents lack its vectors, use the static one and add a
    note.
    """
    if has_few_documents_without_vector(engine, collection, encoder, weights):
        return SearchIndex.open(engine, collection, embedder=build_encoder(encoder, weights), folder=dir)
    index = SearchIndex.open(engine, collection, folder=dir)
    there, missing = _count_documents_with_and_without_vector(engine, collection, build_encoder(encoder, weights))
    index.notes.append(f"{encoder} has {there} of {there + missing} ready; until then the static one answers")
    return index


def has_few_documents_without_vector(engine: sa.Engine, collection: str, encoder_name: str, weights: Path) -> bool:
    """Return whether so few documents lack a vector of the encoder that a search can wait for them."""
    return (
        encoder_name == "static"
        or _count_documents_with_and_without_vector(engine, collection, build_encoder(encoder_name, weights))[1]
        <= _MAX_MISSING_VECTORS
    )


def build_encoder(name: str, weights: Path) -> Embedder:
    """Return the `static` or `minilm` embedder; raise Invalid if its weights are missing, without a fallback."""
    if name == "static":
        return get_default_embedder()
    try:
        return _load_minilm(find_encoder_weights_folder(weights))
    except ModelUnavailableError as missing:
        raise Invalid(
            f"The setting search.encoder is '{name}', and {missing}.",
            hint="Run 'habitus config set search.encoder minilm', which fetches it (90 MB), or set it to 'static'.",
        ) from None


def _count_documents_with_and_without_vector(engine: sa.Engine, collection: str, embedder: Embedder) -> tuple[int, int]:
    """Return how many documents have a vector of this encoder, and how many have none."""
    space = store.CollectionEmbeddingModel(collection=collection, model=embedder.name, width=embedder.width)
    with sql.read_transaction(engine) as conn:
        there = store.count_embedded_documents(conn, space)
        return there, store.count_documents(conn, collection) - there


@functools.cache
def _load_minilm(weights: Path) -> MiniLMEmbedder:
    return MiniLMEmbedder(weights)
