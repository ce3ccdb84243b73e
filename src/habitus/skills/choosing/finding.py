"""Skill search: the search index, kept in step with the library and its database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import sqlalchemy as sa

from habitus import sql
from habitus.errors import DatabaseAway
from habitus.search import Document, Hit, Results
from habitus.search.model import SHAPE
from habitus.skills.layers.listing import Listed, Snapshot
from habitus.skills.library import Library
from habitus.skills.model import Skill, Summary
from habitus.skills.stores.base import Contents
from habitus.skills.stores.tables import indexed

if TYPE_CHECKING:
    from habitus.search.index import Index
    from habitus.search.searcher import Searcher
    from habitus.search.server import Read, ServerIndex
    from habitus.search.texts.embedding import Embedder
    from habitus.skills.stores.versioned import SkillStore

# Documents at least this similar say the same.
DUPLICATE = 0.8


class Finder:
    """Searches the skills of a library. The index opens on first use; a search costs no update while nothing changed.

    `at` is the snapshot to search in; without one, the library is read again.
    """

    def __init__(
        self,
        library: Library,
        engine: sa.Engine,
        open_index: Callable[[], Index],
        *,
        redacted: Callable[[str], str] = lambda text: text,
        shared: SharedIndex | None = None,
        project: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._library = library
        # A skill's files belong to the user and stay as they are; the index must not hold their secrets.
        self._redacted = redacted
        self._engine = engine
        self._open_index, self._project = open_index, project
        self._shared = shared
        self._lock = threading.RLock()
        self._opened: Index | None = None
        self._seen: tuple[Hashable, ...] | None = None
        self._seen_elsewhere = ""
        self._spare: tuple[object, Searcher] | None = (
            None  # in-memory search for when the server is unavailable, with its revision
        )

    def _open(self) -> Index:
        index = self._open_index()
        index.project = self._project()
        return index

    def search(
        self,
        query: str,
        *,
        k: int = 10,
        among: Collection[str] | None = None,
        at: Snapshot | None = None,
        look: bool = True,
    ) -> Results:
        """Return the best matches for a request, each with the parts of its score.

        If a search server is unavailable, search the last known summaries instead.
        """
        try:
            with self._lock:
                return self._index(at).search(query, k=k, among=among, look=look)
        except DatabaseAway:
            if self._shared is None:
                raise
            return self._without_server(at or self._library.last).search(query, k=k, among=among)

    def _without_server(self, seen: Snapshot) -> Searcher:
        """Build an in-memory index of all summaries; the bodies are on the server."""
        with self._lock:
            if self._spare is None or self._spare[0] != seen.revision:
                index = self._opened = self._opened or self._open()
                here = index.known_ids
                texts = (item.summary for item in seen.listing if item.summary is not None and item.name not in here)
                documents = [self._clean(document_of(summary, "")) for summary in texts]
                self._spare = seen.revision, index.without_server(documents)
            return self._spare[1]

    def catch_up(self, progress: Progress) -> None:
        """Index new skills, or all of them after an upgrade, reporting progress."""
        with self._lock:
            self._index(progress=progress)

    def neighbours(self, least: float = 0.0, *, at: Snapshot | None = None) -> Mapping[str, tuple[Hit, ...]]:
        """Return, for every skill, the few most similar ones with at least this similarity."""
        with self._lock:
            return self._index(at).neighbours(least)

    def similar_to(self, summary: Summary, body: str, *, k: int = 3) -> tuple[Hit, ...]:
        """Return the skills most similar to one that is not in the library yet."""
        with self._lock:
            # One more, because the skill may find itself.
            found = self._index().similar(document_of(summary, body), k=k + 1)
        return tuple(hit for hit in found if hit.id != summary.name)[:k]

    def supposing(self, skills: Sequence[Skill], gone: Sequence[str] = ()) -> Searcher:
        """Return a searcher over the library with these skills added and those removed; nothing is stored."""
        with self._lock:
            return self._index().supposing([document_of(skill, skill.body) for skill in skills], gone)

    def learn(self, name: str, request: str, *, weight: float = 1.0, at: Snapshot | None = None) -> None:
        """Remember that this skill served this request well. The caller has redacted the request."""
        with self._lock:
            self._index(at).learn(name, request, weight=weight)

    def learned_requests(self) -> frozenset[str]:
        """Return the texts of the learned requests."""
        with self._lock:
            return self._index().learned_texts()

    def forget_learned(self, texts: Collection[str]) -> None:
        """Delete these learned requests."""
        with self._lock:
            self._index().forget_learned(lambda _, text: text in texts)

    def describe(self) -> str:
        """Describe the index in one line."""
        with self._lock:
            report = self._index().describe()
        notes = f"; {'; '.join(report.notes)}" if report.notes else ""
        return f"{report.documents} skills, {report.learned} learned requests, {report.embedding}{notes}"

    def _index(self, at: Snapshot | None = None, *, progress: Progress = lambda done: None) -> Index:
        if self._opened is None:
            self._opened = self._open()
        seen = at or self._library.snapshot()
        if seen.revision != self._seen:
            elsewhere = self._elsewhere(self._opened, progress)
            self._catch_up(self._opened, seen, elsewhere, progress)
            # While another host fills the shared index, the next call must check again.
            self._seen = seen.revision if self._shared is None or self._shared.is_complete else None
        return self._opened

    def _elsewhere(self, index: Index, progress: Progress) -> str:
        """Bring the server's index up to date; return the layer it holds, or an empty name without a server."""
        if self._shared is None:
            return ""
        store = self._library.layer(self._shared.layer).store
        contents = store.contents(look=False)

        def read(names: Sequence[str]) -> Iterator[Document]:
            return self._read(
                store, {name: found for name in names if (found := contents.summaries.get(name)) is not None}
            )

        index.server = self._shared.bring_up(contents, index.embedder, read, progress)
        return self._shared.layer if index.server is not None else ""

    def _catch_up(self, index: Index, seen: Snapshot, elsewhere: str, progress: Progress) -> None:
        """Bring the local index up to date with the visible skills, reading only the changed ones."""
        is_same_side = elsewhere == self._seen_elsewhere
        names = seen.changes.since(self._seen) if self._seen is not None and is_same_side else None
        self._seen_elsewhere = elsewhere
        hashes = seen.hashes if names is None else {name: seen.hashes[name] for name in seen.hashes.keys() & names}
        now = {name: mark(tree_hash) for name, tree_hash in hashes.items()}
        here = [name for name in now if seen.by_name[name].layer != elsewhere] if elsewhere else [*now]
        query, learned = sa.select(indexed), index.learned_ids()
        if names is not None:
            query, learned = query.where(indexed.c.name.in_(names)), learned & names
        with sql.reading(self._engine) as connection:
            known = {row.name: row.tree_hash for row in connection.execute(query)}
        changed = [name for name in here if known.get(name) != now[name]]
        for done, some in enumerate(chunks(changed)):
            progress(done * CHUNK)
            # The in-memory part is rebuilt once, after the last batch.
            is_last = (done + 1) * CHUNK >= len(changed)
            index.put(self._documents([seen.by_name[name] for name in some]), look=is_last)
            self._remember(some, now)
        # These moved to the server: remove them from the local index but keep their learned requests.
        moved = (known.keys() & now.keys()).difference(here)
        if moved:
            index.remove(moved, forget=False)
        gone = (known.keys() | learned) - now.keys()
        if gone:
            index.remove(gone)
        self._remember([*moved, *gone], {})

    def _remember(self, names: Sequence[str], hashes: Mapping[str, str]) -> None:
        if not names:
            return
        with sql.writing(self._engine) as connection:
            for some in chunks(names):
                connection.execute(indexed.delete().where(indexed.c.name.in_(some)))
            rows = [{"name": name, "tree_hash": hashes[name]} for name in names if name in hashes]
            if rows:
                connection.execute(indexed.insert(), rows)

    def _documents(self, items: Sequence[Listed]) -> Iterator[Document]:
        for layer in dict.fromkeys(item.layer for item in items):
            there = {item.name: item.summary for item in items if item.layer == layer and item.summary is not None}
            yield from self._read(self._library.layer(layer).store, there)

    def _read(self, store: SkillStore, summaries: Mapping[str, Summary]) -> Iterator[Document]:
        """Yield the documents of skills; reading bodies one by one would take most of the time."""
        bodies = store.bodies(summaries)
        for name, summary in summaries.items():
            yield self._clean(document_of(summary, bodies.get(name, "")))

    def _clean(self, document: Document) -> Document:
        together = "\n\n".join((document.name, document.cue, document.description, *document.tags, document.body))
        # One call for all fields: most documents hold no secret, and redacting is slow.
        if self._redacted(together) == together:
            return document
        return replace(
            document,
            name=self._redacted(document.name),
            cue=self._redacted(document.cue),
            description=self._redacted(document.description),
            tags=tuple(map(self._redacted, document.tags)),
            body=self._redacted(document.body),
        )


