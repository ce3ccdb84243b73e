"""The storage interface for a layer's current files, and the records that stores exchange."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from habitus.errors import Refused, Stale
from habitus.files import Tree
from habitus.skills.layers.name_map import SortedNameMap
from habitus.skills.model import Diagnostic, LifecycleAction, SkillSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenSkill:
    """A directory that can't be loaded as a skill, with the reasons. Its name counts as taken."""

    name: str
    folder: str
    layer: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class RecentChangedNames:
    """The last few changes of a layer: the revision before each and the names it changed, oldest first.

    A reader that knows an earlier revision reads only those names again.
    """

    steps: tuple[tuple[Hashable, frozenset[str]], ...] = ()

    def append_change(self, before: Hashable, names: Collection[str]) -> RecentChangedNames:
        """Return the log with one more step; the oldest step drops out."""
        return RecentChangedNames((*self.steps[1 - _MAX_STEPS :], (before, frozenset(names))))

    def list_names_changed_since(self, revision: Hashable) -> frozenset[str] | None:
        """Return the names that changed since a revision, or None if that revision is too old or unknown."""
        found: frozenset[str] = frozenset()
        for before, names in reversed(self.steps):
            found |= names
            if before == revision:
                return found
        return None


# Enough for readers that refresh every few seconds; others reload everything.
_MAX_STEPS = 8
# Above this many changed names, composing everything again is faster than name by name.
_MAX_CHANGED_NAMES = 500
NO_CHANGES = RecentChangedNames()


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerContents:
    """An immutable view of one layer, readable without further queries."""

    revision: int
    summaries: SortedNameMap[SkillSummary]
    broken: SortedNameMap[tuple[BrokenSkill, ...]]
    hashes: SortedNameMap[str]  # over all files, broken skills included
    diagnostics: SortedNameMap[tuple[Diagnostic, ...]]  # only for skills that have any
    changes: RecentChangedNames = NO_CHANGES  # how it differs from earlier revisions


NO_CONTENTS = LayerContents(
    revision=0, summaries=SortedNameMap(), broken=SortedNameMap(), hashes=SortedNameMap(), diagnostics=SortedNameMap()
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoreAction:
    """One step of restoring a skill to its state at a timestamp."""

    skill: int  # the skill's id
    name: str
    action: Literal["rewrite", "restore", "archive", "enable", "disable"]
    version: int  # the version to return to; 0 if the skill did not exist or its files stay
    layer: str = ""  # set by the library


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedSkillRecord:
    """A skill that one change touched: the versions it made, if any, and its lifecycle actions."""

    skill: int  # the skill's id
    name: str
    first_version: int
    last_version: int
    lifecycle_actions: tuple[LifecycleAction, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillWriteResult:
    """The outcome of a write: the skill's version, and whether this write changed anything."""

    name: str
    layer: str
    version: int
    is_changed: bool


# Counts reported by another system are stored under this version, apart from our own.
IMPORTED_COUNTS_VERSION = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BackendSkillFacts:
    """What a backend records about a skill besides its files; a directory records nothing."""

    version: int = 0
    enabled: bool | None = None
    created_on: datetime | None = None
    modified_on: datetime | None = None


NO_FACTS = BackendSkillFacts()


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderContents:
    """The content of one folder; `problem` is set if it can't be a skill at all."""

    tree: Tree
    stamp: str
    problem: Diagnostic | None = None
    facts: BackendSkillFacts = NO_FACTS


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderWrite:
    """A planned write: the files a folder will hold, and those it held when the write was decided."""

    folder: str
    tree: Tree
    before: Tree


class FileBackend(Protocol):
    """Storage for the current files of one layer; nothing else touches them."""

    can_write: bool
    keeps_facts: bool  # whether `store_versions_and_dates` is supported

    def list_folder_change_stamps(self, known: Mapping[str, str]) -> Mapping[str, str]:
        """Return a stamp for every folder; a stamp equal to the known one means that nothing changed."""
        ...

    def is_stamp_current(self, folder: str, stamp: str) -> bool:
        """Whether the folder is certainly unchanged since it got this stamp."""
        ...

    def read_folder(self, folder: str) -> FolderContents | None: ...
    def read_folders(self, folders: Collection[str], expected: Mapping[str, Tree]) -> Mapping[str, FolderContents]:
        """Return the content of the folders that exist; files equal to the expected ones are the expected objects."""
        ...

    def find_directory(self, folder: str) -> Path | None: ...
    def read_file(self, folder: str, path: str) -> bytes | None: ...
    def read_main_files(self, folders: Collection[str]) -> Mapping[str, bytes]:
        """Return the content of each folder's SKILL.md; folders without one are left out."""
        ...

    def write_folders(self, writes: Sequence[FolderWrite]) -> None:
        """Make each folder hold exactly its `tree`, leaving files in neither tree alone. Safe to repeat after a
        crash.
        """
        ...

    def store_versions_and_dates(self, facts: Mapping[str, BackendSkillFacts]) -> Mapping[str, str]:
        """Store facts about each folder; return the new stamps."""
        ...

    def archive_folder(self, folder: str, archived_as: str) -> None:
        """Move a folder into the archive. Safe to repeat after a crash."""
        ...

    def unarchive_folder(self, archived_as: str, folder: str) -> bool:
        """Move a folder back from the archive; False if it isn't there."""
        ...

    def remove_leftovers_of_interrupted_writes(self) -> None:
        """Remove the leftovers of an interrupted write."""
        ...


def make_read_only_error(layer: str, *, hint: str) -> Refused:
    """Return the error for writing to a read-only layer."""
    return Refused(f"The layer '{layer}' is read-only.", hint=hint)


def refuse_stale_version(name: str, current: int, expected: int | None) -> None:
    """Raise `Stale` if the skill is not at the expected version; 0 means that it must not exist."""
    if expected is None or expected == current:
        return
    if expected == 0:
        raise Stale(f"There is a skill '{name}' already (version {current}).", hint="Edit it, or choose another name.")
    raise Stale(
        f"'{name}' is at version {current} now, not {expected}.", hint="Read it again and repeat the change on that."
    )


def list_changed_names(
    before: tuple[Hashable, ...], now: tuple[Hashable, ...], contents: Sequence[LayerContents]
) -> frozenset[str] | None:
    """Return the names that differ between two revisions of the layers; None if unknown or too many."""
    # The first element is the trust revision: a change there can affect any skill.
    if before[:1] != now[:1] or len(before) != len(now):
        return None
    found: frozenset[str] = frozenset()
    for old, new, content in zip(before[1:], now[1:], contents, strict=True):
        names = frozenset[str]() if old == new else content.changes.list_names_changed_since(old)
        if names is None or len(names) > _MAX_CHANGED_NAMES:
            return None
        found |= names
    return found
