"""The index of a large shared layer, kept in its database: whoever first sees that a skill is missing puts it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from habitus.search.model import SHAPE
from habitus.skills.stores.base import Contents

if TYPE_CHECKING:
    from habitus.search.embedding import Embedder
    from habitus.search.server import Read, ServerIndex

CHUNK = 500

Progress = Callable[[int], None]


class SharedIndex:
    """`layer` is shared by many hosts; with more skills than `above`, none of them holds its index in memory."""

    def __init__(self, layer: str, *, above: int, open_server: Callable[[Embedder], ServerIndex]) -> None:
        self.layer = layer
        self._above = above
        self._open = open_server
        self._server: ServerIndex | None = None
        self._filled_at: int | None = None  # the revision of the layer when this process last saw all of it there
        self.is_complete = True  # or another host is still at it

    def bring_up(self, contents: Contents, embedder: Embedder, read: Read, progress: Progress) -> ServerIndex | None:
        """The server's index with what the layer has now; nothing where the layer is small enough for memory."""
        count, self.is_complete = len(contents.summaries), True
        if 2 * count <= self._above:
            return None
        server = self._server = self._server or self._open(embedder)
        complete_at = server.refresh()
        if count <= self._above and not complete_at:
            return None  # once it is there it stays until half of it is gone: a few skills make no host start anew
        if complete_at < contents.revision:
            self.is_complete = self._fill(server, contents, read, progress)
            if self.is_complete:
                server.is_complete_at(contents.revision)
            server.refresh()
        if self.is_complete:
            self._filled_at = contents.revision
        return server

    def _fill(self, server: ServerIndex, contents: Contents, read: Read, progress: Progress) -> bool:
        """Put there what has changed since this process saw everything there; if it never did, anything may have."""
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
    """What an indexed skill is told by: its files, and how they are taken apart."""
    return f"{SHAPE}:{tree_hash}"[:64]


def chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), CHUNK):
        yield names[start : start + CHUNK]
