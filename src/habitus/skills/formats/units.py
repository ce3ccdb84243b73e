"""Finding the parts of a tree that some format claims, so that a checkout with several layouts is read whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from habitus.errors import NotFound, StorageFailed
from habitus.skills.formats.base import Format, NotTaken
from habitus.skills.formats.disk import is_skipped

_FILES = (".db", ".sqlite", ".sqlite3")  # found inside a tree too; other files only when they are what is asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """One directory or file, and the format that reads it."""

    format: Format
    path: Path
    origin: str


def find(path: Path, formats: Sequence[Format], *, origin: str = "") -> Iterator[Unit | NotTaken]:
    """Every part of `path` that a format claims, the outermost one each, in order of path. The first format that
    claims it has it. Links inside the tree are not followed."""
    check_readable(path)
    pending = [(path, origin or path.name)]
    while pending:
        place, shown = pending.pop()
        try:
            inside, below = _listed(place) if place.is_dir() else (frozenset(), [])
            claimed = next((format for format in formats if format.claims(place, inside)), None)
        except OSError as error:
            yield NotTaken(origin=shown, name=place.name, reason=f"Can't look into it: {error.strerror}.")
            continue
        if claimed is not None:
            yield Unit(format=claimed, path=place, origin=shown)
        else:
            pending += [(place / name, f"{shown}/{name}") for name in reversed(below)]


def check_readable(path: Path) -> None:
    """The one thing a reader raises for: a path that is not there, or may not be read."""
    if not os.path.lexists(path):
        raise NotFound(f"There is no {path}.", mend="Check the path.")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise StorageFailed(f"{path} may not be read.", mend="Check its permissions.")


def _listed(place: Path) -> tuple[frozenset[str], list[str]]:
    """The names of everything in a directory, and those that are worth a look inside, in order."""
    names: list[str] = []
    below: list[str] = []
    with os.scandir(place) as entries:
        for entry in entries:
            if is_skipped(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                names.append(f"{entry.name}/")
                below.append(entry.name)
                continue
            names.append(entry.name)
            if entry.name.endswith(_FILES) and entry.is_file(follow_symlinks=False):
                below.append(entry.name)
    return frozenset(names), sorted(below)
