"""Files as data (hashes, and trees as mappings from path to file), and atomic writes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from habitus import operating_system
from habitus.errors import Invalid, StorageFailed
from habitus.locks import hold_lock

# Larger files are known by their hash only and not copied into the history.
MAX_KEPT_BYTES = 1024 * 1024
# The largest file that is read completely.
MAX_READ_BYTES = 32 * MAX_KEPT_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class TreeFile:
    """One file; `content` is None if it is too large to keep or was not requested."""

    sha256: str
    size: int
    executable: bool = False
    content: bytes | None = None


Tree = Mapping[str, TreeFile]
# The limits of Linux and macOS.
_LONGEST_PATH, _LONGEST_PART = 4095, 255
_PLAIN_PATH = re.compile(r"(?:[A-Za-z0-9_-][\w.-]*/)*[A-Za-z0-9_-][\w.-]*")


def build_tree_file(content: bytes, *, executable: bool = False) -> TreeFile:
    """Return the file with this content."""
    return TreeFile(
        sha256=hashlib.sha256(content).hexdigest(), size=len(content), executable=executable, content=content
    )


def is_eval_file(path: str) -> bool:
    """Return whether a file belongs to a skill's evals, which are not part of the skill and hidden from the agent under
    test.
    """
    return path.casefold().startswith("evals/")


def drop_eval_files(tree: Tree) -> dict[str, TreeFile]:
    """Return the tree without eval files."""
    return {path: file for path, file in tree.items() if not is_eval_file(path)}


def compute_tree_hash(tree: Tree) -> str:
    """Return the hash of a tree, ignoring eval files."""
    kept = [(path, tree[path]) for path in sorted(tree) if not is_eval_file(path)]
    lines = (f"{path}\0{file.executable:d}\0{file.sha256}\n" for path, file in kept)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def has_same_files(a: Tree, b: Tree) -> bool:
    """Return whether two trees contain the same files."""
    return a.keys() == b.keys() and all(
        (file.sha256, file.executable) == (b[path].sha256, b[path].executable) for path, file in a.items()
    )


def open_regular_file(source: Path) -> BinaryIO:
    """Open a regular file; raise OSError for folders, pipes and devices, which could block."""
    fd = operating_system.open_regular_file_for_reading(source)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, "it is a folder")
        raise OSError(errno.EINVAL, "it is not an ordinary file")
    return os.fdopen(fd, "rb")


def read_tree_file(path: str, file: TreeFile, folder: Path | None) -> bytes:
    """Return the content of a file, read from the folder if it is too large for the tree.

    Raises OSError with the reason if it is even larger, gone, changed, or a link that leads out of the folder.
    """
    if file.content is not None:
        return file.content
    if file.size > MAX_READ_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_READ_BYTES // MAX_KEPT_BYTES} MiB")
    if folder is None or not (folder / path).resolve().is_relative_to(folder.resolve()):
        raise FileNotFoundError(errno.ENOENT, "it is not available here")
    with open_regular_file(folder / path) as source:
        data = source.read(file.size + 1)
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise OSError(errno.ESTALE, "it was changed meanwhile")
    return data


def parse_user_path(path: str | Path) -> Path:
    """Return a path as a user wrote it, with `~` expanded; raise Invalid if no file can have this name."""
    text = str(path)
    shown = text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"
    if not text.strip() or "\0" in text:
        raise Invalid(f"{shown!r} is not a path.", hint="Give the path of a file or folder.")
    if len(text) > _LONGEST_PATH or any(len(part) > _LONGEST_PART for part in Path(text).parts):
        raise Invalid(f"'{shown}' is too long to be a path.", hint="Give the path of a file or folder.")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise Invalid(f"'{shown}' names an unknown user.", hint="Check the name.") from None


def require_path_inside_skill(path: str) -> str:
    """Return the path if it stays inside the skill; raise Invalid otherwise."""
    if _PLAIN_PATH.fullmatch(path):
        return path
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path or str(pure) != path:
        raise Invalid(
            f"'{path}' is not a path inside a skill.", hint="Use a relative path such as references/notes.md."
        )
    return path


# The prefix of temporary files, which an interrupted write leaves behind.
TEMPORARY_PREFIX = ".habitus-"


def build_temporary_path_beside(path: Path) -> Path:
    """Return a temporary name beside the path."""
    return path.with_name(f"{TEMPORARY_PREFIX}{secrets.token_hex(6)}")


def write_atomically(
    path: Path,
    content: bytes,
    *,
    mode: int | None = None,
    durable: bool = True,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write a file atomically: readers see the old or the new content, even after a kill or a power cut.

    Without a mode it keeps mode and owner of the file it replaces; a new file is private. A write that is not `durable`
    may be lost in a power cut, but not by a kill. If `check` raises just before the replacement, the old file stays.
    """
    with replace_file_when_block_ends(path, durable=durable) as aside:
        write_new_file(aside, content, 0o600 if mode is None else mode, durable=durable)
        if mode is None and path.exists():
            operating_system.copy_file_permissions_and_owner(aside, path.stat())
        check()


def append_to_file(path: Path, data: bytes) -> None:
    """Append to a private file in a single write, so two processes never mix their lines."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | operating_system.O_PLAIN, 0o600)
    try:
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, "no space left")
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replace_file_when_block_ends(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path that replaces the file when the block ends, and is deleted when it fails."""
    aside = build_temporary_path_beside(path)
    with translate_disk_errors(path):
        try:
            yield aside
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)
        if durable:
            operating_system.sync_to_disk(path.parent)


def write_new_file(path: Path | str, content: bytes, mode: int, *, durable: bool = True) -> None:
    """Write a file that must not exist yet."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | operating_system.O_PLAIN, 0o600)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(handle, left) :]
        operating_system.set_file_permissions(handle, mode)
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def translate_disk_errors(place: Path) -> Iterator[None]:
    """Turn an OSError in this block into a StorageFailed that names the path."""
    try:
        yield
    except OSError as error:
        where = place if error.filename is None or TEMPORARY_PREFIX in str(error.filename) else error.filename
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFailed(f"No space left to write {where}.", hint="Free some space and retry.") from None
        what = f"Can't write {where}: {error.strerror or error}."
        raise StorageFailed(what, hint="Check its permissions; nothing was changed.") from None


class PrivateJsonFile:
    """A private JSON file with one object; every read sees the changes of other processes."""

    def __init__(self, path: Path, *, hint: str = "Fix it, or move it away.") -> None:
        self.path = path
        self._hint = hint

    def read(self) -> dict[str, Any]:
        """Return the object; empty if the file does not exist."""
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
    def edit_under_lock(self) -> Iterator[dict[str, Any]]:
        """Yield the object for changes, which are saved when the block ends without an error."""
        with hold_lock(self.path.with_suffix(".lock")):
            kept = self.read()
            before = json.dumps(kept)
            yield kept
            if json.dumps(kept) != before:
                write_atomically(self.path, json.dumps(kept, indent=2).encode(), mode=0o600)
