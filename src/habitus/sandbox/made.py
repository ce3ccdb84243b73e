"""Files that cells make for people to open: found in a pad's folder after a cell, and kept outside of it.

The folder is full of what untrusted code likes: every step is taken from an open folder, and no link is followed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from habitus.sandbox.given import free_name, harmless
from habitus.sandbox.inside import folders
from habitus.sandbox.model import MIB

# Nothing that a browser would run: what has no way out of the sandbox would find one on the person's screen.
OPENED = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".csv", ".xlsx"})
_MOST_LOOKED_AT, _DEEPEST, _MOST_KEPT, _LARGEST, _MOST_BYTES = 2_000, 4, 10, 64 * MIB, 512 * MIB

Seen = Mapping[str, tuple[int, int]]  # path in the folder → when it was changed, and its size


def look(folder: Path) -> Seen:
    """The files that a person may want to open, as they are now; a folder with very many is not looked through."""
    return {path: (found.st_mtime_ns, found.st_size) for path, found, _, _ in _files(folder)}


def keep(folder: Path, before: Seen, place: Path) -> tuple[str, ...]:
    """Copy what is new since, or has changed, into a place where it stays; the paths there."""
    kept: list[str] = []
    room = _MOST_BYTES - folders.size_of(str(place))
    for path, found, name, within in _files(folder):
        is_new = before.get(path) != (found.st_mtime_ns, found.st_size)
        if is_new and 0 < found.st_size <= min(_LARGEST, room) and len(kept) < _MOST_KEPT:
            room -= found.st_size
            with suppress(OSError):  # it was changed meanwhile, or the disk is full
                kept.append(str(_copied(name, within, place)))
    return tuple(kept)


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


def _copied(name: str, within: int, place: Path) -> Path:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    with os.fdopen(fd, "rb") as source:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is no file any more")
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = place / free_name(place, harmless(name))
        with target.open("xb") as copy:
            shutil.copyfileobj(source, copy, MIB)
    return target
