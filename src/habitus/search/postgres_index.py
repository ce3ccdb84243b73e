"""The index of a large shared library in PostgreSQL: the server names candidates, and memory ranks them as usual.

Each term of a document becomes a full-text word that includes its strength in four steps, so the server computes BM25F
up to rounding. With pgvector it adds the nearest documents by meaning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from habitus import sql
from habitus.search import store
from habitus.search.learned_requests import LoadedIndexEntries, parse_index_entry_rows
from habitus.search.model import ENTRY_FORMAT, SearchDocument
from habitus.search.postings import Strengths, compute_term_strengths
from habitus.search.texts.embedding import Embedder, Vectors
from habitus.search.texts.index_entry import (
    Codes,
    IndexEntry,
    Vector,
    build_embedding_text,
    encode_document,
    pack_entry,
)

# Steps of a term's strength in a document.
_STEPS = 4
# The most postings that the server adds up for one request.
_MAX_POSTINGS = 50_000
_BY_TERMS, _BY_MEANING = 200, 200
# Pseudo-terms that count all documents, and those with a body.
_ALL, _WITH_BODY = -1, -2
_NO_COUNTS = (0,) * _STEPS
# Terms whose counts are cached until the library changes.
_MAX_CACHED_COUNTS = 100_000
_WRITE_LOCK_ID = 4242021

DocumentCounts = NDArray[np.int64]
DocumentReader = Callable[[Sequence[str]], Iterable[SearchDocument]]


class PostgresSkillIndex:
    """The skills of the shared layer in the shared database, written by the first host that finds one missing.

    `documents` and `with_body` are as of the last `refresh_term_counts_and_get_generation`.
    """

    def __init__(self, engine: sa.Engine, embedder: Embedder) -> None:
        self._engine = engine
        self._embedder = embedder
        self._space = store.CollectionEmbeddingModel(
            collection=f"skills {ENTRY_FORMAT}", model=embedder.name, width=embedder.width
        )
        self._counted: dict[int, Sequence[int]] = {}
        self.documents = self.with_body = 0

    def open_transaction(self) -> AbstractContextManager[object]:
        """Open one transaction for all queries in the block."""
        return sql.read_transaction(self._engine)

    def refresh_term_counts_and_get_generation(self) -> int:
        """Reload the counts; return the library generation up to which the index is complete."""
        self._counted = {}
        with sql.read_transaction(self._engine) as conn:
            counted = _load_document_counts_of_terms(conn, [_ALL, _WITH_BODY])
            self.documents, self.with_body = sum(counted[_ALL]), sum(counted[_WITH_BODY])
            return store.get_generation(conn, f"{self._space.collection} {self._space.model}")

    def count_documents_with_each_term(self, codes: Codes) -> DocumentCounts:
        """Return the number of documents that contain each term."""
        counts: DocumentCounts = self._load_counts_by_strength_step(codes).sum(axis=1)
        return counts

    def _load_counts_by_strength_step(self, codes: Codes) -> DocumentCounts:
        wanted = codes.tolist()
        # Another thread may begin a new cache meanwhile.
        counted = self._counted
        if len(counted) > _MAX_CACHED_COUNTS:
            counted = self._counted = {}
        if missing := [code for code in wanted if code not in counted]:
            with sql.read_transaction(self._engine) as conn:
                counted |= _load_document_counts_of_terms(conn, missing)
        return np.array([counted[code] for code in wanted], dtype=np.int64).reshape(len(wanted), _STEPS)

    def find_candidates(
        self,
        codes: Codes,
        worths: Strengths,
        vector: Vector,
        *,
        more: Collection[str] = (),
        among: Collection[str] | None = None,
    ) -> LoadedIndexEntries:
        """Return the entries that may match by their terms or meaning, and those in `more`; a small `among` restricts
        them.
        """
        only = list(among) if among is not None and 2 * len(among) < self.documents else None
        # So few that ranking them all is cheaper than choosing among them.
        if only is not None and len(only) <= _BY_TERMS:
            return self._load_entries("SELECT unnest(CAST(:names AS text[]))", {"names": only})
        words, values = self._choose_full_text_words_to_query(codes, worths)
        given: dict[str, Any] = {"words": words, "values": values, "more": list(more), "only": only}
        ways = [_BY_WORDS.format(where="WHERE s.name = ANY(:only)" if only is not None else "")]
        if self._pgvector_schema and self._space.width:
            joined = "JOIN search_skills s ON s.meaning = v.digest" if only is not None else ""
            where = "AND s.name = ANY(:only)" if only is not None else ""
            ways.append(
                _BY_VECTOR.format(schema=self._pgvector_schema, width=self._space.width, joined=joined, where=where)
            )
            given["vector"] = _format_vector(vector)
        return self._load_entries(" UNION ".join([*ways, "SELECT unnest(CAST(:more AS text[]))"]), given)

    def load_all_entries(self) -> LoadedIndexEntries:
        """Return all entries, for comparing each document with each other."""
        return self._load_entries("SELECT name FROM search_skills", {})

    def _choose_full_text_words_to_query(self, codes: Codes, worths: Strengths) -> tuple[list[str], list[float]]:
        """Return the words that contribute most, until the server would have too many postings to add up."""
        steps = (np.arange(_STEPS) + 0.5) / _STEPS
        values, sizes = np.outer(worths, steps), self._load_counts_by_strength_step(codes)
        words: list[str] = []
        kept: list[float] = []
        room = _MAX_POSTINGS
        for place in np.argsort(-values, axis=None, kind="stable").tolist():
            term, step = divmod(place, _STEPS)
            size = int(sizes[term, step])
            if 0 < size <= room:
                room -= size
                words.append(f"'{_encode_lexeme(int(codes[term]), step)}'")
                kept.append(float(values[term, step]))
        return words, kept

    def _load_entries(self, names: str, given: Mapping[str, Any]) -> LoadedIndexEntries:
        query = sa.text(_LOAD.format(vector=self._vector_column, names=names))
        with sql.read_transaction(self._engine) as conn:
            rows = conn.execute(query, {**given, "model": self._space.model}).all()
        received = _convert_pgvector_bytes if self._pgvector_schema else bytes
        return parse_index_entry_rows([(*row[:-1], row[-1] and received(row[-1])) for row in rows], self._space.width)

    def record_index_complete_up_to_generation(self, generation: int) -> None:
        """Record that the index is complete up to this library generation."""
        with sql.write_transaction(self._engine) as conn:
            store.raise_collection_generation_to(conn, f"{self._space.collection} {self._space.model}", generation)

    def load_indexed_tree_hashes(self, names: Collection[str] | None = None) -> dict[str, str]:
        """Return the tree hash with which each of these skills (or all) was indexed."""
        with sql.read_transaction(self._engine) as conn:
            return self._load_tree_hashes_of_rankable_skills(conn, names)

    def _load_tree_hashes_of_rankable_skills(
        self, conn: sa.Connection, names: Collection[str] | None
    ) -> dict[str, str]:
        """Return the hashes of the skills that can be ranked: with a vector, unless the model has none."""
        with_vector = "JOIN search_skill_vectors v ON v.model = :model AND v.digest = s.meaning"
        query = f"SELECT s.name, s.tree_hash FROM search_skills s {with_vector if self._space.width else ''}"
        given: dict[str, Any] = {"model": self._space.model} if self._space.width else {}
        if names is not None:
            query, given = f"{query} WHERE s.name = ANY(:names)", {**given, "names": list(names)}
        return {row.name: row.tree_hash for row in conn.execute(sa.text(query), given)}

    def try_to_index_skills(self, hashes: Mapping[str, str], read: DocumentReader) -> bool:
        """Index skills in their current state. False if another host holds the lock; retry later."""
        with sql.write_transaction(self._engine) as conn:
            if not conn.execute(_TRY_LOCK).scalar_one():
                return False
            known = self._load_tree_hashes_of_rankable_skills(conn, hashes)
            documents = [*read([name for name, tree_hash in hashes.items() if known.get(name) != tree_hash])]
            entries = [encode_document(document) for document in documents]
            self._compute_and_write_missing_vectors(
                conn, {entry.meaning: build_embedding_text(one) for entry, one in zip(entries, documents, strict=True)}
            )
            self._replace_entries(conn, [entry.id for entry in entries], entries, hashes)
        return True

    def try_to_remove_skills(self, names: Collection[str]) -> bool:
        """Remove skills. False if another host holds the lock; retry later."""
        with sql.write_transaction(self._engine) as conn:
            if not conn.execute(_TRY_LOCK).scalar_one():
                return False
            self._replace_entries(conn, names, [], {})
        return True

    def _replace_entries(
        self, conn: sa.Connection, names: Collection[str], entries: Sequence[IndexEntry], hashes: Mapping[str, str]
    ) -> None:
        given = {"names": list(names)}
        before = parse_index_entry_rows(conn.execute(_OLD, given).all(), 0).entries
        conn.execute(_DELETE, given)
        words = _compute_term_strength_steps(entries)
        rows = [_build_entry_row(entry, hashes[entry.id], words[place]) for place, entry in enumerate(entries)]
        if rows:
            conn.execute(_INSERT, rows)
        changes = Counter(_compute_term_count_changes(entries, words))
        changes.subtract(_compute_term_count_changes(before, _compute_term_strength_steps(before)))
        self._add_term_count_changes(conn, changes)
        conn.execute(_DROP_VECTORS, {"digests": [entry.meaning for entry in before]})

    def _add_term_count_changes(self, conn: sa.Connection, changes: Mapping[tuple[int, int], int]) -> None:
        by_term: dict[int, list[int]] = {}
        for (term, step), change in changes.items():
            if change:
                by_term.setdefault(term, [0] * _STEPS)[step] += change
        columns = {f"n{step}": _format_array(of_one[step] for of_one in by_term.values()) for step in range(_STEPS)}
        if by_term:
            conn.execute(_ADD_COUNTS, {"terms": _format_array(by_term), **columns})

    def _compute_and_write_missing_vectors(self, conn: sa.Connection, texts: Mapping[str, str]) -> None:
        if not self._space.width:
            return
        there = conn.execute(_THERE, {"model": self._space.model, "digests": list(texts)}).scalars()
        missing = sorted(texts.keys() - set(there))
        vectors: Vectors = self._embedder.embed([texts[digest] for digest in missing]).astype(np.float32)
        vectors[~np.isfinite(vectors).all(axis=1)] = 0.0
        rows = [
            {
                "model": self._space.model,
                "digest": digest,
                "vector": _format_vector(vector) if self._pgvector_schema else vector.tobytes(),
            }
            for digest, vector in zip(missing, vectors, strict=True)
        ]
        if rows:
            kind = f"{self._pgvector_schema}.vector" if self._pgvector_schema else "bytea"
            conn.execute(sa.text(_INSERT_VECTOR.format(kind=kind)), rows)

    @cached_property
    def _pgvector_schema(self) -> str:
        """The quoted schema of pgvector; empty if vectors are plain bytes."""
        with sql.read_transaction(self._engine) as conn:
            return str(conn.execute(_VECTOR_SCHEMA).scalar() or "")

    @property
    def _vector_column(self) -> str:
        return f"{self._pgvector_schema}.vector_send(v.vector)" if self._pgvector_schema else "v.vector"


def _load_document_counts_of_terms(conn: sa.Connection, terms: Sequence[int]) -> dict[int, Sequence[int]]:
    found = {row.term: row.documents for row in conn.execute(_COUNTS, {"terms": _format_array(terms)})}
    return {term: found.get(term, _NO_COUNTS) for term in terms}


def _compute_term_strength_steps(entries: Sequence[IndexEntry]) -> list[list[tuple[int, int]]]:
    """Return the distinct terms of each entry, with the step of their strength."""
    weighed = compute_term_strengths(entries, first=0)
    steps = np.minimum((weighed.strengths * _STEPS).astype(np.int64), _STEPS - 1)
    found: list[list[tuple[int, int]]] = [[] for _ in entries]
    for term, row, step in zip(weighed.terms.tolist(), weighed.slots.tolist(), steps.tolist(), strict=True):
        found[row].append((term, step))
    return found


def _compute_term_count_changes(
    entries: Sequence[IndexEntry], words: Sequence[Sequence[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Return the count changes that these entries cause."""
    with_body = sum(entry.lengths[-1] > 0 for entry in entries)
    return [*[(_ALL, 0)] * len(entries), *[(_WITH_BODY, 0)] * with_body, *(word for some in words for word in some)]


