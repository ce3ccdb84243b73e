"""Reading untrusted folders within limits, and writing exports atomically."""

from __future__ import annotations

import os
import shutil
import stat
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from habitus.errors import Refused
from habitus.files import (
    TEMPORARY_PREFIX,
    Tree,
    TreeFile,
    build_temporary_path_beside,
    build_tree_file,
    require_path_inside_skill,
    translate_disk_errors,
)
from habitus.operating_system import open_regular_file_for_reading
from habitus.skills import auto_executed
from habitus.skills.formats.base import (
    FormatExportResult,
    OutgoingSkill,
    PlaybookLesson,
    SkillFormat,
    SkippedEntry,
    UnreadableEntryError,
)
from habitus.skills.formats.foreign_values import DiagnosticCollector
from habitus.text import replace_surrogates

MAX_FILES = 5_000
MAX_BYTES = 64 * 1024 * 1024
_READ_SIZE = 64 * 1024

SKIPPED_NAMES = {"node_modules", "__pycache__", ".venv", ".DS_Store"}


def is_name_ignored_by_import(name: str) -> bool:
    """Whether importing ignores a file or folder of this name."""
    return (
        name in SKIPPED_NAMES
        or auto_executed.is_vcs_file_or_folder_name(name)
        or name.startswith(TEMPORARY_PREFIX)
        or name.endswith(".pyc")
    )


def read_folder(top: Path, notes: DiagnosticCollector) -> dict[str, TreeFile]:
    """Return every regular file below a folder; links and devices are skipped with a diagnostic."""
    files: dict[str, TreeFile] = {}
    total = 0
    for path, full, info in _walk_folder(top, notes):
        total += info.st_size
        if len(files) >= MAX_FILES:
            raise UnreadableEntryError(f"There are more than {MAX_FILES:,} files in it.")
        if total > MAX_BYTES:
            raise UnreadableEntryError(f"It is larger than {MAX_BYTES // 2**20} MB.")
        files[path] = build_tree_file(read_file(full), executable=bool(info.st_mode & stat.S_IXUSR))
    return files


def read_file(path: Path | str, *, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file that is not a link; raise `UnreadableEntryError` above the limit."""
    # A link could leave the folder.
    handle = open_regular_file_for_reading(path, follow_links=False)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise UnreadableEntryError(f"{Path(path).name} is not a file.")
        # Read in pieces and count: the size of a file can change after fstat.
        chunks, size = [], 0
        while size <= limit and (chunk := os.read(handle, _READ_SIZE)):
            chunks.append(chunk)
            size += len(chunk)
    finally:
        os.close(handle)
    if size > limit:
        raise UnreadableEntryError(f"{Path(path).name} is larger than {limit // 2**20} MB.")
    return b"".join(chunks)


def _walk_folder(top: Path, notes: DiagnosticCollector) -> Iterator[tuple[str, str, os.stat_result]]:
    pending = [("", str(top))]
    while pending:
        base, directory = pending.pop()
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda item: item.name)
        for entry in found:
            if auto_executed.is_vcs_file_or_folder_name(entry.name):
                notes.vcs_files.append(replace_surrogates(f"{base}{_find_first_file_below(directory, entry.name)}"))
            if is_name_ignored_by_import(entry.name):
                continue
            path = f"{base}{entry.name}"
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                pending.append((path + "/", entry.path))
            elif not _is_storable_path(path):
                notes.add(f"A file has a name that can't be stored: {entry.name!a}; it was left out.", "Rename it.")
            elif stat.S_ISREG(info.st_mode):
                yield path, entry.path, info
            else:
                kind = "a link" if stat.S_ISLNK(info.st_mode) else "no regular file"
                notes.add(f"{path} is {kind}; it was left out.", "Put the file itself in its place.")


def _find_first_file_below(directory: str, name: str) -> str:
    """Return the path of a file in a folder, to name the folder by; its own name if it has none."""
    for folder, folders, files in os.walk(f"{directory}/{name}"):
        folders.sort()
        if files:
            return os.path.relpath(f"{folder}/{min(files)}", directory)
    return name


def _is_storable_path(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return "\\" not in path


# Writing


@contextmanager
def open_atomic_export_path(to: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary path that becomes `to` when the block succeeds and is deleted when it fails.

    `overwrite` keeps the replaced file or directory as `NAME.old`.
    """
    is_there = os.path.lexists(to) and not (to.is_dir() and not any(to.iterdir()))
    if is_there and not overwrite:
        what = "is not empty" if to.is_dir() else "is there already"
        raise Refused(f"{to} {what}.", hint="Choose another place, or allow overwriting.")
    aside = build_temporary_path_beside(to)
    with translate_disk_errors(to):
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
            yield aside
            if is_there:
                to.rename(_find_free_backup_path(to))
            elif to.is_dir():
                to.rmdir()
            aside.rename(to)
        finally:
            _remove_path(aside)


def _find_free_backup_path(path: Path) -> Path:
    number = 1
    while True:
        old = path.with_name(f"{path.name}.old" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(old):
            return old
        number += 1


def _remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class SkillFolderFormat(SkillFormat):
    """A format with one directory per skill."""

    @abstractmethod
    def render_skill_folder(self, item: OutgoingSkill) -> tuple[str, Tree]:
        """Return the name of a skill's directory and its files."""

    def write_skills(
        self,
        skills: Sequence[OutgoingSkill],
        to: Path,
        *,
        lessons: Sequence[PlaybookLesson] = (),
        overwrite: bool = False,
    ) -> FormatExportResult:
        """Write one directory per skill below `to`; a skill that can't be written is skipped with the reason."""
        paths: list[Path] = []
        left_out: list[SkippedEntry] = []
        with open_atomic_export_path(to, overwrite=overwrite) as top:
            top.mkdir()
            for item in skills:
                name, tree = self.render_skill_folder(item)
                problem = explain_missing_content(tree)
                if not problem and (top / name).exists():
                    problem = f"There is another skill for the directory '{name}'."
                if problem:
                    left_out.append(SkippedEntry(origin=item.skill.layer, name=item.skill.name, reason=problem))
                else:
                    write_tree(top / name, tree)
                    paths.append(to / name)
        return FormatExportResult(paths=tuple(paths), left_out=tuple(left_out))


def write_tree(top: Path, tree: Tree) -> None:
    """Write the files of a tree below a directory; every file must have its content."""
    for path, file in tree.items():
        target = top / require_path_inside_skill(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        assert file.content is not None, path
        target.write_bytes(file.content)
        if file.executable:
            target.chmod(0o755)


def explain_missing_content(tree: Tree) -> str:
    """Explain why a tree can't be written; empty if it can."""
    absent = next((path for path, file in tree.items() if file.content is None), None)
    return f"{absent} is too large to be stored, and is not available." if absent else ""
