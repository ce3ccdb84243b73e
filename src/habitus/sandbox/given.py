"""Files given to code: one folder a session, which its pads and tools see read-only and under one path.

What is put there shows at once in code that runs already, because the folder is bound and not copied. Every method
waits for a disk: call it beside the event loop.
"""

from __future__ import annotations

import errno
import hashlib
import io
import itertools
import os
import re
import shutil
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from habitus.errors import Invalid
from habitus.files import File, Tree, checked_path, tree_hash
from habitus.sandbox.inside import folders
from habitus.sandbox.model import GIB, MIB
from habitus.text import encodable

NOWHERE: Mapping[str, Path] = {}
SKILLS, ATTACHED = "skills", "attached"
LARGEST_ATTACHED, LEFT_FREE = 8 * GIB, GIB // 2
MOST_FILES, LARGEST_FILE, MOST_BYTES = 2_000, 32 * MIB, 128 * MIB  # of one tree

_LONGEST_NAME, _LONGEST_ENDING = 120, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """Where a tree lies for code, and what of it does not lie there: path → why."""

    path: str
    left_out: dict[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenFile:
    """One file of a person's: what code calls it, and where our copy of it lies."""

    path: str
    copy: Path
    size: int


class Given:
    """`seen_at` is where code finds the folder. Only its user may read it, and not even they write to its files."""

    def __init__(self, folder: Path, *, seen_at: str) -> None:
        self.folder = folder
        self._seen_at = seen_at
        self._lock = threading.Lock()
        self._files: dict[tuple[int, ...], GivenFile] = {}
        self._placed: dict[str, tuple[str, Placed]] = {}  # name → hash of the tree that was put, and what came of it

    def path_of(self, *parts: str) -> str:
        """What code calls a file or folder of it."""
        return "/".join((self._seen_at, *parts))

    def put_tree(self, name: str, tree: Tree, *, folders: Mapping[str, Path] = NOWHERE) -> Placed:
        """Have a skill's folder consist of these files; what is too large to be in a tree is taken from its folder."""
        digest = tree_hash(tree)
        with self._lock:
            known = self._placed.get(name)
            if known is None or known[0] != digest:
                known = (digest, self._replaced(_folder_name(name), tree, folders))
                self._placed[name] = known
            return known[1]

    def trees(self) -> list[str]:
        """The skills whose files are there, also from before a session was resumed."""
        with self._lock:
            top = self.folder / SKILLS
            return sorted(path.name for path in top.iterdir() if path.name[0] != ".") if top.is_dir() else []

    def drop_tree(self, name: str) -> None:
        with self._lock:
            self._placed.pop(name, None)
            _remove(self._below(SKILLS) / _folder_name(name))

    def put_file(self, source: Path) -> GivenFile:
        """A copy of a person's file as it is now, under its name as far as that is harmless; a taken one gets a number.

        The same file again is the copy that is there. `OSError`: it can't be read, or there is no room.
        """
        with self._lock, opened(source) as original:
            found = os.fstat(original.fileno())
            identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            if identity not in self._files:
                top = self._below(ATTACHED)
                _check_room(top, found.st_size)
                name = free_name(top, harmless(source.name))
                size = _copy(original, top / name, found.st_size)
                self._files[identity] = GivenFile(path=self.path_of(ATTACHED, name), copy=top / name, size=size)
            return self._files[identity]

    def _replaced(self, name: str, tree: Tree, folders: Mapping[str, Path]) -> Placed:
        """The new folder takes the old one's place at once, so that code never finds half of one."""
        top = self._below(SKILLS)
        new, old = top / f".new-{name}", top / f".old-{name}"
        for rest in (new, old):
            _remove(rest)
        new.mkdir(mode=0o700)
        left_out = _filled(new, tree, folders)
        if (top / name).exists():
            (top / name).rename(old)
        new.rename(top / name)
        _remove(old)
        return Placed(path=self.path_of(SKILLS, name), left_out=left_out)

    def _below(self, name: str) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        below = self.folder / name
        below.mkdir(mode=0o700, exist_ok=True)
        return below


def _filled(folder: Path, tree: Tree, origins: Mapping[str, Path]) -> dict[str, str]:
    left_out, room, count = {}, MOST_BYTES, 0
    for path, file in sorted(tree.items()):
        if count >= MOST_FILES:
            left_out[path] = f"there are more than {MOST_FILES:,} files"
        elif file.size > LARGEST_FILE:
            left_out[path] = f"it is larger than {LARGEST_FILE // MIB} MiB"
        elif file.size > room:
            left_out[path] = f"all files together are larger than {MOST_BYTES // MIB} MiB"
        elif reason := _copied(folder, path, file, origins.get(path)):
            left_out[path] = reason
        else:
            room, count = room - file.size, count + 1
    return left_out


def _copied(folder: Path, path: str, file: File, origin: Path | None) -> str:
    """Put one file there; why not, if not."""
    target = folder / checked_path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with content_of(path, file, origin) as source:
            digest = _write(target, source, executable=file.executable)
    except OSError:
        return "it can't be read where it lies" if file.content is None else "no file can be called that here"
    if digest != file.sha256:
        target.unlink()
        return "it was changed meanwhile"
    return ""


def content_of(path: str, file: File, origin: Path | None) -> BinaryIO:
    """A file of a tree, or of the folder that the tree was read from; a link that leads out of it leads nowhere."""
    if file.content is not None:
        return io.BytesIO(file.content)
    if origin is None or not (origin / path).resolve().is_relative_to(origin.resolve()):
        raise FileNotFoundError(path)
    return opened(origin / path)


def opened(source: Path) -> BinaryIO:
    """A regular file, and nothing that would keep us waiting."""
    fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, "it is a folder")
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return os.fdopen(fd, "rb")


