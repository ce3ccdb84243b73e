"""Files that go into and come out of the sandbox.

Given files lie in one folder a session, which its scratchpads and tools see read-only under one path. Made files are
those that a cell writes for a person to open: found in a scratchpad's folder after the cell and copied out of it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import os
import re
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from habitus import operating_system
from habitus.errors import Invalid
from habitus.files import (
    MAX_READ_BYTES,
    Tree,
    TreeFile,
    compute_tree_hash,
    open_regular_file,
    read_tree_file,
    require_path_inside_skill,
)
from habitus.locks import hold_lock
from habitus.sandbox.inside import folders
from habitus.sandbox.model import GIB, MIB
from habitus.text import replace_surrogates

NOWHERE: Mapping[str, Path] = {}
MAX_REDACTED_BYTES = 16 * MIB  # of an attached file; redacting more would take too long
SKILLS, ATTACHED = "skills", "attached"
# On the PATH of the code; a hidden folder is not copied to another machine.
COMMANDS = ".bin"
LARGEST_ATTACHED, LEFT_FREE = 8 * GIB, GIB // 2
# Bounds of one tree.
MOST_FILES, MOST_BYTES = 2_000, 128 * MIB
_LONGEST_NAME, _LONGEST_ENDING = 120, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class TreePlacementResult:
    """Where code finds a tree, and which of its files are missing: path to reason."""

    path: str
    left_out: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenFile:
    """One file of a person's: its path for code, and our copy of it."""

    path: str
    copy: Path
    size: int


