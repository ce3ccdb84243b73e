"""Skill search: the search index, kept in step with the library and its database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from habitus import sql, tracing
from habitus.errors import DatabaseUnavailable
from habitus.search.model import ENTRY_FORMAT, IndexHit, SearchDocument, SearchResults
from habitus.skills.layers.listing import LibrarySnapshot, ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import Skill, SkillSummary
from habitus.skills.stores.base import LayerContents
from habitus.skills.stores.tables import indexed_skills

if TYPE_CHECKING:
    from habitus.search.index import SearchIndex
    from habitus.search.postgres_index import DocumentReader, PostgresSkillIndex
    from habitus.search.searcher import DocumentSearcher
    from habitus.search.texts.embedding import Embedder
    from habitus.skills.stores.versioned import SkillStore

# Documents at least this similar say the same.
DUPLICATE_THRESHOLD = 0.8


class SkillFinder:
    """Searches the skills of a library. The index opens on first use; a search costs no update while nothing changed.

    `at` is the snapshot to search in; without one, the library is read again.
    """

    def __init__(
        self,
        library: Library,
        engine: sa.Engine,
        open_index: Callable[[], SearchIndex],
        *,
        redact: Callable[[str], str] = lambda text: text,
        shared: ServerIndexUpdater | None = None,
        project: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._library = library
        # A skill's files belong to the user and stay as they are; the index must not hold their secrets.
        self._redact = redact
        self._engine = engine
        self._open_index, self.list_project_words = open_index, project
        self._shared = shared
        self._lock = threading.RLock()
        self._opened: SearchIndex | None = None
        self._revision: tuple[Hashable, ...] | None = None
        self._server_layer = ""
        self._offline_searcher: tuple[object, DocumentSearcher] | None = (
            None  # in-memory search for when the server is unavailable, with its revision
        )

    def _open_index_with_project_words(self) -> SearchIndex:
        index = self._open_index()
        index.project = self.list_project_words()
        return index

    def search(
        self,
        query: str,
        *,
        k: int = 10,
        among: Collection[str] | None = None,
        at: LibrarySnapshot | None = None,
        look: bool = True,
    ) -> SearchResults:
        """Return the best matches for a request, each with the parts of its score.

        If a search server is unavailable, search the last known summaries instead.
        """
        try:
            with tracing.trace_span_if_inside_another("search"):
                return self._get_updated_index(at).search(query, k=k, among=among, refresh=look)
        except DatabaseUnavailable:
            if self._shared is None:
                raise
            return self._build_offline_searcher(at or self._library.last_snapshot).search(query, k=k, among=among)

    def _build_offline_searcher(self, seen: LibrarySnapshot) -> DocumentSearcher:
        """Build an in-memory index of all summaries; the bodies are on the server."""
        with self._lock:
            if self._offline_searcher is None or self._offline_searcher[0] != seen.revision:
                index = self._opened = self._opened or self._open_index_with_project_words()
                here = index.loaded_document_ids
                texts = (item.summary for item in seen.listing if item.summary is not None and item.name not in here)
                documents = [self._redact_document(make_search_document(summary, "")) for summary in texts]
                self._offline_searcher = seen.revision, index.with_documents_replacing_server(documents)
            return self._offline_searcher[1]

    def update_index(self, progress: Progress) -> None:
        """Index new skills, or all of them after an upgrade, reporting progress."""
        self._get_updated_index(progress=progress)

    def find_neighbours_of_all_skills(
        self, min_similarity: float = 0.0, *, at: LibrarySnapshot | None = None
    ) -> Mapping[str, tuple[IndexHit, ...]]:
        """Return, for every skill, the few most similar ones with at least this similarity."""
        return self._get_updated_index(at).find_neighbours_of_each_document(min_similarity)

    def find_skills_similar_to_skill(self, summary: SkillSummary, body: str, *, k: int = 3) -> tuple[IndexHit, ...]:
        """Return the skills most similar to one that is not in the library yet."""
        # One more, because the skill may find itself.
        found = self._get_updated_index().find_similar(make_search_document(summary, body), k=k + 1)
        return tuple(hit for hit in found if hit.id != summary.name)[:k]

    def build_hypothetical_searcher(self, skills: Sequence[Skill], removed: Sequence[str] = ()) -> DocumentSearcher:
        """Return a searcher over the library with these skills added and those removed; nothing is stored."""
        return self._get_updated_index().with_documents(
            [make_search_document(skill, skill.body) for skill in skills], removed
        )

    def learn_request(self, name: str, request: str, *, weight: float = 1.0, at: LibrarySnapshot | None = None) -> None:
        """Remember that this skill served this request well. The caller has redacted the request."""
        self._get_updated_index(at).learn_request(name, request, weight=weight)

    def list_learned_requests(self) -> frozenset[str]:
        """Return the texts of the learned requests."""
        return self._get_updated_index().list_learned_request_texts()

    def forget_learned_requests(self, texts: Collection[str]) -> None:
        """Delete these learned requests."""
        self._get_updated_index().forget_requests(texts)

    def describe_index(self) -> str:
        """Describe the index in one line."""
        report = self._get_updated_index().describe()
        notes = f"; {'; '.join(report.notes)}" if report.notes else ""
        return f"{report.documents} skills, {report.learned} learned requests, {report.embedding}{notes}"

    def _get_updated_index(
        self, at: LibrarySnapshot | None = None, *, progress: Progress = lambda done: None
    ) -> SearchIndex:
        seen = at or self._library.snapshot()
        # One index serves all conversations, whichever version they got.
        seen = seen.current or seen
        if self._opened is not None and seen.revision == self._revision:
            # Nearly every search: none waits for another one, or for a writer.
            return self._opened
        with self._lock:
            if self._opened is None:
                self._opened = self._open_index_with_project_words()
            if seen.revision != self._revision:
                elsewhere = self._update_server_index(self._opened, progress)
                self._update_local_index(self._opened, seen, elsewhere, progress)
                # While another host fills the shared index, the next call must check again.
                self._revision = seen.revision if self._shared is None or self._shared.is_complete else None
            return self._opened

    def _update_server_index(self, index: SearchIndex, progress: Progress) -> str:
        """Bring the server's index up to date; return the layer it holds, or an empty name without a server."""
        if self._shared is None:
            return ""
        store = self._library.get_layer(self._shared.layer).store
        contents = store.read_contents(check_disk=False)

        def read(names: Sequence[str]) -> Iterator[SearchDocument]:
            return self._read_layer_documents(
                store, {name: found for name in names if (found := contents.summaries.get(name)) is not None}
            )

        index.server = self._shared.update_server_index_if_large(contents, index.embedder, read, progress)
        return self._shared.layer if index.server is not None else ""

    def _update_local_index(self, index: SearchIndex, seen: LibrarySnapshot, server: str, progress: Progress) -> None:
        """Bring the local index up to date with the visible skills, reading only the changed ones."""
        is_same_side = server == self._server_layer
        names = (
            seen.changes.list_names_changed_since(self._revision)
            if self._revision is not None and is_same_side
            else None
        )
        self._server_layer = server
        hashes = seen.hashes if names is None else {name: seen.hashes[name] for name in seen.hashes.keys() & names}
        now = {name: prefix_hash_with_document_format(tree_hash) for name, tree_hash in hashes.items()}
        here = [name for name in now if seen.by_name[name].layer != server] if server else [*now]
        query, learned = sa.select(indexed_skills), index.list_ids_with_learned_requests()
        if names is not None:
            query, learned = query.where(indexed_skills.c.name.in_(names)), learned & names
        with sql.read_transaction(self._engine) as conn:
            known = {row.name: row.tree_hash for row in conn.execute(query)}
        changed = [name for name in here if known.get(name) != now[name]]
        for done, some in enumerate(sql.split_batches(changed)):
            progress(done * sql.BATCH_SIZE)
            # The in-memory part is rebuilt once, after the last batch.
            is_last = (done + 1) * sql.BATCH_SIZE >= len(changed)
            index.put_documents(self._read_documents([seen.by_name[name] for name in some]), refresh=is_last)
            self._record_indexed_hashes(some, now)
        # These moved to the server: remove them from the local index but keep their learned requests.
        moved = (known.keys() & now.keys()).difference(here)
        if moved:
            index.remove_documents(moved, forget=False)
        gone = (known.keys() | learned) - now.keys()
        if gone:
            index.remove_documents(gone)
        self._record_indexed_hashes([*moved, *gone], {})

    def _record_indexed_hashes(self, names: Sequence[str], hashes: Mapping[str, str]) -> None:
        if not names:
            return
        with sql.write_transaction(self._engine) as conn:
            for some in sql.split_batches(names):
                conn.execute(indexed_skills.delete().where(indexed_skills.c.name.in_(some)))
            rows = [{"name": name, "tree_hash": hashes[name]} for name in names if name in hashes]
            if rows:
                conn.execute(indexed_skills.insert(), rows)

    def _read_documents(self, items: Sequence[ListedSkill]) -> Iterator[SearchDocument]:
        for layer in dict.fromkeys(item.layer for item in items):
            there = {item.name: item.summary for item in items if item.layer == layer and item.summary is not None}
            yield from self._read_layer_documents(self._library.get_layer(layer).store, there)

    def _read_layer_documents(
        self, store: SkillStore, summaries: Mapping[str, SkillSummary]
    ) -> Iterator[SearchDocument]:
        """Yield the documents of skills; reading bodies one by one would take most of the time."""
        bodies = store.read_bodies(summaries)
        for name, summary in summaries.items():
            yield self._redact_document(make_search_document(summary, bodies.get(name, "")))

    def _redact_document(self, document: SearchDocument) -> SearchDocument:
        whole = "\n\n".join((document.name, document.when_to_use, document.description, *document.tags, document.body))
        # One call for all fields: most documents hold no secret, and redacting is slow.
        if self._redact(whole) == whole:
            return document
        return replace(
            document,
            name=self._redact(document.name),
            when_to_use=self._redact(document.when_to_use),
            description=self._redact(document.description),
            tags=tuple(map(self._redact, document.tags)),
            body=self._redact(document.body),
        )


