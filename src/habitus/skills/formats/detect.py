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
from habitus.files import compute_tree_hash, parse_user_path
from habitus.skills import auto_executed, trees
from habitus.skills.editable_fields import FIELD_NAMES
from habitus.skills.formats import archives, conversion
from habitus.skills.formats.base import (
    ImportEntry,
    IncomingSkill,
    OutgoingSkill,
    SkillFormat,
    SkippedEntry,
    UnreadableEntryError,
    describe_read_error,
    resolve_name_conflicts,
)
from habitus.skills.formats.disk import is_name_ignored_by_import
from habitus.skills.formats.other_systems import agent_skills_table
from habitus.skills.formats.other_systems.agent_skills_table import AgentSkillsTableFormat
from habitus.skills.formats.other_systems.anton import AntonFormat
from habitus.skills.formats.other_systems.ghost import GhostFormat
from habitus.skills.formats.other_systems.istota import IstotaFormat
from habitus.skills.formats.skill_folder import AgentSkillsFormat, DiagnosticsLookup
from habitus.skills.model import Manifest
from habitus.text import replace_surrogates
from habitus.use_counts import UsageCounts

# Order matters: the plain format accepts what no other one claims.
FORMATS: tuple[SkillFormat, ...] = (
    AntonFormat(),
    GhostFormat(),
    IstotaFormat(),
    AgentSkillsTableFormat(),
    AgentSkillsFormat(),
)


def list_formats_reusing_known_diagnostics(known: DiagnosticsLookup) -> tuple[SkillFormat, ...]:
    """Return all formats; the plain one skips parsing skills whose diagnostics are already known."""
    return (*FORMATS[:-1], AgentSkillsFormat(known))


def get_format_by_name(name: str) -> SkillFormat:
    """Return the format of this name; raise `Invalid` otherwise."""
    for format in FORMATS:
        if format.name == name:
            return format
    raise Invalid(f"There is no format '{name}'.", hint=f"Use one of {', '.join(f.name for f in FORMATS)}.")


def read_entries(
    source: Path | str,
    formats: Sequence[SkillFormat] = FORMATS,
    *,
    origin: str = "",
    location: str = "",
    keep_both: bool = False,
) -> Iterator[ImportEntry]:
    """Yield everything at a path or database URL, in any format; of two skills of one name the first, or both.

    `location` is the real location, if it differs from the path. Raise `NotFound` or `StorageFailed` if the source
    can't be reached, but nothing for bad content.
    """
    if isinstance(source, str) and "://" in source:
        return resolve_name_conflicts(_read_database(source), keep_both=keep_both)
    path = _resolve_nameless_path(Path(source))
    check_readable(path)
    origin, location = origin or path.name, _strip_main_file_name(location or str(path.resolve()))
    placed = (_set_location(entry, origin, location) for entry in _read_path_entries(path, formats, origin))
    return resolve_name_conflicts(placed, keep_both=keep_both)


def _set_location(entry: ImportEntry, origin: str, location: str) -> ImportEntry:
    """Set the exact location of an entry, including its folder within the source."""
    if not isinstance(entry, IncomingSkill):
        return entry
    inside = entry.origin.removeprefix(replace_surrogates(origin)).strip("/")
    return dataclasses.replace(entry, location="/".join(filter(None, (location, inside))))


def _strip_main_file_name(location: str) -> str:
    """Return the folder of a main file, or the location unchanged."""
    folder, _, name = location.rpartition("/")
    return folder if name in trees.MAIN_FILES else location


def _resolve_nameless_path(path: Path) -> Path:
    path = parse_user_path(path)
    return path.resolve() if path.name in ("", "..") else path


def _read_path_entries(path: Path, formats: Sequence[SkillFormat], origin: str) -> Iterator[ImportEntry]:
    is_empty = True
    try:
        with _unpack_if_archive(path) as top:
            for unit in find_format_matches(top, formats, origin=origin):
                is_empty = False
                if isinstance(unit, SkippedEntry):
                    yield unit
                else:
                    entries = unit.format.read_entries_safely(unit.path, unit.origin)
                    yield from map(_drop_root_vcs_folder, entries) if unit.path == path else entries
    except (UnreadableEntryError, OSError) as problem:
        yield SkippedEntry(origin=origin, name=archives.strip_archive_suffix(path), reason=describe_read_error(problem))
    else:
        if is_empty:
            yield SkippedEntry(
                origin=origin, name=archives.strip_archive_suffix(path), reason=_explain_nothing_found(path)
            )