def _write(target: Path, source: BinaryIO, *, executable: bool) -> str:
    """Copy it all; the hash of what was copied."""
    digest = hashlib.sha256()
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o500 if executable else 0o400)
    with os.fdopen(fd, "wb") as copy:
        while data := source.read(MIB):
            digest.update(data)
            copy.write(data)
    return digest.hexdigest()


def _folder_name(name: str) -> str:
    if name.startswith(".") or "/" in checked_path(name):
        raise Invalid(f"'{name}' can't be the name of a folder for code.")
    return name


def _check_room(top: Path, size: int) -> None:
    if size > LARGEST_ATTACHED:
        raise OSError(errno.EFBIG, f"it is larger than {LARGEST_ATTACHED // GIB} GiB")
    free = shutil.disk_usage(top).free
    if free - size < LEFT_FREE:
        raise OSError(errno.ENOSPC, f"{size // MIB:,} MiB is too much for the {free // MIB:,} MiB that are free")


def _copy(original: BinaryIO, target: Path, size: int) -> int:
    """By the kernel, which shares the blocks where the disk can; whole, or not at all. How many bytes it has."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    try:
        with os.fdopen(fd, "wb") as copy:
            try:
                while size > 0 and (count := os.copy_file_range(original.fileno(), copy.fileno(), size)):
                    size -= count
            except (AttributeError, OSError):  # another system, or two disks
                original.seek(0)
                copy.seek(0)
                shutil.copyfileobj(original, copy, MIB)
        return target.stat().st_size
    except BaseException:
        target.unlink()
        raise


def harmless(name: str) -> str:
    """A name that stays what it is in a prompt, a program and a shell: its letters, digits and ending."""
    kept = re.sub(r"[^\w.+() -]", "_", encodable(name)).strip()
    ending = Path(kept).suffix[:_LONGEST_ENDING]
    stem = kept.removesuffix(ending)
    while len(f"{stem}{ending}".encode()) > _LONGEST_NAME:
        stem = stem[:-1]
    return f"_{stem}{ending}" if stem.startswith((".", "-")) or not stem else f"{stem}{ending}"


def free_name(top: Path, wanted: str) -> str:
    named = Path(wanted)
    numbered = (f"{named.stem}-{number}{named.suffix}" for number in itertools.count(2))
    return next(name for name in itertools.chain([wanted], numbered) if not (top / name).exists())


def _remove(folder: Path) -> None:
    if folder.is_dir():
        folders.remove(str(folder))