def make_search_document(summary: SkillSummary, body: str) -> SearchDocument:
    """Return the search document of a skill."""
    return SearchDocument(
        id=summary.name,
        name=f"{summary.name} {summary.title}".strip(),
        when_to_use=summary.when_to_use,
        description=summary.description,
        tags=summary.tags,
        body=body,
    )


Progress = Callable[[int], None]


class ServerIndexUpdater:
    """The index of a layer shared by many hosts; above `memory_limit` skills it stays on the server instead of in
    memory.
    """

    def __init__(self, layer: str, *, memory_limit: int, open_server: Callable[[Embedder], PostgresSkillIndex]) -> None:
        self.layer = layer
        self._memory_limit = memory_limit
        self._open = open_server
        self._server: PostgresSkillIndex | None = None
        self._filled_at: int | None = None  # the layer's revision when this process last saw it complete there
        self.is_complete = True  # False while another host is filling it

    def update_server_index_if_large(
        self, contents: LayerContents, embedder: Embedder, read: DocumentReader, progress: Progress
    ) -> PostgresSkillIndex | None:
        """Bring the server's index up to date; None if the layer is small enough for memory."""
        count, self.is_complete = len(contents.summaries), True
        # Half the limit is the lower threshold, so a few skills more or less don't switch hosts back and forth.
        if 2 * count <= self._memory_limit:
            return None
        server = self._server = self._server or self._open(embedder)
        complete_at = server.refresh_term_counts_and_get_generation()
        if count <= self._memory_limit and not complete_at:
            # An existing index stays in use until the layer shrinks below half the limit.
            return None
        if complete_at < contents.revision:
            self.is_complete = self._upload_changes(server, contents, read, progress)
            if self.is_complete:
                server.record_index_complete_up_to_generation(contents.revision)
            server.refresh_term_counts_and_get_generation()
        if self.is_complete:
            self._filled_at = contents.revision
        return server

    def _upload_changes(
        self, server: PostgresSkillIndex, contents: LayerContents, read: DocumentReader, progress: Progress
    ) -> bool:
        """Upload what changed since this process last saw the index complete; False if another host is uploading."""
        names = None if self._filled_at is None else contents.changes.list_names_changed_since(self._filled_at)
        found = contents.summaries.keys() if names is None else contents.summaries.keys() & names
        hashes = {name: prefix_hash_with_document_format(contents.hashes[name]) for name in found}
        known = server.load_indexed_tree_hashes(names)
        changed = [name for name in hashes if known.get(name) != hashes[name]]
        for done, some in enumerate(sql.split_batches(changed)):
            progress(done * sql.BATCH_SIZE)
            if not server.try_to_index_skills({name: hashes[name] for name in some}, read):
                return False
        gone = known.keys() - hashes.keys()
        return not gone or server.try_to_remove_skills(gone)


def prefix_hash_with_document_format(tree_hash: str) -> str:
    """Return the mark of an indexed skill: its files and the version of the document format."""
    return f"{ENTRY_FORMAT}:{tree_hash}"[:64]
