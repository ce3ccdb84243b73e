"""A backend on a directory of skill folders; each change is atomic: temporary file, fsync, rename."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from habitus.errors import StorageFailed
from habitus.files import (
    MAX_KEPT_BYTES,
    TEMPORARY_PREFIX,
    Tree,
    TreeFile,
    build_temporary_path_beside,
    build_tree_file,
    translate_disk_errors,
    write_atomically,
    write_new_file,
)
from habitus.operating_system import StatFunction, flush_all_files_to_disk, open_folder_to_stat_entries, sync_to_disk
from habitus.skills import trees
from habitus.skills.model import Diagnostic, Severity
from habitus.skills.stores.base import BackendSkillFacts, FolderContents, FolderWrite

_MAX_FILES = 5_000
_MAX_KEPT_BYTES = 64 * 1024 * 1024
# A file modified this shortly before it was read may change again within the same time stamp.
_YOUNG_NS = 50_000_000
_YOUNG_MARK = "!"


class DirectoryBackend:
    """The skill folders of one directory, with an archive beside it."""

    keeps_facts = False

    def __init__(
        self,
        root: Path,
        archive: Path,
        *,
        can_write: bool = True,
        follow_links: bool = False,
        is_durable: bool = True,
        is_private: bool = False,
        only: str = "",
    ) -> None:
        self.root = root
        # Ten thousand folders are checked as plain strings: Path objects would double the cost.
        self._root = str(root)
        self.archive = archive
        self._is_durable = is_durable  # whether writes must survive a power failure
        self._syncs = is_durable
        self._max_mode = 0o700 if is_private else 0o777  # the widest permissions of written files
        self.can_write = can_write
        self.follow_links = follow_links
        self._only = only  # look for this folder only, besides the known ones
        self._watched: dict[str, tuple[str, tuple[tuple[str, int, int, int], ...]]] = {}

    # Looking

    def list_folder_change_stamps(self, known: Mapping[str, str]) -> Mapping[str, str]:
        """Return a stamp for every folder; empty for one that changed and must be read."""
        try:
            folders = sorted(self._list_folders())
            if self._only:
                folders = [folder for folder in folders if folder in known or folder == self._only]
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageFailed(f"Can't read {self.root}: {error.strerror}.", hint="Check its permissions.") from None
        with open_folder_to_stat_entries(self.root) as get_stat:
            return {folder: self._get_stamp_if_unchanged(folder, known.get(folder, ""), get_stat) for folder in folders}

    def _list_folders(self) -> Iterator[str]:
        seen: set[str] = set()
        with os.scandir(self.root) as entries:
            for entry in sorted(entries, key=lambda item: item.name) if self.follow_links else entries:
                if entry.name.startswith(".") or not entry.is_dir():
                    continue
                if self.follow_links and entry.is_symlink():
                    real = str(Path(entry.path).resolve())
                    # Two links to one folder, or a link to a neighbour, would list the same skill twice.
                    if real in seen or Path(real).parent == self.root.resolve():
                        continue
                    seen.add(real)
                yield _decode_name(entry.name)

    def _get_stamp_if_unchanged(self, folder: str, known: str, get_stat: StatFunction) -> str:
        """Return the known stamp if the times and sizes of its paths still match; otherwise an empty one."""
        if not known or known.endswith(_YOUNG_MARK):
            return ""
        cached = self._watched.get(folder)
        if cached is None or cached[0] != known:
            try:
                cached = (known, tuple(_parse_stamp_line(folder, line) for line in known.split("\n")))
            # A file name with a newline or tab breaks the format, so that folder is read at every check.
            except ValueError:
                return ""
            self._watched[folder] = cached
        try:
            for path, mtime, ctime, size in cached[1]:
                found = get_stat(path)
                # ctime catches edits that restore the old mtime, as some sync tools and editors do.
                if found.st_mtime_ns != mtime or found.st_ctime_ns != ctime or (size >= 0 and found.st_size != size):
                    return ""
        except OSError:
            return ""
        return known

    def is_stamp_current(self, folder: str, stamp: str) -> bool:
        """Whether the folder still matches this stamp."""
        try:
            with open_folder_to_stat_entries(self.root) as get_stat:
                return stamp != "" and self._get_stamp_if_unchanged(folder, stamp, get_stat) == stamp
        except OSError:
            return False

    def find_directory(self, folder: str) -> Path:
        return self.root / folder

    def read_file(self, folder: str, path: str) -> bytes | None:
        try:
            return (self.root / folder / path).read_bytes()
        except OSError:
            return None

    def read_main_files(self, folders: Collection[str]) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        for folder in folders:
            read = (self.read_file(folder, main) for main in trees.MAIN_FILES)
            if (content := next((each for each in read if each is not None), None)) is not None:
                found[folder] = content
        return found

    def read_folder(self, folder: str, expected: Tree | None = None) -> FolderContents | None:
        """Return the content of a folder, or None if there is none; errors become its `problem`."""
        top = f"{self._root}/{folder}"
        try:
            # A link out of the directory would let a skill pull in any file of the machine.
            if not self.follow_links and os.path.islink(top) and not _is_inside(Path(top), self.root):
                return _build_unreadable_contents(
                    folder, "The directory is a link out of the skill directory.", "Import the skill."
                )
            if not os.path.isdir(top):
                return self._report_undecodable_name(folder)
            return self._read_folder_contents(folder, top, expected or {})
        except OSError as error:
            name = Path(error.filename or top).name
            return _build_unreadable_contents(folder, f"Can't read {name}: {error.strerror}.", "Check its permissions.")

    def read_folders(self, folders: Collection[str], expected: Mapping[str, Tree]) -> Mapping[str, FolderContents]:
        read = ((folder, self.read_folder(folder, expected.get(folder))) for folder in folders)
        return {folder: found for folder, found in read if found is not None}

    def _report_undecodable_name(self, folder: str) -> FolderContents | None:
        """Report a folder whose name is not UTF-8; None if there is no such folder."""
        if "\\x" not in folder or folder not in self._list_folders():
            return None
        return _build_unreadable_contents(folder, "The name of the folder is not UTF-8.", "Rename it.")

    def _read_folder_contents(self, folder: str, top: str, expected: Tree) -> FolderContents:
        tree: dict[str, TreeFile] = {}
        lines: list[str] = []
        now, last, kept = time.time_ns(), 0, 0
        fault: Diagnostic | None = None
        for path, full, found in _walk_folder(top):
            if path != _decode_name(path):
                return _build_unreadable_contents(
                    folder, f"The name of the file '{_decode_name(path)}' is not UTF-8.", "Rename it."
                )
            if stat.S_ISLNK(found.st_mode):
                if path in trees.MAIN_FILES and fault is None:
                    fault = _build_diagnostic(folder, f"{path} is a link.", "Replace it with a file.")
                continue
            lines.append(_format_stamp_line(path, found))
            last = max(last, found.st_mtime_ns, found.st_ctime_ns)
            if stat.S_ISDIR(found.st_mode):
                if path in trees.MAIN_FILES and fault is None:
                    fault = _build_diagnostic(folder, f"{path} is a directory.", "Put a file in its place.")
            elif stat.S_ISREG(found.st_mode):
                keep = kept + found.st_size <= _MAX_KEPT_BYTES and len(tree) < _MAX_FILES
                tree[path] = _read_tree_file(full, found, keep=keep, expected=expected.get(path))
                kept += found.st_size if tree[path].content is not None else 0
        stamp = "\n".join(lines)
        return FolderContents(tree=tree, stamp=stamp + _YOUNG_MARK if now - last < _YOUNG_NS else stamp, problem=fault)

    # Writing

    def write_folders(self, writes: Sequence[FolderWrite]) -> None:
        """Write the folders; a single one is synced file by file, many with one sync at the end."""
        is_alone = len(writes) == 1
        self._syncs = self._is_durable and is_alone
        try:
            with translate_disk_errors(self.root):
                for each in writes:
                    self._write_folder(each)
        finally:
            self._syncs = self._is_durable
            if self._is_durable and not is_alone:
                flush_all_files_to_disk()
        # After a pause no file counts as too young, so the next check needn't read them all again.
        if not is_alone:
            time.sleep(_YOUNG_NS / 1e9)

    def _write_folder(self, write: FolderWrite) -> None:
        top = f"{self._root}/{write.folder}"
        if os.path.exists(top):
            self._update_folder(Path(top).resolve() if self.follow_links else Path(top), write.tree, write.before)
        else:
            self._create_folder(top, write.tree)

    def _create_folder(self, top: str, tree: Tree) -> None:
        """Build the folder under a temporary name and rename it into place."""
        aside = f"{self._root}/{TEMPORARY_PREFIX}{secrets.token_hex(6)}"
        _make_directory(aside, self._max_mode)
        for path, file in tree.items():
            if file.content is not None:
                if "/" in path:
                    os.makedirs(f"{aside}/{path}".rpartition("/")[0], exist_ok=True)
                mode = (0o755 if file.executable else 0o644) & self._max_mode
                write_new_file(f"{aside}/{path}", file.content, mode, durable=self._syncs)
        if self._syncs:
            for directory, _, _ in os.walk(aside):
                self._sync_directory(directory)
        os.rename(aside, top)
        self._sync_directory(self.root)

    def _update_folder(self, top: Path, tree: Tree, before: Tree) -> None:
        """Write file by file, the main file last, so a reader in between still sees the old skill."""
        for directory, _, _ in os.walk(top):
            _remove_temporary_files(Path(directory))
        for path in sorted(tree, key=lambda name: name in trees.MAIN_FILES):
            file = tree[path]
            target = top / path
            if file.content is not None and not _is_same_on_disk(target, file):
                self._write_file(target, file.content, file.executable)
        for path in before:
            if path not in tree:
                (top / path).unlink(missing_ok=True)
                _remove_empty_parents(top, path)
        self._sync_directory(top)

    def store_versions_and_dates(self, facts: Mapping[str, BackendSkillFacts]) -> Mapping[str, str]:
        raise NotImplementedError("this store keeps no facts of the disk")

    def archive_folder(self, folder: str, archived_as: str) -> None:
        """Move a folder into the archive; done already if it is gone."""
        with translate_disk_errors(self.root):
            source, target = self.root / folder, self.archive / archived_as
            if not os.path.lexists(source):
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                # An earlier attempt copied the folder across file systems but did not remove the source.
                _remove_path(source)
                return
            self._move_folder(source, target)
            self._sync_directory(self.root)
            self._sync_directory(target.parent)

    def unarchive_folder(self, archived_as: str, folder: str) -> bool:
        """Move a folder back from the archive; False if the archive doesn't have it."""
        with translate_disk_errors(self.root):
            source, target = self.archive / archived_as, self.root / folder
            if target.exists():
                return True
            if not os.path.lexists(source):
                return False
            self.root.mkdir(parents=True, exist_ok=True)
            self._move_folder(source, target)
            self._sync_directory(self.root)
            return True

    def _move_folder(self, source: Path, target: Path) -> None:
        try:
            source.rename(target)
        # The archive may be on another file system, where rename fails with EXDEV.
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # Copy under a temporary name, so a crash never leaves a partial folder in the archive.
            aside = build_temporary_path_beside(target)
            shutil.copytree(source, aside, symlinks=True)
            self._sync_directory(aside)
            aside.rename(target)
            _remove_path(source)

    def remove_leftovers_of_interrupted_writes(self) -> None:
        with translate_disk_errors(self.root):
            if self.can_write and self.root.is_dir():
                _remove_temporary_files(self.root)

    def _write_file(self, path: Path, content: bytes, executable: bool) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        mode = (0o755 if executable else _get_mode_without_execute_bits(path)) & self._max_mode
        write_atomically(path, content, mode=mode, durable=self._syncs)

    def _sync_directory(self, path: Path | str) -> None:
        if self._syncs:
            sync_to_disk(path)


