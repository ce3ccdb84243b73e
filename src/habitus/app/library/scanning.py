"""Scanning what is not here yet: the findings in a file, a directory or an archive, and nothing is taken in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from habitus.app.home import Home
from habitus.errors import Invalid
from habitus.files import Tree, file_of, given_path
from habitus.learning.budget import Budget
from habitus.learning.second_look import Doubt, second_look
from habitus.llm.model import Model
from habitus.screening.findings import Finding, Policy, by_kind, is_clean
from habitus.screening.scanner import scan
from habitus.skills.formats import archives, detect, units
from habitus.skills.formats.base import CantTake, Incoming, NotTaken

_MOST_BYTES = 2 * 1024 * 1024  # of one file; a larger one is no text for a model


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """A skill, or files that are none, with a finding for each kind of suspicion; `is_held` if an import would wait."""

    name: str
    origin: str
    findings: tuple[Finding, ...]
    is_held: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanReport:
    scanned: tuple[Scanned, ...]
    not_read: tuple[NotTaken, ...]
    is_cut: bool = False  # whether there are more

    @property
    def is_held(self) -> bool:
        return any(each.is_held for each in self.scanned)


@dataclass(frozen=True, kw_only=True, slots=True)
class LookedAgain:
    """The lines of a skill that a model doubts."""

    name: str
    doubts: tuple[Doubt, ...]


def look_at(screening: Policy, path: str, *, most: int | None = None) -> ScanReport:
    """Scan the skills at a path as an import would, the first of them where they are many; where there are none, all
    the files."""
    found, not_read, is_cut = _skills_at(path, most)
    scanned = (_scan_tree(screening, name, origin, tree) for name, origin, tree in found)
    return ScanReport(scanned=tuple(scanned), not_read=not_read, is_cut=is_cut)


async def look_again(home: Home, path: str, model: Model) -> list[LookedAgain]:
    """Ask a model about the same skills, within the tokens of the day."""
    paid = Budget(day=home.spending).model(model)
    return [
        LookedAgain(name=name, doubts=await second_look(paid, tree, redactor=home.redactor))
        for name, _, tree in _skills_at(path)[0]
    ]


def _skills_at(path: str, most: int | None = None) -> tuple[list[tuple[str, str, Tree]], tuple[NotTaken, ...], bool]:
    """Name, origin and files of each skill, or of all the files where there is none; what can't be read; and whether
    there are more."""
    source = given_path(path)
    units.check_readable(source)
    found = detect.read(source, keep_both=True)
    entries = list(islice(found, most))
    is_cut = next(found, None) is not None
    skills = [(entry.name, entry.origin, entry.tree) for entry in entries if isinstance(entry, Incoming)]
    if not skills:
        return list(_plain_files(source)), (), False
    return skills, tuple(entry for entry in entries if isinstance(entry, NotTaken)), is_cut


def _scan_tree(screening: Policy, name: str, origin: str, tree: Tree) -> Scanned:
    findings = by_kind(scan(tree, screening))
    return Scanned(name=name, origin=origin, findings=findings, is_held=not is_clean(findings))


def _plain_files(path: Path) -> Iterator[tuple[str, str, Tree]]:
    if not archives.is_archive(path):
        yield path.name, str(path), _tree(path)
        return
    try:
        with archives.unpack(path) as top:
            yield path.name, str(path), _tree(top)
    except CantTake as problem:
        raise Invalid(f"{path.name} can't be read: {problem}", mend="") from None


def _tree(top: Path) -> Tree:
    """The files at a path that are small enough to be read; links are not followed."""
    paths = [top] if top.is_file() else sorted(top.rglob("*"))
    return {
        str(path.relative_to(top)) if path != top else path.name: file_of(path.read_bytes())
        for path in paths
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MOST_BYTES and ".git" not in path.parts
    }
