"""The tables of the stored index, with reading and writing. Damaged rows are reported, never trusted."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.search import learned_requests
from habitus.search.learned_requests import is_valid_vector
from habitus.search.model import SearchDocument
from habitus.search.texts.index_entry import IndexEntry, Vector, pack_entry
from habitus.sql import build_primary_key_columns, build_required_columns, metadata

# The generation rises with every change: a process that has seen a lower number has something to load.
collections = sa.Table(
    "search_collections",
    metadata,
    sa.Column("collection", sa.Text, primary_key=True),
    sa.Column("generation", sa.BigInteger, nullable=False),
)

# Long texts come last, because reading the other columns of a row then does not touch them.
documents = sa.Table(
    "search_documents",
    metadata,
    *build_primary_key_columns(sa.Text, "collection", "id"),
    sa.Column("generation", sa.BigInteger, nullable=False),
    *build_required_columns(sa.Text, "digest", "meaning"),
    sa.Column("says_when", sa.Boolean, nullable=False),
    sa.Column("codes", sa.LargeBinary, nullable=False),
    *build_required_columns(sa.Text, "words", "name", "cue", "tags", "description", "body"),
    sa.Index("search_documents_generation", "collection", "generation"),
)

# Keyed by the digest of the text: documents and hosts that share a text embed it once per model.
vectors = sa.Table(
    "search_vectors",
    metadata,
    *build_primary_key_columns(sa.Text, "model", "digest"),
    sa.Column("vector", sa.LargeBinary, nullable=False),
)

requests_table = sa.Table(
    "search_learned",
    metadata,
    *build_primary_key_columns(sa.Text, "collection", "document", "digest"),
    sa.Column("generation", sa.BigInteger, nullable=False),
    *build_required_columns(sa.Float, "weight", "at"),
    sa.Column("text", sa.Text, nullable=False),
    sa.Index("search_learned_generation", "collection", "generation"),
)


RequestKey = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionEmbeddingModel:
    """A collection and the embedding model of its vectors."""

    collection: str
    model: str
    width: int


# Built once, like others below: building a statement takes longer than running it, and every search runs this one.
_GENERATION = sa.select(collections.c.generation).where(collections.c.collection == sa.bindparam("of"))
_RAISED = (
    sa.update(collections)
    .where(collections.c.collection == sa.bindparam("of"))
    .values(generation=collections.c.generation + 1)
    .returning(collections.c.generation)
)


def get_generation(conn: sa.Connection, collection: str) -> int:
    """Return the generation of a collection; 0 if it has none."""
    return conn.execute(_GENERATION, {"of": collection}).scalar() or 0


def increment_all_collection_generations(conn: sa.Connection) -> int:
    """Raise the generation of every collection; return the highest."""
    names = conn.execute(sa.select(collections.c.collection)).scalars().all()
    return max((increment_collection_generation(conn, name) for name in names), default=1)


def increment_collection_generation(conn: sa.Connection, collection: str) -> int:
    """Raise the generation of a collection and return it."""
    # The row stays locked until the commit, so generations become visible in order.
    found = conn.execute(_RAISED, {"of": collection}).scalar()
    if found is None:
        sql.insert_missing_rows(conn, collections, [{"collection": collection, "generation": 0}])
        found = conn.execute(_RAISED, {"of": collection}).scalar_one()
    return int(found)


def raise_collection_generation_to(conn: sa.Connection, collection: str, generation: int) -> None:
    """Set the generation of a collection that counts by another one's; it never falls."""
    row = {"collection": collection, "generation": generation}
    sql.upsert_rows(
        conn, collections, [row], lambda new: {"generation": sa.func.greatest(collections.c.generation, new.generation)}
    )


def load_changed_entries(
    conn: sa.Connection, space: CollectionEmbeddingModel, *, after: int
) -> learned_requests.LoadedIndexEntries:
    """Return the entries changed after a generation; their texts stay in the database."""
    return learned_requests.parse_index_entry_rows(
        conn.execute(_build_query_of_changed_entries(space), {"after": after}), space.width
    )


@functools.cache
def _build_query_of_changed_entries(space: CollectionEmbeddingModel) -> sa.Select[Any]:
    return _build_entry_query(space, documents.c.generation > sa.bindparam("after")).order_by(documents.c.id)


