"""Finding the parts of a tree that some format claims: several layouts in one checkout, and skills inside skills."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus.errors import NotFound, StorageFailed
from habitus.skills import trees
from habitus.skills.formats.base import Format, NotTaken
from habitus.skills.formats.disk import is_skipped

_FILES = (".db", ".sqlite", ".sqlite3")  # found inside a tree too; other files only when they are what is asked for

_LINK = "It is a link to a skill elsewhere; links are not followed. Import that folder itself."


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One directory or file, and the format that reads it."""

    format: Format
    path: Path
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Somewhere to look. `is_inside`: a part was found around it."""

    path: Path
    origin: str
    is_inside: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Inside:
    """The names in a directory, those of folders with a '/', and which of them are worth a look."""

    names: frozenset[str] = frozenset()
    folders: Sequence[str] = ()
    files: Sequence[str] = ()
    linked_skills: Sequence[str] = ()


def find(path: Path, formats: Sequence[Format], *, origin: str = "") -> Iterator[Unit | NotTaken]:
    """Every part of `path` that a format claims, in order of path; the first format that claims it has it. Inside a
    part only folders with a SKILL.md are parts again, and come last: a copy in another skill is not the one to take.
    Links are not followed; one to a skill elsewhere is said."""
    check_readable(path)
    top = path.resolve()
    pending, later = [_Place(path=path, origin=origin or path.name)], list[_Place]()
    while pending or later:
        if not pending:
            pending, later = later[::-1], []
        place = pending.pop()
        try:
            inside = _look(place.path, top)
            is_part = not place.is_inside or not inside.names.isdisjoint(trees.MAIN_FILES)
            claims = (format for format in formats if is_part and format.claims(place.path, inside.names))
            claimed = next(claims, None)
        except OSError as error:
            yield NotTaken(origin=place.origin, name=place.path.name, reason=f"Can't look into it: {error.strerror}.")
            continue
        if claimed is not None:
            yield Unit(format=claimed, path=place.path, origin=place.origin)
        for name in inside.linked_skills:
            yield NotTaken(origin=f"{place.origin}/{name}", name=name, reason=_LINK)
        is_inside = place.is_inside or claimed is not None
        names = inside.folders if is_inside else sorted([*inside.folders, *inside.files])
        below = [_Place(path=place.path / name, origin=f"{place.origin}/{name}", is_inside=is_inside) for name in names]
        if is_inside and not place.is_inside:
            later += below
        else:
            pending += below[::-1]


def check_readable(path: Path) -> None:
    """The one thing a reader raises for: a path that is not there, or may not be read."""
    if not os.path.lexists(path):
        raise NotFound(f"There is no {path}.", mend="Check the path.")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise StorageFailed(f"{path} may not be read.", mend="Check its permissions.")


def _look(place: Path, top: Path) -> _Inside:
    if not place.is_dir():
        return _Inside()
    names: list[str] = []
    folders: list[str] = []
    files: list[str] = []
    links: list[str] = []
    with os.scandir(place) as entries:
        for entry in entries:
            if is_skipped(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                names.append(f"{entry.name}/")
                folders.append(entry.name)
                continue
            names.append(entry.name)
            if entry.is_symlink():
                links.append(entry.name)
            elif entry.name.endswith(_FILES) and entry.is_file(follow_symlinks=False):
                files.append(entry.name)
    linked = [name for name in sorted(links) if _is_skill_elsewhere(place / name, top)]
    return _Inside(names=frozenset(names), folders=sorted(folders), files=files, linked_skills=linked)


def _is_skill_elsewhere(link: Path, top: Path) -> bool:
    """Whether a link leads to a skill that is not met on the way anyhow."""
    return any((link / name).is_file() for name in trees.MAIN_FILES) and not link.resolve().is_relative_to(top)
