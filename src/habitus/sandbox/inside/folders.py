"""Folders that untrusted code filled: measured and removed whole, however deep, long-named or locked they are.

No path is ever built, because a path has a longest: every step is taken from an open folder, one at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

_LEAST = 4096  # what an entry takes at least: a million empty files fill a disk, too
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def size_of(folder: str) -> int:
    """What lies below takes up on disk; a file with several names counts once, links are not followed.

    A folder that is moved while we are in it ends the look early: whoever has to know looks again.
    """
    seen: set[int] = set()
    total = 0

    def look(here: int) -> list[str]:
        nonlocal total
        below = []
        with os.scandir(here) as listing:
            for entry in listing:
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    total += 0 if found.st_ino in seen else room_of(found)
                    seen.update([found.st_ino] if found.st_nlink > 1 else [])
                    below += [entry.name] if entry.is_dir(follow_symlinks=False) else []
        return below

    with contextlib.suppress(OSError):
        _walk(folder, look, lambda here, name: None)
    return total


def room_of(entry: os.stat_result) -> int:
    return max(entry.st_blocks * 512, _LEAST)


def remove(folder: str, *, last: str = "") -> None:
    """All of it, the folder too. The file named `last` stays as long as anything else does."""
    empty(folder, but=last)
    if last:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, last))
    os.rmdir(folder)


def empty(folder: str, *, but: str = "") -> None:
    """Remove what lies in a folder, but a file of that name directly in it."""
    top = os.stat(folder).st_ino

    def clear(here: int) -> list[str]:
        below = []
        kept = but if os.fstat(here).st_ino == top else ""
        with os.scandir(here) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                elif entry.name != kept:
                    os.unlink(entry.name, dir_fd=here)
        return below

    _walk(folder, clear, lambda here, name: os.rmdir(name, dir_fd=here))


def _walk(folder: str, enter: Callable[[int], list[str]], leave: Callable[[int, str], None]) -> None:
    """Enter a folder and every one below; `enter` says which lie in it, `leave` hears in their parent who is done."""
    here = _open_folder(folder)
    above: list[tuple[int, list[str]]] = []
    try:
        names = enter(here)
        while names or above:
            if names:
                try:
                    below = _open_folder(names[-1], here)
                except (FileNotFoundError, NotADirectoryError):
                    names.pop()
                    continue
                above.append((os.fstat(here).st_ino, names))
                os.close(here)
                here = below
                names = enter(here)
            else:
                parent = os.open("..", _FOLDER, dir_fd=here)
                os.close(here)
                here = parent
                number, names = above.pop()
                if os.fstat(here).st_ino != number:
                    raise OSError(f"a folder below {folder} was moved meanwhile")
                leave(here, names.pop())
    finally:
        os.close(here)


def _open_folder(name: str, above: int | None = None) -> int:
    """Open a folder that is ours, made readable and writable where its maker took that away."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        mode = os.fstat(handle).st_mode
        if mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", (mode & 0o7777) | 0o700)
        return os.open(".", _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)
