"""An index opened from its file, without the database's toolkit; what differs from the file is read from the rows."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from habitus.search.corpus import Corpus
from habitus.search.embedding import static_embedder
from habitus.search.learned import Learned
from habitus.search.packed import index_file
from habitus.search.rows import load_entries, load_requests
from habitus.search.searcher import Searcher
from habitus.search.weights import Unavailable

_DIGESTS = "SELECT id, digest FROM search_documents WHERE collection = ?"
_ENTRY = (
    "SELECT d.id, d.digest, d.meaning, d.says_when, d.codes, d.words, v.vector FROM search_documents d"
    " LEFT JOIN search_vectors v ON v.digest = d.meaning AND v.model = ? WHERE d.collection = ? AND d.id = ?"
)
_REQUESTS = (
    "SELECT l.document, l.text, l.weight, l.at, v.vector FROM search_learned l"
    " LEFT JOIN search_vectors v ON v.digest = l.digest AND v.model = ? WHERE l.collection = ?"
)
_MOST = 300  # documents that are read one by one


def open_kept(connection: sqlite3.Connection, folder: Path, collection: str) -> Searcher | None:
    """With the static encoder; None where the index must be opened in the ordinary way."""
    try:
        embedder = static_embedder()
    except Unavailable:
        return None
    corpus = Corpus.in_file(index_file(folder, collection, embedder), embedder)
    if corpus is None:
        return None
    wanted = corpus.follow(dict(connection.execute(_DIGESTS, (collection,)).fetchall()))
    if len(wanted) > _MOST:
        return None
    rows = [row for id in wanted for row in connection.execute(_ENTRY, (embedder.name, collection, id))]
    documents = load_entries(rows, embedder.width)
    requests = load_requests(connection.execute(_REQUESTS, (embedder.name, collection)), embedder.width)
    if documents.damaged or requests.damaged:
        return None
    corpus.replace(documents.entries, documents.vectors)
    learned = Learned(embedder.width)
    learned.take(requests.sound)
    return Searcher(embedder, corpus, learned, time.time)
