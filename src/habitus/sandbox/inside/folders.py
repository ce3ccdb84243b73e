"""Measures, tidies and removes folders that untrusted code filled, however deep, long-named or locked they are.

Each step starts from an open folder: the length of a path is limited, the depth of folders is not.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

# A million empty files fill a disk too, so every entry counts at least one block.
_LEAST = 4096
# Windows opens no folder; no untrusted code ran there, so its paths lead where they seem to.
_OPENS_FOLDERS = os.open in os.supports_dir_fd
_FOLDER = os.O_RDONLY
for _flag in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"):
    _FOLDER |= getattr(os, _flag, 0)
# Opens a folder that we may not read yet.
_O_PATH = getattr(os, "O_PATH", 0)


def measure_folder_disk_space(folder: str) -> int:
    """Return the disk space used below a folder. A file with several names counts once; links are not followed.

    The count stops early if a folder is moved meanwhile, so callers measure again.
    """
    seen: set[int] = set()
    total = 0
    if not _OPENS_FOLDERS:
        return sum(
            measure_entry_disk_space(os.lstat(os.path.join(top, name)))
            for top, below, files in os.walk(folder)
            for name in (*below, *files)
        )

    def look(here: int) -> list[str]:
        nonlocal total
        below = []
        with os.scandir(here) as listing:
            for entry in listing:
                with contextlib.suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    total += 0 if found.st_ino in seen else measure_entry_disk_space(found)
                    seen.update([found.st_ino] if found.st_nlink > 1 else [])
                    below += [entry.name] if entry.is_dir(follow_symlinks=False) else []
        return below

    with contextlib.suppress(OSError):
        _walk_folder(folder, look, lambda here, name: None)
    return total


def measure_entry_disk_space(entry: os.stat_result) -> int:
    """Return the disk space that counts for one entry."""
    blocks: int = getattr(entry, "st_blocks", entry.st_size // 512 + 1)
    return max(blocks * 512, _LEAST)


def remove_folder(folder: str, *, last: str = "") -> None:
    """Remove a folder with its content. The file named `last` is removed after everything else."""
    empty_folder(folder, but=last)
    if last:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, last))
    os.rmdir(folder)


def empty_folder(folder: str, *, but: str = "") -> None:
    """Remove the content of a folder, except a file named `but` directly in it."""
    if not _OPENS_FOLDERS:
        _empty_folder_by_path(folder, but)
        return
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

    _walk_folder(folder, clear, lambda here, name: os.rmdir(name, dir_fd=here))


def _empty_folder_by_path(folder: str, but: str) -> None:
    for top, below, files in os.walk(folder, topdown=False):
        for name in below:
            os.rmdir(os.path.join(top, name))
        for name in files:
            if top != folder or name != but:
                path = os.path.join(top, name)
                # Windows removes no file that is read-only.
                os.chmod(path, 0o600)
                os.unlink(path)


_MOST_DEPTH = 32
_MOST_BYTES = 1 << 30


def remove_entries_unsafe_to_read(folder: str) -> None:
    """Remove what must not be read below a folder: links, pipes, devices, huge files and very deep folders."""
    depth = 0

    def clear(here: int) -> list[str]:
        nonlocal depth
        depth += 1
        below = []
        with os.scandir(here) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                elif depth > _MOST_DEPTH or not _is_file_safe_to_read(entry.stat(follow_symlinks=False)):
                    os.unlink(entry.name, dir_fd=here)
        return below

    def leave(here: int, name: str) -> None:
        nonlocal depth
        if depth > _MOST_DEPTH:
            os.rmdir(name, dir_fd=here)
        depth -= 1

    _walk_folder(folder, clear, leave)


def _is_file_safe_to_read(entry: os.stat_result) -> bool:
    return stat.S_ISREG(entry.st_mode) and entry.st_size <= _MOST_BYTES


def _walk_folder(folder: str, enter: Callable[[int], list[str]], leave: Callable[[int, str], None]) -> None:
    """Visit a folder and all below it. `enter` returns the subfolders; `leave` is called in the parent afterwards."""
    here = _open_folder_restoring_permissions(folder)
    above: list[tuple[int, list[str]]] = []
    try:
        names = enter(here)
        while names or above:
            if names:
                try:
                    below = _open_folder_restoring_permissions(names[-1], here)
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
                # Code may move a folder while we are in it; going on would delete files outside.
                if os.fstat(here).st_ino != number:
                    raise OSError(f"a folder below {folder} was moved meanwhile")
                leave(here, names.pop())
    finally:
        os.close(here)


def _open_folder_restoring_permissions(name: str, above: int | None = None) -> int:
    """Open a folder of ours, restoring the owner's permissions if code removed them."""
    if not _O_PATH:
        return os.open(name, _FOLDER, dir_fd=above)
    handle = os.open(name, _O_PATH | _FOLDER, dir_fd=above)
    try:
        mode = os.fstat(handle).st_mode
        if mode & 0o700 != 0o700:
            # The link in /proc names exactly the folder we opened, even if it was replaced meanwhile.
            os.chmod(f"/proc/self/fd/{handle}", (mode & 0o7777) | 0o700)
        return os.open(".", _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)