def _drop_root_vcs_folder(entry: ImportEntry) -> ImportEntry:
    """Drop the version control folder of a skill that is itself the root of a checkout, where it is expected."""
    if not isinstance(entry, IncomingSkill) or not entry.vcs_files:
        return entry
    inner = (path for path in entry.vcs_files if not auto_executed.is_vcs_file_or_folder_name(path.partition("/")[0]))
    return dataclasses.replace(entry, vcs_files=tuple(inner))


@contextmanager
def _unpack_if_archive(path: Path) -> Iterator[Path]:
    """Yield the path itself, or the directory of the unpacked archive."""
    if not archives.is_archive(path):
        yield path
        return
    with archives.unpack_archive_to_temporary_folder(
        path, name=conversion.make_legal_name(archives.strip_archive_suffix(path))
    ) as top:
        # Archives often hold a single directory of the same name; step into it.
        inside = [one for one in top.iterdir() if not is_name_ignored_by_import(one.name)]
        yield inside[0] if len(inside) == 1 and inside[0].is_dir() else top


def _explain_nothing_found(path: Path) -> str:
    if path.is_dir() or archives.is_archive(path):
        return "There is no skill in it: no SKILL.md or skill.md, and no file of another layout that is read here."
    return f"A {path.suffix or 'nameless'} file is nothing that skills are read from. Give .md, .zip, .tar.gz or .db."


def _read_database(url: str) -> Iterator[ImportEntry]:
    try:
        for entry in agent_skills_table.read_database(url):
            yield dataclasses.replace(entry, location=entry.origin) if isinstance(entry, IncomingSkill) else entry
    except UnreadableEntryError as problem:
        yield SkippedEntry(origin=url.partition("://")[0], name="", reason=str(problem))


_FIELD_LABELS = {
    **{name: name.replace("_", " ") for name in FIELD_NAMES},
    "license": "license",
    "compatibility": "compatibility",
    "allowed_tools": "allowed tools",
    "body": "text",
}


def list_skills_losing_fields(
    format: SkillFormat, skills: Sequence[OutgoingSkill], to: Path
) -> tuple[SkippedEntry, ...]:
    """Return, for each skill that an export at `to` would not restore completely, the missing parts."""
    back = _read_exported_skills(format, to)
    found = []
    for item in skills:
        missing = list(_list_missing_parts(item, back[item.skill.name])) if item.skill.name in back else []
        if missing:
            reason = f"'{format.name}' has no place for: {', '.join(missing)}."
            found.append(SkippedEntry(origin=item.skill.layer, name=item.skill.name, reason=reason))
    return tuple(found)


def hash_reimported_exports(format: SkillFormat, skills: Sequence[OutgoingSkill]) -> dict[str, str]:
    """Return the hash over the files of each skill as it would come back from an export."""
    with tempfile.TemporaryDirectory() as folder:
        format.write_skills(skills, Path(folder) / "out")
        return {
            name: compute_tree_hash(entry.tree) for name, entry in _read_exported_skills(format, Path(folder)).items()
        }


def _read_exported_skills(format: SkillFormat, to: Path) -> dict[str, IncomingSkill]:
    return {entry.name: entry for entry in read_entries(to, (format,)) if isinstance(entry, IncomingSkill)}


def _list_missing_parts(item: OutgoingSkill, back: IncomingSkill) -> Iterator[str]:
    for field, words in _FIELD_LABELS.items():
        if getattr(item.skill, field) and not getattr(back.skill, field):
            yield words
    for part in dataclasses.fields(Manifest):
        if getattr(item.skill.manifest, part.name) != getattr(back.skill.manifest, part.name) == part.default:
            yield part.name
    yield from (key for key in item.skill.extra if key not in back.skill.extra)
    if not item.skill.enabled and back.enabled:
        yield "that it is switched off"
    if any(_has_counts(of_stage) and stage not in back.counters for stage, of_stage in item.counters.items()):
        yield "counters"
    aside = {trees.TOML_FILE, *trees.MAIN_FILES}
    yield from (path for path in sorted(item.tree.keys() - back.tree.keys() - aside))