def document_of(summary: Summary, body: str) -> Document:
    """Return the search document of a skill."""
    return Document(
        id=summary.name,
        name=f"{summary.name} {summary.title}".strip(),
        cue=summary.when_to_use,
        description=summary.description,
        tags=summary.tags,
        body=body,
    )


CHUNK = 500

Progress = Callable[[int], None]


class SharedIndex:
    """The index of a layer shared by many hosts; above `memory_limit` skills it stays on the server instead of in
    memory.
    """

    def __init__(self, layer: str, *, above: int, open_server: Callable[[Embedder], ServerIndex]) -> None:
        self.layer = layer
        self._above = above
        self._open = open_server
        self._server: ServerIndex | None = None
        self._filled_at: int | None = None  # the layer's revision when this process last saw it complete there
        self.is_complete = True  # False while another host is filling it

    def bring_up(self, contents: Contents, embedder: Embedder, read: Read, progress: Progress) -> ServerIndex | None:
        """Bring the server's index up to date; None if the layer is small enough for memory."""
        count, self.is_complete = len(contents.summaries), True
        # Half the limit is the lower threshold, so a few skills more or less don't switch hosts back and forth.
        if 2 * count <= self._above:
            return None
        server = self._server = self._server or self._open(embedder)
        complete_at = server.refresh()
        if count <= self._above and not complete_at:
            # An existing index stays in use until the layer shrinks below half the limit.
            return None
        if complete_at < contents.revision:
            self.is_complete = self._fill(server, contents, read, progress)
            if self.is_complete:
                server.is_complete_at(contents.revision)
            server.refresh()
        if self.is_complete:
            self._filled_at = contents.revision
        return server

    def _fill(self, server: ServerIndex, contents: Contents, read: Read, progress: Progress) -> bool:
        """Upload what changed since this process last saw the index complete; False if another host is uploading."""
        names = None if self._filled_at is None else contents.changes.since(self._filled_at)
        found = contents.summaries.keys() if names is None else contents.summaries.keys() & names
        hashes = {name: mark(contents.hashes[name]) for name in found}
        known = server.known_hashes(names)
        changed = [name for name in hashes if known.get(name) != hashes[name]]
        for done, some in enumerate(chunks(changed)):
            progress(done * CHUNK)
            if not server.put({name: hashes[name] for name in some}, read):
                return False
        gone = known.keys() - hashes.keys()
        return not gone or server.remove(gone)


def mark(tree_hash: str) -> str:
    """Return the mark of an indexed skill: its files and the version of the document format."""
    return f"{SHAPE}:{tree_hash}"[:64]


def chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names in batches."""
    for start in range(0, len(names), CHUNK):
        yield names[start : start + CHUNK]
