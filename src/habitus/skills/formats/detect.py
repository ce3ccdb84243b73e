"""Reading skills from any source: detects the format of each part, several in one tree, and skills inside skills.

What a format loses is found by reading an export back, so no list can go out of date.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from habitus.errors import Invalid, NotFound, StorageFailed
from habitus.files import given_path, tree_hash
from habitus.skills import trees
from habitus.skills.editable_fields import NAMES
from habitus.skills.formats import archives, fitting
from habitus.skills.formats.base import (
    CantTake,
    Entry,
    Format,
    Incoming,
    NotTaken,
    Outgoing,
    describe_problem,
    without_clashes,
)
from habitus.skills.formats.disk import is_skipped
from habitus.skills.formats.other_systems import agent_skills_table
from habitus.skills.formats.other_systems.agent_skills_table import Table
from habitus.skills.formats.other_systems.anton import Anton
from habitus.skills.formats.other_systems.ghost import Ghost
from habitus.skills.formats.other_systems.istota import Istota
from habitus.skills.formats.skill_folder import Known, SkillFolder
from habitus.skills.model import Counters, Manifest
from habitus.text import encodable

# Order matters: the plain format accepts what no other one claims.
FORMATS: tuple[Format, ...] = (Anton(), Ghost(), Istota(), Table(), SkillFolder())


def formats_knowing(known: Known) -> tuple[Format, ...]:
    """Return all formats; the plain one skips parsing skills whose diagnostics are already known."""
    return (*FORMATS[:-1], SkillFolder(known))


def format_named(name: str) -> Format:
    """Return the format of this name; raise `Invalid` otherwise."""
    for format in FORMATS:
        if format.name == name:
            return format
    raise Invalid(f"There is no format '{name}'.", hint=f"Use one of {', '.join(f.name for f in FORMATS)}.")


def read(
    source: Path | str,
    formats: Sequence[Format] = FORMATS,
    *,
    origin: str = "",
    place: str = "",
    keep_both: bool = False,
) -> Iterator[Entry]:
    """Yield everything at a path or database URL, in any format; of two skills of one name the first, or both.

    `location` is the real location, if it differs from the path. Raise `NotFound` or `StorageFailed` if the source
    can't be reached, but nothing for bad content.
    """
    if isinstance(source, str) and "://" in source:
        return without_clashes(_read_database(source), keep_both=keep_both)
    path = _with_name(Path(source))
    check_readable(path)
    origin, place = origin or path.name, _folder_of(place or str(path.resolve()))
    placed = (_with_place(entry, origin, place) for entry in _read_path(path, formats, origin))
    return without_clashes(placed, keep_both=keep_both)


def _with_place(entry: Entry, origin: str, place: str) -> Entry:
    """Set the exact location of an entry, including its folder within the source."""
    if not isinstance(entry, Incoming):
        return entry
    inside = entry.origin.removeprefix(encodable(origin)).strip("/")
    return dataclasses.replace(entry, place="/".join(filter(None, (place, inside))))


def _folder_of(place: str) -> str:
    """Return the folder of a main file, or the location unchanged."""
    folder, _, name = place.rpartition("/")
    return folder if name in trees.MAIN_FILES else place


def detect(path: Path) -> tuple[Format, ...]:
    """Return the formats found at a path, in order of precedence; an archive counts as its contents."""
    path = _with_name(path)
    check_readable(path)
    try:
        with _open_archive(path) as top:
            found = {unit.format.name for unit in find(top, FORMATS) if isinstance(unit, Unit)}
    except (CantTake, OSError):
        return ()
    return tuple(format for format in FORMATS if format.name in found)


def _with_name(path: Path) -> Path:
    path = given_path(path)
    return path.resolve() if path.name in ("", "..") else path


def _read_path(path: Path, formats: Sequence[Format], origin: str) -> Iterator[Entry]:
    is_empty = True
    try:
        with _open_archive(path) as top:
            for unit in find(top, formats, origin=origin):
                is_empty = False
                if isinstance(unit, NotTaken):
                    yield unit
                else:
                    entries = unit.format.read_safely(unit.path, unit.origin)
                    yield from map(_without_own_control, entries) if unit.path == path else entries
    except (CantTake, OSError) as problem:
        yield NotTaken(origin=origin, name=archives.stem(path), reason=describe_problem(problem))
    else:
        if is_empty:
            yield NotTaken(origin=origin, name=archives.stem(path), reason=_nothing(path))


def _without_own_control(entry: Entry) -> Entry:
    """Drop the version control folder of a skill that is itself the root of a checkout, where it is expected."""
    if not isinstance(entry, Incoming) or not entry.control:
        return entry
    inner = (path for path in entry.control if not trees.is_control(path.partition("/")[0]))
    return dataclasses.replace(entry, control=tuple(inner))


@contextmanager
def _open_archive(path: Path) -> Iterator[Path]:
    """Yield the path itself, or the directory of the unpacked archive."""
    if not archives.is_archive(path):
        yield path
        return
    with archives.unpack(path, name=fitting.legal_name(archives.stem(path))) as top:
        # Archives often hold a single directory of the same name; step into it.
        inside = [one for one in top.iterdir() if not is_skipped(one.name)]
        yield inside[0] if len(inside) == 1 and inside[0].is_dir() else top


def _nothing(path: Path) -> str:
    if path.is_dir() or archives.is_archive(path):
        return "There is no skill in it: no SKILL.md or skill.md, and no file of another layout that is read here."
    return f"A {path.suffix or 'nameless'} file is nothing that skills are read from. Give .md, .zip, .tar.gz or .db."


def _read_database(url: str) -> Iterator[Entry]:
    try:
        for entry in agent_skills_table.read_database(url):
            yield dataclasses.replace(entry, place=entry.origin) if isinstance(entry, Incoming) else entry
    except CantTake as problem:
        yield NotTaken(origin=url.partition("://")[0], name="", reason=str(problem))


_SAID = {
    **{name: name.replace("_", " ") for name in NAMES},
    "license": "license",
    "compatibility": "compatibility",
    "allowed_tools": "allowed tools",
    "body": "text",
}


def lost(format: Format, skills: Sequence[Outgoing], to: Path) -> tuple[NotTaken, ...]:
    """Return, for each skill that an export at `to` would not restore completely, the missing parts."""
    back = _read_back(format, to)
    found = []
    for item in skills:
        missing = list(_missing(item, back[item.skill.name])) if item.skill.name in back else []
        if missing:
            reason = f"'{format.name}' has no place for: {', '.join(missing)}."
            found.append(NotTaken(origin=item.skill.layer, name=item.skill.name, reason=reason))
    return tuple(found)


def hashes(format: Format, skills: Sequence[Outgoing]) -> dict[str, str]:
    """Return the hash over the files of each skill as it would come back from an export."""
    with tempfile.TemporaryDirectory() as folder:
        format.write(skills, Path(folder) / "out")
        return {name: tree_hash(entry.tree) for name, entry in _read_back(format, Path(folder)).items()}


def _read_back(format: Format, to: Path) -> dict[str, Incoming]:
    return {entry.name: entry for entry in read(to, (format,)) if isinstance(entry, Incoming)}


def _missing(item: Outgoing, back: Incoming) -> Iterator[str]:
    for field, words in _SAID.items():
        if getattr(item.skill, field) and not getattr(back.skill, field):
            yield words
    for part in dataclasses.fields(Manifest):
        if getattr(item.skill.manifest, part.name) != getattr(back.skill.manifest, part.name) == part.default:
            yield part.name
    yield from (key for key in item.skill.extra if key not in back.skill.extra)
    if not item.skill.enabled and back.enabled:
        yield "that it is switched off"
    if any(_numbers(of_stage) and stage not in back.counters for stage, of_stage in item.counters.items()):
        yield "counters"
    aside = {trees.TOML_FILE, *trees.MAIN_FILES}
    yield from (path for path in sorted(item.tree.keys() - back.tree.keys() - aside))


def _numbers(counters: Counters) -> bool:
    return any((counters.recommended, counters.used, counters.succeeded, counters.failed))


# Database files are found anywhere in a tree; other single files only if given directly.
_FILES = (".db", ".sqlite", ".sqlite3")
_LINK = "It is a link to a skill elsewhere; links are not followed. Import that folder itself."


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """A directory or file, and the format that reads it."""

    format: Format
    path: Path
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A path still to be searched; `is_inside` is set below a match."""

    path: Path
    origin: str
    is_inside: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Inside:
    """The names in a directory (folders with a '/'), and those worth searching."""

    names: frozenset[str] = frozenset()
    folders: Sequence[str] = ()
    files: Sequence[str] = ()
    linked_skills: Sequence[str] = ()


def find(path: Path, formats: Sequence[Format], *, origin: str = "") -> Iterator[Unit | NotTaken]:
    """Yield every part of `path` that a format recognises, in order of path; the first matching format wins.

    Inside a match, only folders with a SKILL.md match again, and they come last: a copy inside another skill is
    not the original. Links are not followed; one to a skill elsewhere is reported.
    """
    check_readable(path)
    top = path.resolve()
    pending, later = [_Place(path=path, origin=origin or path.name)], list[_Place]()
    while pending or later:
        # Nested skills wait in `later` until everything at the top has been seen.
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
    """Raise `NotFound` or `StorageFailed` if the path is missing or not readable."""
    if not os.path.lexists(path):
        raise NotFound(f"There is no {path}.", hint="Check the path.")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise StorageFailed(f"{path} may not be read.", hint="Check its permissions.")


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
    """Whether a link leads to a skill outside the searched tree."""
    return any((link / name).is_file() for name in trees.MAIN_FILES) and not link.resolve().is_relative_to(top)
