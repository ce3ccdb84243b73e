"""Reading skills from wherever they are: the layout is found out, several in one tree too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from habitus.errors import Invalid
from habitus.files import given_path
from habitus.skills.formats import archives, fitting, table, units
from habitus.skills.formats.anton import Anton
from habitus.skills.formats.base import CantTake, Entry, Format, NotTaken, describe_problem, without_clashes
from habitus.skills.formats.ghost import Ghost
from habitus.skills.formats.istota import Istota
from habitus.skills.formats.skill_folder import SkillFolder
from habitus.skills.formats.table import Table
from habitus.skills.formats.units import Unit

# In the order in which they are asked: the plain layout takes what no other one claims.
FORMATS: tuple[Format, ...] = (Anton(), Ghost(), Istota(), Table(), SkillFolder())


def format_named(name: str) -> Format:
    for format in FORMATS:
        if format.name == name:
            return format
    raise Invalid(f"There is no format '{name}'.", mend=f"Use one of {', '.join(f.name for f in FORMATS)}.")


def read(
    source: Path | str, formats: Sequence[Format] = FORMATS, *, origin: str = "", keep_both: bool = False
) -> Iterator[Entry]:
    """Everything at a path or database address, in any of the layouts; of two skills of one name the first, or both.

    Raises `NotFound` or `StorageFailed` for what is not there or can't be reached, and nothing for what is in it."""
    if isinstance(source, str) and "://" in source:
        return without_clashes(_read_database(source), keep_both=keep_both)
    path = _with_name(Path(source))
    units.check_readable(path)
    return without_clashes(_read_path(path, formats, origin or path.name), keep_both=keep_both)


def detect(path: Path) -> tuple[Format, ...]:
    """The layouts found at a path, in the order in which they are asked. An archive counts as what is inside it."""
    path = _with_name(path)
    units.check_readable(path)
    try:
        with _open_archive(path) as top:
            found = {unit.format.name for unit in units.find(top, FORMATS) if isinstance(unit, Unit)}
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
            for unit in units.find(top, formats, origin=origin):
                is_empty = False
                if isinstance(unit, NotTaken):
                    yield unit
                else:
                    yield from unit.format.read_safely(unit.path, unit.origin)
    except (CantTake, OSError) as problem:
        yield NotTaken(origin=origin, name=archives.stem(path), reason=describe_problem(problem))
    else:
        if is_empty:
            yield NotTaken(origin=origin, name=archives.stem(path), reason=_nothing(path))


@contextmanager
def _open_archive(path: Path) -> Iterator[Path]:
    """The path itself, or the unpacked archive in a directory that bears its name: often it holds just one itself."""
    if not archives.is_archive(path):
        yield path
        return
    with archives.unpack(path, name=fitting.legal_name(archives.stem(path))) as top:
        inside = list(top.iterdir())
        yield inside[0] if len(inside) == 1 and inside[0].is_dir() else top


def _nothing(path: Path) -> str:
    if path.is_dir() or archives.is_archive(path):
        return "There is no skill in it: no SKILL.md or skill.md, and no file of another layout that is read here."
    return f"A {path.suffix or 'nameless'} file is nothing that skills are read from. Give .md, .zip, .tar.gz or .db."


def _read_database(url: str) -> Iterator[Entry]:
    try:
        yield from table.read_database(url)
    except CantTake as problem:
        yield NotTaken(origin=url.partition("://")[0], name="", reason=str(problem))
