"""Files as data: one file with its hash, a directory as a mapping from relative path to file, one hash over all; and
files written whole or not at all, of which a small private one is JSON.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from habitus.errors import Invalid, StorageFailed
from habitus.locks import lock

# Larger files are known by their hash, kept where they lie, and not copied into the history.
KEEP_BYTES = 1024 * 1024
READ_BYTES = 32 * KEEP_BYTES  # the most that is read whole


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """One file. `content` is None when it is too large to be kept, or was not asked for."""

    sha256: str
    size: int
    executable: bool = False
    content: bytes | None = None


Tree = Mapping[str, File]
_LONGEST_PATH, _LONGEST_PART = 4095, 255  # what Linux and macOS take
_PLAIN_PATH = re.compile(r"(?:[A-Za-z0-9_-][\w.-]*/)*[A-Za-z0-9_-][\w.-]*")


def file_of(content: bytes, *, executable: bool = False) -> File:
    return File(sha256=hashlib.sha256(content).hexdigest(), size=len(content), executable=executable, content=content)


def is_examination(path: str) -> bool:
    """Whether a file says how a skill is examined: it is not a part of what the skill says or does, and nobody who is
    examined with it may read it."""
    return path.casefold().startswith("evals/")


def without_examination(tree: Tree) -> dict[str, File]:
    return {path: file for path, file in tree.items() if not is_examination(path)}


def tree_hash(tree: Tree) -> str:
    """Over all that is the skill: how it is examined changes nothing about it."""
    kept = [(path, tree[path]) for path in sorted(tree) if not is_examination(path)]
    lines = (f"{path}\0{file.executable:d}\0{file.sha256}\n" for path, file in kept)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def is_same(a: Tree, b: Tree) -> bool:
    """Whether two trees have the same files, every one of them."""
    return a.keys() == b.keys() and all(
        (file.sha256, file.executable) == (b[path].sha256, b[path].executable) for path, file in a.items()
    )


def open_regular(source: Path) -> BinaryIO:
    """A regular file, and nothing that would keep us waiting."""
    fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, "it is a folder")
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    return os.fdopen(fd, "rb")


def content_of(path: str, file: File, folder: Path | None) -> bytes:
    """All that a file of a tree holds; where it is too large for the tree, from the folder that was read.

    `OSError` says why it can't be had: it is larger still, gone, another by now, or a link that leads out.
    """
    if file.content is not None:
        return file.content
    if file.size > READ_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {READ_BYTES // KEEP_BYTES} MiB")
    if folder is None or not (folder / path).resolve().is_relative_to(folder.resolve()):
        raise FileNotFoundError(errno.ENOENT, "it can't be read where it lies")
    with open_regular(folder / path) as source:
        data = source.read(file.size + 1)
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise OSError(errno.ESTALE, "it was changed meanwhile")
    return data


def given_path(given: str | Path) -> Path:
    """A path as a person writes it, its `~` filled in; what no file can be called is an error."""
    text = str(given)
    shown = text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"
    if not text.strip() or "\0" in text:
        raise Invalid(f"{shown!r} is not a path.", hint="Give the path of a file or folder.")
    if len(text) > _LONGEST_PATH or any(len(part) > _LONGEST_PART for part in Path(text).parts):
        raise Invalid(f"'{shown}' is too long to be a path.", hint="Give the path of a file or folder.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise Invalid(f"'{shown}' names a person whom this machine does not know.", hint="Check the name.") from None


def checked_path(path: str) -> str:
    """A path that stays inside the skill, or an error."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path or str(pure) != path:
        raise Invalid(
            f"'{path}' is not a path inside a skill.", hint="Use a relative path such as references/notes.md."
        )
    return path


# Writing

ASIDE = ".habitus-"  # what an interrupted write leaves behind begins with this


def aside_of(path: Path) -> Path:
    """A name beside the path, for what shall take its place once it is complete."""
    return path.with_name(f"{ASIDE}{secrets.token_hex(6)}")


def write_whole(
    path: Path,
    content: bytes,
    *,
    mode: int | None = None,
    durable: bool = True,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Put a file in place: whoever reads it sees the old one or the new one, also after a kill or a power cut.

    Without a mode it keeps mode and owner of the file it replaces, and a new one is for its owner alone. What need
    not be `durable` may be lost in a power cut, never in a kill. A `check` that raises, at the last moment, leaves
    the old one.
    """
    with put_in_place(path, durable=durable) as aside:
        write_new(aside, content, 0o600 if mode is None else mode, durable=durable)
        if mode is None and path.exists():
            there = path.stat()
            aside.chmod(stat.S_IMODE(there.st_mode))
            with suppress(PermissionError):
                os.chown(aside, there.st_uid, there.st_gid)
        check()


def append(path: Path, data: bytes) -> None:
    """Add lines to a file for its owner alone, in one write, so that two processes never mix theirs."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, "no space left")
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def put_in_place(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """A place beside the path for a file that takes its place when the block ends, and vanishes when it fails."""
    aside = aside_of(path)
    with disk_errors(path):
        try:
            yield aside
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        if durable:
            sync(path.parent)


def write_new(path: Path | str, content: bytes, mode: int, *, durable: bool = True) -> None:
    """Write a file that is not there yet."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(handle, left) :]
        os.fchmod(handle, mode)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


def sync(path: Path | str) -> None:
    """Wait until a file, or the names in a folder, would outlive a power cut."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def disk_errors(place: Path) -> Iterator[None]:
    """One line for the person about what could not be written there."""
    try:
        yield
    except OSError as error:
        where = place if error.filename is None or ASIDE in str(error.filename) else error.filename
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFailed(f"No space left to write {where}.", hint="Free some space and retry.") from None
        what = f"Can't write {where}: {error.strerror or error}."
        raise StorageFailed(what, hint="Check its permissions; nothing was changed.") from None


class PrivateJson:
    """An object of names and values; every look sees what another process has written."""

    def __init__(self, path: Path, *, hint: str = "Fix it, or move it away.") -> None:
        self.path = path
        self._hint = hint

    def read(self) -> dict[str, Any]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise StorageFailed(f"{self.path} can't be read: {error}.", hint=self._hint) from None
        if not isinstance(found, dict):
            raise StorageFailed(f"{self.path} can't be read: it is not an object.", hint=self._hint)
        return found

    @contextmanager
    def changing(self) -> Iterator[dict[str, Any]]:
        """The file's content, to be changed in place. An error inside leaves the file as it was."""
        with lock(self.path.with_suffix(".lock")):
            kept = self.read()
            before = json.dumps(kept)
            yield kept
            if json.dumps(kept) != before:
                write_whole(self.path, json.dumps(kept, indent=2).encode(), mode=0o600)
