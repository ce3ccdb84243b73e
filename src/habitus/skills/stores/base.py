"""The contract of a shelf, which holds the current files of a layer, and the words that a store speaks in."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from habitus.errors import Refused, Stale
from habitus.files import Tree
from habitus.skills.layers.by_name import ByName
from habitus.skills.model import (
    Diagnostic,
    Summary,
    Switched,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """A directory that can't be loaded as a skill, with the reasons. Its name counts as taken."""

    name: str
    folder: str
    layer: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """The last few steps by which something large became what it is, so that whoever knows it before need not read
    all of it again: (revision before, names that differ) each, oldest first."""

    steps: tuple[tuple[Hashable, frozenset[str]], ...] = ()

    def then(self, before: Hashable, names: Collection[str]) -> Changes:
        return Changes((*self.steps[1 - _STEPS :], (before, frozenset(names))))

    def since(self, revision: Hashable) -> frozenset[str] | None:
        """The names that differ from a revision; None where that is too long ago, or never was."""
        found: frozenset[str] = frozenset()
        for before, names in reversed(self.steps):
            found |= names
            if before == revision:
                return found
        return None


_STEPS = 8
_FEW = 500  # names that are composed anew one by one
NO_CHANGES = Changes()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """A layer at one moment, to be read without asking anybody again."""

    revision: int
    summaries: ByName[Summary]
    broken: ByName[tuple[Broken, ...]]
    hashes: ByName[str]  # over all files, of what is there, broken or not
    diagnostics: ByName[tuple[Diagnostic, ...]]  # of what has any
    changes: Changes = NO_CHANGES  # how it came from the revisions before it


NO_CONTENTS = Contents(revision=0, summaries=ByName(), broken=ByName(), hashes=ByName(), diagnostics=ByName())


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A step of returning to an earlier moment, for one skill."""

    skill: int  # its id
    name: str
    action: Literal["rewrite", "restore", "archive", "enable", "disable"]
    version: int  # the one it returns to; 0 when it did not exist, or its files stay
    layer: str = ""  # where it is, as the library says


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """One change of a skill: the versions it made, if any, and how it switched or moved it."""

    skill: int  # its id
    name: str
    first: int
    last: int
    switches: tuple[Switched, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A skill after a change: its version, and whether it was this change that made it."""

    name: str
    layer: str
    version: int
    is_changed: bool


TOLD = 0  # the version under which counters stand that another system told of


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """A shelf's own facts of a skill beyond its files; a directory knows nothing of the kind."""

    version: int = 0
    enabled: bool | None = None
    created_on: datetime | None = None
    modified_on: datetime | None = None


NO_FACTS = Facts()


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The content of one folder. `problem` is set when it can't be taken for a skill at all."""

    tree: Tree
    stamp: str
    problem: Diagnostic | None = None
    facts: Facts = NO_FACTS


@dataclass(frozen=True, kw_only=True, slots=True)
class Write:
    """A write: the files a folder shall hold, and those it held when that was decided."""

    folder: str
    tree: Tree
    before: Tree


class Shelf(Protocol):
    """The current files of one layer: the only place that touches them."""

    can_write: bool
    keeps_facts: bool  # whether it has a place for what `record` tells it

    def look(self, known: Mapping[str, str]) -> Mapping[str, str]:
        """Folder → stamp, for every folder there. A stamp that equals the known one means: nothing changed."""
        ...

    def is_fresh(self, folder: str, stamp: str) -> bool:
        """Whether the folder is certainly as it was when it got this stamp."""
        ...

    def read(self, folder: str) -> Found | None: ...
    def read_many(self, folders: Collection[str], expected: Mapping[str, Tree]) -> Mapping[str, Found]:
        """The content of the folders that are there. Files just as expected are returned as the expected objects."""
        ...

    def directory(self, folder: str) -> Path | None: ...
    def read_file(self, folder: str, path: str) -> bytes | None: ...
    def main_files(self, folders: Collection[str]) -> Mapping[str, bytes]:
        """Folder → its SKILL.md, of those that have one."""
        ...

    def write_many(self, writes: Sequence[Write]) -> None:
        """Make each folder hold exactly its `tree`; files in neither tree stay. May be repeated after a crash."""
        ...

    def record(self, facts: Mapping[str, Facts]) -> Mapping[str, str]:
        """Keep what was recorded about each folder; returns the stamps they have then."""
        ...

    def put_away(self, folder: str, archived_as: str) -> None:
        """Move the folder into the archive. May be repeated after a crash."""
        ...

    def bring_back(self, archived_as: str, folder: str) -> bool:
        """Move it back; False when the archive has no such directory."""
        ...

    def tidy(self) -> None:
        """Remove what an interrupted write left behind."""
        ...


def read_only(layer: str, *, mend: str) -> Refused:
    """The refusal where a layer can't be written."""
    return Refused(f"The layer '{layer}' is read-only.", mend=mend)


def refuse_stale(name: str, current: int, expected: int | None) -> None:
    """Refuse a change that was made with another version in mind; 0 stands for 'not there'."""
    if expected is None or expected == current:
        return
    if expected == 0:
        raise Stale(f"There is a skill '{name}' already (version {current}).", mend="Edit it, or choose another name.")
    raise Stale(
        f"'{name}' is at version {current} now, not {expected}.", mend="Read it again and repeat the change on that."
    )


def changed_names(
    before: tuple[Hashable, ...], now: tuple[Hashable, ...], contents: Sequence[Contents]
) -> frozenset[str] | None:
    """The names that differ between two revisions of the layers; None where that is not known, or nearly all may."""
    if before[:1] != now[:1] or len(before) != len(now):
        return None
    found: frozenset[str] = frozenset()
    for old, new, content in zip(before[1:], now[1:], contents, strict=True):
        names = frozenset[str]() if old == new else content.changes.since(old)
        if names is None or len(names) > _FEW:
            return None
        found |= names
    return found
