"""An in-memory skill store for tests, trials and temporary libraries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime

from habitus import sql
from habitus.files import Tree, TreeFile, compute_tree_hash
from habitus.skills import trees
from habitus.skills.stores.base import BackendSkillFacts, FolderContents, FolderWrite
from habitus.skills.stores.versioned import SkillStore


class InMemoryFileBackend:
    """Folders in a dictionary."""

    can_write = True
    keeps_facts = False

    def __init__(self) -> None:
        self.folders: dict[str, dict[str, TreeFile]] = {}
        self._archive: dict[str, dict[str, TreeFile]] = {}

    def list_folder_change_stamps(self, known: Mapping[str, str]) -> Mapping[str, str]:
        return {folder: compute_tree_hash(tree) for folder, tree in sorted(self.folders.items())}

    def is_stamp_current(self, folder: str, stamp: str) -> bool:
        return folder in self.folders and compute_tree_hash(self.folders[folder]) == stamp

    def find_directory(self, folder: str) -> None:
        return None

    def read_file(self, folder: str, path: str) -> bytes | None:
        file = self.folders.get(folder, {}).get(path)
        return None if file is None else file.content

    def read_main_files(self, folders: Collection[str]) -> Mapping[str, bytes]:
        return trees.read_main_files({folder: self.folders.get(folder, {}) for folder in folders})

    def read_folder(self, folder: str) -> FolderContents | None:
        tree = self.folders.get(folder)
        return None if tree is None else FolderContents(tree=dict(tree), stamp=compute_tree_hash(tree))

    def read_folders(self, folders: Collection[str], expected: Mapping[str, Tree]) -> Mapping[str, FolderContents]:
        return {folder: found for folder in folders if (found := self.read_folder(folder)) is not None}

    def write_folders(self, writes: Sequence[FolderWrite]) -> None:
        for each in writes:
            # As on disk, files that neither side knows of stay.
            there = self.folders.get(each.folder, {})
            kept = {path: file for path, file in there.items() if path not in each.before}
            self.folders[each.folder] = kept | dict(each.tree)

    def store_versions_and_dates(self, facts: Mapping[str, BackendSkillFacts]) -> Mapping[str, str]:
        raise NotImplementedError("this store keeps no facts of the disk")

    def archive_folder(self, folder: str, archived_as: str) -> None:
        if folder in self.folders:
            self._archive[archived_as] = self.folders.pop(folder)

    def unarchive_folder(self, archived_as: str, folder: str) -> bool:
        if folder not in self.folders and archived_as in self._archive:
            self.folders[folder] = self._archive.pop(archived_as)
        return folder in self.folders

    def remove_leftovers_of_interrupted_writes(self) -> None:
        pass


class InMemorySkillStore(SkillStore):
    """A skill store that keeps files and database in memory."""

    def __init__(self, *, layer: str = "user", clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.backend = InMemoryFileBackend()
        super().__init__(self.backend, sql.create_in_memory_engine(), layer=layer, clock=clock, check_interval=0)