def _has_counts(counters: UsageCounts) -> bool:
    return any((counters.recommended, counters.used, counters.succeeded, counters.failed))


# Database files are found anywhere in a tree; other single files only if given directly.
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_LINK_REASON = "It is a link to a skill elsewhere; links are not followed. Import that folder itself."


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatMatch:
    """A directory or file, and the format that reads it."""

    format: SkillFormat
    path: Path
    origin: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _SearchLocation:
    """A path still to be searched; `is_inside` is set below a match."""

    path: Path
    origin: str
    is_inside: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _DirectoryListing:
    """The names in a directory (folders with a '/'), and those worth searching."""

    names: frozenset[str] = frozenset()
    folders: Sequence[str] = ()
    files: Sequence[str] = ()
    linked_skills: Sequence[str] = ()


def find_format_matches(
    path: Path, formats: Sequence[SkillFormat], *, origin: str = ""
) -> Iterator[FormatMatch | SkippedEntry]:
    """Yield every part of `path` that a format recognises, in order of path; the first matching format wins.

    Inside a match, only folders with a SKILL.md match again, and they come last: a copy inside another skill is
    not the original. Links are not followed; one to a skill elsewhere is reported.
    """
    check_readable(path)
    top = path.resolve()
    pending, later = [_SearchLocation(path=path, origin=origin or path.name)], list[_SearchLocation]()
    while pending or later:
        # Nested skills wait in `later` until everything at the top has been seen.
        if not pending:
            pending, later = later[::-1], []
        here = pending.pop()
        try:
            inside = _list_directory(here.path, top)
            is_part = not here.is_inside or not inside.names.isdisjoint(trees.MAIN_FILES)
            claims = (format for format in formats if is_part and format.can_read(here.path, inside.names))
            claimed = next(claims, None)
        except OSError as error:
            yield SkippedEntry(origin=here.origin, name=here.path.name, reason=f"Can't look into it: {error.strerror}.")
            continue
        if claimed is not None:
            yield FormatMatch(format=claimed, path=here.path, origin=here.origin)
        for name in inside.linked_skills:
            yield SkippedEntry(origin=f"{here.origin}/{name}", name=name, reason=_LINK_REASON)
        is_inside = here.is_inside or claimed is not None
        names = inside.folders if is_inside else sorted([*inside.folders, *inside.files])
        below = [
            _SearchLocation(path=here.path / name, origin=f"{here.origin}/{name}", is_inside=is_inside)
            for name in names
        ]
        if is_inside and not here.is_inside:
            later += below
        else:
            pending += below[::-1]


def check_readable(path: Path) -> None:
    """Raise `NotFound` or `StorageFailed` if the path is missing or not readable."""
    if not os.path.lexists(path):
        raise NotFound(f"There is no {path}.", hint="Check the path.")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise StorageFailed(f"{path} may not be read.", hint="Check its permissions.")


def _list_directory(place: Path, top: Path) -> _DirectoryListing:
    if not place.is_dir():
        return _DirectoryListing()
    names: list[str] = []
    folders: list[str] = []
    files: list[str] = []
    links: list[str] = []
    with os.scandir(place) as entries:
        for entry in entries:
            if is_name_ignored_by_import(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                names.append(f"{entry.name}/")
                folders.append(entry.name)
                continue
            names.append(entry.name)
            if entry.is_symlink():
                links.append(entry.name)
            elif entry.name.endswith(_DATABASE_SUFFIXES) and entry.is_file(follow_symlinks=False):
                files.append(entry.name)
    linked = [name for name in sorted(links) if _is_link_to_outside_skill(place / name, top)]
    return _DirectoryListing(names=frozenset(names), folders=sorted(folders), files=files, linked_skills=linked)


def _is_link_to_outside_skill(link: Path, top: Path) -> bool:
    """Whether a link leads to a skill outside the searched tree."""
    return any((link / name).is_file() for name in trees.MAIN_FILES) and not link.resolve().is_relative_to(top)
