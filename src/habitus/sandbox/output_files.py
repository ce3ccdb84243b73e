"""Files that cells make for people to open: found in a pad's folder after a cell, and kept outside of it.

The folder is full of what untrusted code likes: every step is taken from an open folder, and no link is followed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from habitus.sandbox.input_files import free_name, harmless
from habitus.sandbox.inside import folders
from habitus.sandbox.model import MIB

# Nothing that a browser would run: what has no way out of the sandbox would find one on the person's screen.
OPENED = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".csv", ".xlsx"})
_MOST_LOOKED_AT, _DEEPEST, _MOST_KEPT, _LARGEST, _MOST_BYTES = 2_000, 4, 10, 64 * MIB, 512 * MIB


class Made:
    """What is new in a pad's folder since it was last asked for, or since the beginning. It waits for a disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = {path: _stamp(found) for path, found, _, _ in _files(folder)}

    def new(self, room: int) -> Iterator[tuple[str, BinaryIO]]:
        """The name of each and the file itself, as far as there is room; of very many files in a folder, none."""
        seen, count = {}, 0
        for path, found, name, within in _files(self._folder):
            seen[path] = _stamp(found)
            is_new = self._seen.get(path) != seen[path]
            if is_new and 0 < found.st_size <= min(_LARGEST, room) and count < _MOST_KEPT:
                with suppress(OSError), _open_file(name, within) as source:  # it may be another by now
                    room, count = room - found.st_size, count + 1
                    yield name, source
        self._seen = seen

    def keep(self, place: Path) -> tuple[str, ...]:
        """Copy what is new into a place where it stays; the paths there."""
        kept: list[str] = []
        for name, source in self.new(room_in(place)):
            with suppress(OSError), opened_for(name, place) as copy:  # the disk may be full
                shutil.copyfileobj(source, copy, MIB)
                kept.append(copy.name)
        return tuple(kept)


def room_in(place: Path) -> int:
    return _MOST_BYTES - folders.size_of(str(place))


def opened_for(name: str, place: Path) -> BinaryIO:
    """A new file of about that name in the place."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return (place / free_name(place, harmless(name))).open("xb")


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result, str, int]]:
    """Path below the folder, what it is, its name, and the open folder that it lies in."""
    count = 0
    with suppress(OSError):
        for here, below, names, within in os.fwalk(folder, follow_symlinks=False):
            path = Path(here).relative_to(folder)
            count += len(names) + len(below)
            if count > _MOST_LOOKED_AT:
                return
            below[:] = sorted(name for name in below if not name.startswith(".")) if len(path.parts) < _DEEPEST else []
            for name in sorted(names):
                if Path(name).suffix.lower() in OPENED:
                    found = os.stat(name, dir_fd=within, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        yield str(path / name), found, name, within


def _open_file(name: str, within: int) -> BinaryIO:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    source = os.fdopen(fd, "rb")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        source.close()
        raise OSError("it is no file any more")
    return source