def _build_entry_query(space: CollectionEmbeddingModel, which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    table = documents.c
    columns = (table.id, table.digest, table.meaning, table.says_when, table.codes, table.words)
    query = _join_vectors_to_query(sa.select(*columns, vectors.c.vector), documents, table.meaning, space)
    return query.where(table.collection == space.collection, which)


def _join_vectors_to_query(
    query: sa.Select[Any], table: sa.Table, digest: sa.Column[Any], space: CollectionEmbeddingModel
) -> sa.Select[Any]:
    mine = sa.and_(vectors.c.digest == digest, vectors.c.model == space.model)
    return query.select_from(table.outerjoin(vectors, mine))


def count_documents(conn: sa.Connection, collection: str) -> int:
    """Return the number of documents in a collection."""
    return conn.execute(_COUNT, {"of": collection}).scalar_one()


_COUNT = sa.select(sa.func.count()).select_from(documents).where(documents.c.collection == sa.bindparam("of"))


def count_embedded_documents(conn: sa.Connection, space: CollectionEmbeddingModel) -> int:
    """Return how many documents have a vector of the model."""
    query = _join_vectors_to_query(sa.select(sa.func.count(vectors.c.digest)), documents, documents.c.meaning, space)
    return int(conn.execute(query.where(documents.c.collection == space.collection)).scalar_one())


def list_document_ids(conn: sa.Connection, collection: str) -> set[str]:
    return set(conn.execute(sa.select(documents.c.id).where(documents.c.collection == collection)).scalars())


def load_document_digests(conn: sa.Connection, collection: str) -> dict[str, str]:
    """Return the digest of every document by id."""
    query = sa.select(documents.c.id, documents.c.digest).where(documents.c.collection == collection)
    return {row.id: row.digest for row in conn.execute(query)}


def load_entries_by_id(
    conn: sa.Connection, space: CollectionEmbeddingModel, ids: Sequence[str]
) -> learned_requests.LoadedIndexEntries:
    """Return the entries of these documents."""
    found = [
        row
        for chunk in sql.split_batches(ids)
        for row in conn.execute(_build_entry_query(space, documents.c.id.in_(chunk)))
    ]
    return learned_requests.parse_index_entry_rows(found, space.width)


def load_documents_by_id(conn: sa.Connection, collection: str, document_ids: Sequence[str]) -> list[SearchDocument]:
    """Return the texts of these documents."""
    table = documents.c
    columns = (table.id, table.name, table.cue, table.tags, table.description, table.body)
    found = []
    for chunk in sql.split_batches(document_ids):
        query = sa.select(*columns).where(table.collection == collection, table.id.in_(chunk))
        for id, name, cue, tags, description, body in conn.execute(query):
            found.append(
                SearchDocument(
                    id=id, name=name, when_to_use=cue, tags=_parse_tags(tags), description=description, body=body
                )
            )
    return found


def _parse_tags(text: str) -> tuple[str, ...]:
    try:
        return tuple(str(tag) for tag in json.loads(text))
    except (TypeError, ValueError):
        return ()


def write_documents(
    conn: sa.Connection, collection: str, generation: int, items: Sequence[tuple[SearchDocument, IndexEntry]]
) -> None:
    """Write documents with their entries, replacing those with the same ids, and delete unused vectors."""
    before = _delete_rows_and_list_text_digests(conn, collection, [document.id for document, _ in items])
    made = []
    for document, entry in items:
        codes, words = pack_entry(entry)
        made.append(
            {
                "collection": collection,
                "id": document.id,
                "generation": generation,
                "digest": entry.digest,
                "meaning": entry.meaning,
                "says_when": entry.says_when,
                "codes": codes,
                "words": words,
                "name": strip_unstorable_characters(document.name),
                "cue": strip_unstorable_characters(document.when_to_use),
                "tags": json.dumps(document.tags),
                "description": strip_unstorable_characters(document.description),
                "body": strip_unstorable_characters(document.body),
            }
        )
    if made:
        conn.execute(sa.insert(documents), made)
    still = {entry.meaning for _, entry in items}
    delete_unused_vectors(conn, [digest for digest in before if digest not in still])


def strip_unstorable_characters(text: str) -> str:
    """Remove lone surrogates and NUL, which no database accepts."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "")


def delete_documents(conn: sa.Connection, collection: str, document_ids: Sequence[str]) -> None:
    """Delete documents, and the vectors that nothing else uses."""
    delete_unused_vectors(conn, _delete_rows_and_list_text_digests(conn, collection, document_ids))


def _delete_rows_and_list_text_digests(conn: sa.Connection, collection: str, gone: Sequence[str]) -> list[str]:
    """Delete rows; return the digests of their embedded texts."""
    meanings: list[str] = []
    for chunk in sql.split_batches(gone):
        meanings += conn.execute(_GONE, {"of": collection, "ids": chunk}).scalars()
    return meanings


_GONE = (
    sa.delete(documents)
    .where(documents.c.collection == sa.bindparam("of"), documents.c.id.in_(sa.bindparam("ids", expanding=True)))
    .returning(documents.c.meaning)
)


def delete_unused_vectors(conn: sa.Connection, digests: Sequence[str]) -> None:
    """Delete the vectors of these texts, unless something still uses them."""
    for chunk in sql.split_batches(digests):
        # In one query each: neither column has an index, so every query scans the table.
        needed = {
            digest
            for column in (documents.c.meaning, requests_table.c.digest)
            for digest in conn.execute(sa.select(column).where(column.in_(chunk))).scalars()
        }
        gone = [digest for digest in chunk if digest not in needed]
        conn.execute(sa.delete(vectors).where(vectors.c.digest.in_(gone)))


def find_text_digests_with_valid_vector(
    conn: sa.Connection, space: CollectionEmbeddingModel, digests: Sequence[str]
) -> set[str]:
    """Return which of these texts already have a valid vector of this model."""
    known: set[str] = set()
    for chunk in sql.split_batches(digests):
        found = conn.execute(_KNOWN, {"model": space.model, "digests": chunk})
        known.update(digest for digest, blob in found if is_valid_vector(blob, space.width))
    return known


_KNOWN = sa.select(vectors.c.digest, vectors.c.vector).where(
    vectors.c.model == sa.bindparam("model"), vectors.c.digest.in_(sa.bindparam("digests", expanding=True))
)


def write_vectors(conn: sa.Connection, model: str, new: Mapping[str, Vector]) -> None:
    for chunk in sql.split_batches(list(new)):
        made = [{"model": model, "digest": digest, "vector": new[digest].tobytes()} for digest in chunk]
        sql.upsert_rows(conn, vectors, made, lambda new: {"vector": new.vector})


def load_changed_learned_requests(
    conn: sa.Connection, space: CollectionEmbeddingModel, *, after: int
) -> learned_requests.LoadedLearnedRequests:
    """Return the learned requests changed after a generation."""
    return learned_requests.parse_learned_request_rows(
        conn.execute(_build_query_of_changed_requests(space), {"after": after}), space.width
    )


@functools.cache
def _build_query_of_changed_requests(space: CollectionEmbeddingModel) -> sa.Select[Any]:
    table = requests_table.c
    columns = (table.document, table.text, table.weight, table.at)
    query = _join_vectors_to_query(sa.select(*columns, vectors.c.vector), requests_table, table.digest, space)
    return query.where(table.collection == space.collection, table.generation > sa.bindparam("after"))


def count_learned_requests(conn: sa.Connection, collection: str) -> int:
    return conn.execute(_REQUEST_COUNT, {"of": collection}).scalar_one()


_REQUEST_COUNT = (
    sa.select(sa.func.count()).select_from(requests_table).where(requests_table.c.collection == sa.bindparam("of"))
)


def list_request_keys(conn: sa.Connection, collection: str) -> set[RequestKey]:
    table = requests_table.c
    found = conn.execute(sa.select(table.document, table.digest).where(table.collection == collection))
    return {(document, digest) for document, digest in found}


def write_learned_requests(
    conn: sa.Connection, collection: str, generation: int, requests: Sequence[learned_requests.LearnedRequest]
) -> None:
    """Write learned requests, replacing those with the same keys."""
    delete_learned_requests(conn, collection, [(request.item, request.digest) for request in requests])
    made = [
        {
            "collection": collection,
            "document": request.item,
            "digest": request.digest,
            "generation": generation,
            "weight": request.weight,
            "at": request.at,
            "text": strip_unstorable_characters(request.text),
        }
        for request in requests
    ]
    if made:
        conn.execute(sa.insert(requests_table), made)


def delete_learned_requests(conn: sa.Connection, collection: str, keys: Iterable[RequestKey]) -> None:
    table = requests_table.c
    gone = [{"of_document": document, "of_digest": digest} for document, digest in keys]
    if gone:
        statement = sa.delete(requests_table).where(
            table.collection == collection,
            table.document == sa.bindparam("of_document"),
            table.digest == sa.bindparam("of_digest"),
        )
        conn.execute(statement, gone)
