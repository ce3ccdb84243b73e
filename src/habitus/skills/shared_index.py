"""The index of a large shared layer, kept in its database: whoever first sees that a skill is missing puts it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
        self._filled: Mapping[str, str] = {}  # the skills as they were when this process last saw all of them there
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
            hashes = {summary.name: mark(contents.hashes[summary.name]) for summary in contents.summaries}
            self.is_complete = self._fill(server, hashes, read, progress)
            if self.is_complete:
                server.is_complete_at(contents.revision)
                self._filled = hashes
            server.refresh()
        return server

    def _fill(self, server: ServerIndex, hashes: Mapping[str, str], read: Read, progress: Progress) -> bool:
        known = {**self._filled, **server.known(self._differing(hashes))}
        changed = [name for name in hashes if known.get(name) != hashes[name]]
        for done, names in enumerate(chunks(changed)):
            progress(done * CHUNK)
            if not server.put({name: hashes[name] for name in names}, read):
                return False
        gone = known.keys() - hashes.keys()
        return not gone or server.remove(gone)

    def _differing(self, hashes: Mapping[str, str]) -> list[str] | None:
        """What may have to be done since this process saw everything there; if it never did, anything may."""
        if not self._filled:
            return None
        return [name for name, digest in hashes.items() if self._filled.get(name) != digest]


def mark(tree_hash: str) -> str:
    """What an indexed skill is told by: its files, and how they are taken apart."""
    return f"{SHAPE}:{tree_hash}"[:64]


def chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), CHUNK):
        yield names[start : start + CHUNK]