def _build_unreadable_contents(folder: str, message: str, hint: str) -> FolderContents:
    return FolderContents(tree={}, stamp="", problem=_build_diagnostic(folder, message, hint))


def _build_diagnostic(folder: str, message: str, hint: str) -> Diagnostic:
    return Diagnostic(file=folder, message=message, hint=hint, severity=Severity.ERROR)


def _walk_folder(top: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield (relative path, full path, stat) of the folder and everything in it, in a fixed order."""
    yield "", top, os.stat(top)
    pending = [("", top)]
    while pending:
        base, directory = pending.pop()
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda item: item.name)
        for one in found:
            if one.name in trees.IGNORED_NAMES or one.name.startswith(TEMPORARY_PREFIX) or one.name.endswith(".pyc"):
                continue
            path = f"{base}{one.name}"
            info = one.stat(follow_symlinks=False)
            yield path, one.path, info
            if stat.S_ISDIR(info.st_mode):
                pending.append((path + "/", one.path))


def _decode_name(name: str) -> str:
    """Return a file name as valid text, with escapes for bytes that are not UTF-8."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def _format_stamp_line(path: str, found: os.stat_result) -> str:
    size = found.st_size if stat.S_ISREG(found.st_mode) else -1
    return f"{path}\t{found.st_mtime_ns}\t{found.st_ctime_ns}\t{size}"


def _parse_stamp_line(folder: str, line: str) -> tuple[str, int, int, int]:
    path, mtime, ctime, size = line.rsplit("\t", 3)
    return f"{folder}/{path}" if path else folder, int(mtime), int(ctime), int(size)


def _read_tree_file(full: str, found: os.stat_result, *, keep: bool, expected: TreeFile | None) -> TreeFile:
    executable = bool(found.st_mode & stat.S_IXUSR)
    with open(full, "rb", buffering=0) as file:
        if keep and found.st_size <= MAX_KEPT_BYTES:
            content = file.readall()
            if expected is not None and expected.content == content and expected.executable == executable:
                return expected
            return build_tree_file(content, executable=executable)
        # Files too large for the history are only hashed, in chunks.
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return TreeFile(sha256=digest, size=found.st_size, executable=executable)


def _is_same_on_disk(path: Path, file: TreeFile) -> bool:
    try:
        found = path.lstat()
        return (
            stat.S_ISREG(found.st_mode)
            and found.st_size == file.size
            and bool(found.st_mode & stat.S_IXUSR) == file.executable
            and path.read_bytes() == file.content
        )
    except OSError:
        return False


def _make_directory(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        os.makedirs(path, mode)


def _get_mode_without_execute_bits(path: Path) -> int:
    """Return the permissions of an existing file without execute bits, or the default ones."""
    try:
        return stat.S_IMODE(path.lstat().st_mode) & ~0o111
    except OSError:
        return 0o644


def _remove_temporary_files(top: Path) -> None:
    """Remove temporary files of an interrupted write from this directory."""
    for path in list(top.glob(f"{TEMPORARY_PREFIX}*")):
        _remove_path(path)


def _remove_path(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


def _remove_empty_parents(top: Path, path: str) -> None:
    parent = (top / path).parent
    while parent != top:
        try:
            parent.rmdir()
        except OSError:
            return
        parent = parent.parent


def _is_inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())