def _encode_lexeme(term: int, step: int) -> str:
    """Encode a term and the step of its strength as one full-text word."""
    return f"{term * _STEPS + step:x}"


def _build_entry_row(entry: IndexEntry, tree_hash: str, words: Sequence[tuple[int, int]]) -> dict[str, Any]:
    codes, content = pack_entry(entry)
    return {
        "name": entry.id,
        "tree_hash": tree_hash,
        "digest": entry.digest,
        "meaning": entry.meaning,
        "says_when": entry.says_when,
        "codes": codes,
        "words": store.strip_unstorable_characters(content),
        "lexemes": " ".join(_encode_lexeme(*word) for word in words),
    }


def _format_array(numbers: Iterable[int]) -> str:
    """Format numbers as a PostgreSQL array literal, which is many times faster than binding them one by one."""
    return f"{{{','.join(map(str, numbers))}}}"


def _format_vector(vector: Vector) -> str:
    return f"[{','.join(map(repr, vector.tolist()))}]"


def _convert_pgvector_bytes(blob: bytes) -> bytes:
    """Convert pgvector's binary format, which has a header of two shorts, to numpy's."""
    return np.frombuffer(blob[4:], dtype=">f4").astype(np.float32).tobytes()


_TRY_LOCK = sa.select(sa.func.pg_try_advisory_xact_lock(_WRITE_LOCK_ID))
_COUNTS = sa.text("SELECT term, documents FROM search_terms WHERE term = ANY(CAST(:terms AS bigint[]))")
_ADD_COUNTS = sa.text(
    "INSERT INTO search_terms AS t (term, documents) "
    "SELECT term, ARRAY[n0, n1, n2, n3] FROM unnest(CAST(:terms AS bigint[]), CAST(:n0 AS integer[]), "
    "CAST(:n1 AS integer[]), CAST(:n2 AS integer[]), CAST(:n3 AS integer[])) AS a(term, n0, n1, n2, n3) "
    "ON CONFLICT (term) DO UPDATE SET documents = ARRAY["
    + ", ".join(f"t.documents[{step}] + excluded.documents[{step}]" for step in range(1, _STEPS + 1))
    + "]"
)
_BY_WORDS = (
    "(SELECT s.name FROM unnest(CAST(:words AS text[]), CAST(:values AS real[])) AS a(word, value) "
    "JOIN search_skills s ON s.lexemes @@ CAST(a.word AS tsquery) {where} "
    f"GROUP BY s.name ORDER BY sum(a.value) DESC, s.name LIMIT {_BY_TERMS})"
)
_BY_VECTOR = (
    "(SELECT name FROM search_skills WHERE meaning IN (SELECT v.digest FROM search_skill_vectors v {joined} "
    "WHERE v.model = :model {where} ORDER BY CAST(v.vector AS {schema}.vector({width})) "
    f"OPERATOR({{schema}}.<#>) CAST(:vector AS {{schema}}.vector({{width}})) LIMIT {_BY_MEANING}))"
)
_LOAD = (
    "SELECT s.name, s.digest, s.meaning, s.says_when, s.codes, s.words, {vector} FROM search_skills s "
    "LEFT JOIN search_skill_vectors v ON v.model = :model AND v.digest = s.meaning WHERE s.name IN ({names}) "
    "ORDER BY s.name"
)
_OLD = sa.text(
    "SELECT name, digest, meaning, says_when, codes, words, NULL FROM search_skills WHERE name = ANY(:names)"
)
_DELETE = sa.text("DELETE FROM search_skills WHERE name = ANY(:names)")
_INSERT = sa.text(
    "INSERT INTO search_skills (name, tree_hash, digest, meaning, says_when, codes, words, lexemes) VALUES "
    "(:name, :tree_hash, :digest, :meaning, :says_when, :codes, :words, CAST(:lexemes AS tsvector))"
)
_THERE = sa.text("SELECT digest FROM search_skill_vectors WHERE model = :model AND digest = ANY(:digests)")
_INSERT_VECTOR = (
    "INSERT INTO search_skill_vectors (model, digest, vector) VALUES (:model, :digest, CAST(:vector AS {kind}))"
)
_DROP_VECTORS = sa.text(
    "DELETE FROM search_skill_vectors v WHERE digest = ANY(:digests) "
    "AND NOT EXISTS (SELECT 1 FROM search_skills WHERE meaning = v.digest)"
)
_VECTOR_SCHEMA = sa.text(
    "SELECT quote_ident(n.nspname) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "JOIN pg_namespace n ON n.oid = t.typnamespace "
    "WHERE a.attrelid = to_regclass('search_skill_vectors') AND a.attname = 'vector' AND t.typname = 'vector'"
)