class GivenFolder:
    """The folder of files that sandboxed code may read. `find_visible_path` returns its path inside and is
    called once, on demand.

    Only its user can read it, and its files are read-only even for them.
    """

    def __init__(self, folder: Path, *, find_visible_path: Callable[[], str]) -> None:
        self.folder = folder
        self._seen_at = functools.cache(find_visible_path)
        self._lock = threading.Lock()
        self._files: dict[tuple[int, ...], GivenFile] = {}
        self._placed: dict[str, tuple[str, TreePlacementResult]] = {}  # name → hash of the placed tree, and the result

    def get_visible_path(self, *parts: str) -> str:
        """Return the path under which code finds a file or folder."""
        return "/".join((self._seen_at(), *parts))

    @property
    def has_ever_held_files(self) -> bool:
        """Whether anything was ever placed here."""
        return any((self.folder / name).is_dir() for name in (SKILLS, ATTACHED, COMMANDS))

    def replace_skill_files(
        self, name: str, tree: Tree, *, folders: Mapping[str, Path] = NOWHERE
    ) -> TreePlacementResult:
        """Replace a skill's folder by these files; files too large for a tree are copied from `folders`."""
        digest = compute_tree_hash(tree)
        with self._exclusive_access():
            known = self._placed.get(name)
            if known is None or known[0] != digest:
                known = (digest, self._swap_in_new_skill_folder(_check_folder_name(name), tree, folders))
                self._placed[name] = known
            return known[1]

    def list_placed_skill_names(self) -> list[str]:
        """Return the names of the skills whose files are here, including those from before a resume."""
        top = self.folder / SKILLS
        return sorted(path.name for path in top.iterdir() if path.name[0] != ".") if top.is_dir() else []

    def has_skill_files(self, name: str) -> bool:
        """Whether the files of this skill are here."""
        return (self.folder / SKILLS / _check_folder_name(name)).is_dir()

    def remove_skill_files(self, name: str) -> None:
        """Remove the files of a skill."""
        with self._exclusive_access():
            self._placed.pop(name, None)
            _remove_folder(self._ensure_subfolder(SKILLS) / _check_folder_name(name))

    def copy_user_file_under_free_name(
        self, source: Path, clean: Callable[[bytes], bytes] = bytes, *, name: str = ""
    ) -> GivenFile:
        """Copy a person's file under a sanitized name, numbered if that is taken.

        `clean` redacts the content of all but the largest files. The same file again returns the existing copy.
        `OSError` if the file can't be read or does not fit.
        """
        with self._exclusive_access(), open_regular_file(source) as original:
            found = os.fstat(original.fileno())
            # Size and time in the key notice a file that was changed since it was attached.
            identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if identity not in self._files:
                top = self._ensure_subfolder(ATTACHED)
                _check_free_space(top, found.st_size)
                name = find_free_name(top, sanitize_file_name(name or source.name))
                if found.st_size <= MAX_REDACTED_BYTES:
                    content = clean(original.read(MAX_REDACTED_BYTES + 1))
                    _write_new_read_only_file(top / name, io.BytesIO(content), executable=False)
                    size = len(content)
                else:
                    size = _copy_large_file(original, top / name, found.st_size)
                self._files[identity] = GivenFile(
                    path=self.get_visible_path(ATTACHED, name), copy=top / name, size=size
                )
            return self._files[identity]

    def _swap_in_new_skill_folder(self, name: str, tree: Tree, folders: Mapping[str, Path]) -> TreePlacementResult:
        """Build the new folder aside and swap it in, so code never sees half of it."""
        top = self._ensure_subfolder(SKILLS)
        new, old = top / f".new-{name}", top / f".old-{name}"
        for rest in (new, old):
            _remove_folder(rest)
        new.mkdir(mode=0o700)
        left_out = _write_placed_skill_files(new, tree, folders)
        if (top / name).exists():
            (top / name).rename(old)
        new.rename(top / name)
        _remove_folder(old)
        return TreePlacementResult(path=self.get_visible_path(SKILLS, name), left_out=left_out)

    @contextlib.contextmanager
    def _exclusive_access(self) -> Iterator[None]:
        """Hold the folder's lock against other threads and processes."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock, hold_lock(self.folder):
            yield

    def _ensure_subfolder(self, name: str) -> Path:
        below = self.folder / name
        below.mkdir(mode=0o700, exist_ok=True)
        return below


def _write_placed_skill_files(folder: Path, tree: Tree, origins: Mapping[str, Path]) -> dict[str, str]:
    left_out, room, count = {}, MOST_BYTES, 0
    for path, file in sorted(tree.items()):
        if count >= MOST_FILES:
            left_out[path] = f"there are more than {MOST_FILES:,} files"
        elif MAX_READ_BYTES >= file.size > room:
            left_out[path] = f"all files together are larger than {MOST_BYTES // MIB} MiB"
        elif reason := _write_placed_skill_file(folder, path, file, origins.get(path)):
            left_out[path] = reason
        else:
            room, count = room - file.size, count + 1
    return left_out


def _write_placed_skill_file(folder: Path, path: str, file: TreeFile, origin: Path | None) -> str:
    """Write one file and return "" or the reason why not."""
    try:
        target, data = folder / require_path_inside_skill(path), read_tree_file(path, file, origin)
    except Invalid:
        return "no file can be called that here"
    except OSError as error:
        return error.strerror or str(error)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_new_read_only_file(target, io.BytesIO(data), executable=file.executable)
    except OSError as error:
        return "no file can be called that here" if error.errno == errno.ENAMETOOLONG else "there is no room for it"
    return ""


def _write_new_read_only_file(target: Path, source: BinaryIO, *, executable: bool) -> None:
    fd = os.open(
        target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | operating_system.O_PLAIN, 0o500 if executable else 0o400
    )
    with os.fdopen(fd, "wb") as copy:
        shutil.copyfileobj(source, copy, MIB)


def _check_folder_name(name: str) -> str:
    if name.startswith(".") or "/" in require_path_inside_skill(name):
        raise Invalid(f"'{name}' can't be the name of a folder for code.")
    return name


def _check_free_space(top: Path, size: int) -> None:
    if size > LARGEST_ATTACHED:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST_ATTACHED // GIB} GiB")
    free = shutil.disk_usage(top).free
    if free - size < LEFT_FREE:
        raise OSError(errno.ENOSPC, f"{size // MIB:,} MiB is too much for the {free // MIB:,} MiB that are free")


def _copy_large_file(original: BinaryIO, target: Path, size: int) -> int:
    """Copy as many bytes as the file had when opened, completely or not at all; return the count."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | operating_system.O_PLAIN, 0o400)
    left = size
    try:
        with os.fdopen(fd, "wb") as copy:
            while left > 0 and (count := _copy_chunk(original, copy, left)):
                left -= count
    except BaseException:
        target.unlink()
        raise
    return size - left


def _copy_chunk(original: BinaryIO, copy: BinaryIO, most: int) -> int:
    """Copy a part in the kernel, which can share blocks; between file systems, through memory."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.copy_file_range(original.fileno(), copy.fileno(), most)
    data = original.read(min(most, MIB))
    copy.write(data)
    copy.flush()
    return len(data)


def sanitize_file_name(name: str) -> str:
    """Return a name that is safe in a prompt, a program and a shell: its letters, digits and suffix."""
    # Quotes, newlines and slashes could end a string or a path early.
    kept = re.sub(r"[^\w.+() -]", "_", replace_surrogates(name)).strip()
    ending = Path(kept).suffix[:_LONGEST_ENDING]
    stem = kept.removesuffix(ending)
    while len(f"{stem}{ending}".encode()) > _LONGEST_NAME:
        stem = stem[:-1]
    return f"_{stem}{ending}" if stem.startswith((".", "-")) or not stem else f"{stem}{ending}"


def find_free_name(top: Path, wanted: str) -> str:
    """Return the wanted name, with a number if it exists in the folder."""
    named = Path(wanted)
    numbered = (f"{named.stem}-{number}{named.suffix}" for number in itertools.count(2))
    return next(name for name in itertools.chain([wanted], numbered) if not (top / name).exists())


def _remove_folder(folder: Path) -> None:
    if folder.is_dir():
        folders.remove_folder(str(folder))


# Nothing that a browser would run: what has no way out of the sandbox would find one on the person's screen.
OPENABLE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".csv", ".xlsx"})
_MOST_LOOKED_AT, _DEEPEST, _MOST_KEPT, _LARGEST, _MOST_BYTES = 2_000, 4, 10, 64 * MIB, 512 * MIB


class MadeFilesTracker:
    """Finds files that are new in a scratchpad's folder since the last check. Blocks on disk access."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = {path: _get_file_stamp(found) for path, found, _, _ in _walk_openable_files(folder)}

    def open_new_files(self, room: int) -> Iterator[tuple[str, BinaryIO]]:
        """Yield the name and open file of each new one that fits in `room`; nothing if the folder is too full."""
        seen, count = {}, 0
        for path, found, name, within in _walk_openable_files(self._folder):
            seen[path] = _get_file_stamp(found)
            is_new = self._seen.get(path) != seen[path]
            if is_new and 0 < found.st_size <= min(_LARGEST, room) and count < _MOST_KEPT:
                # Code may have replaced the file since it was listed.
                with suppress(OSError), _open_regular_file_in_folder(name, within) as source:
                    room, count = room - found.st_size, count + 1
                    yield name, source
        self._seen = seen

    def copy_new_files(self, place: Path) -> tuple[str, ...]:
        """Copy the new files into `place` and return their paths."""
        kept: list[str] = []
        for name, source in self.open_new_files(compute_bytes_left_for_made_files(place)):
            # The disk may be full.
            with suppress(OSError), open_new_file_under_free_name(name, place) as copy:
                shutil.copyfileobj(source, copy, MIB)
                kept.append(copy.name)
        return tuple(kept)


def compute_bytes_left_for_made_files(place: Path) -> int:
    """Return how many more bytes of made files a folder may hold."""
    return _MOST_BYTES - folders.measure_folder_disk_space(str(place))


def open_new_file_under_free_name(name: str, place: Path) -> BinaryIO:
    """Create a file of about that name in `place` and return it open."""
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return (place / find_free_name(place, sanitize_file_name(name))).open("xb")


def _get_file_stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_mtime_ns, found.st_size


def _walk_openable_files(folder: Path) -> Iterator[tuple[str, os.stat_result, str, int]]:
    """Yield the files a person can open: relative path, status, name and the open folder they lie in."""
    if sys.platform == "win32":
        raise NotImplementedError
    count = 0
    with suppress(OSError):
        for here, below, names, within in os.fwalk(folder, follow_symlinks=False):
            path = Path(here).relative_to(folder)
            count += len(names) + len(below)
            if count > _MOST_LOOKED_AT:
                return
            below[:] = sorted(name for name in below if not name.startswith(".")) if len(path.parts) < _DEEPEST else []
            for name in sorted(names):
                if Path(name).suffix.lower() in OPENABLE_SUFFIXES:
                    found = os.stat(name, dir_fd=within, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        yield str(path / name), found, name, within


def _open_regular_file_in_folder(name: str, within: int) -> BinaryIO:
    # Sandboxed code may swap the file for a link or a pipe at any time, so neither may be followed or waited for.
    if sys.platform == "win32":
        raise NotImplementedError
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    source = os.fdopen(fd, "rb")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        source.close()
        raise OSError("it is no file any more")
    return source
