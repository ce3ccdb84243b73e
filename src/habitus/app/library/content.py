"""Scan new content before it is used, and compare the files of two versions of a skill."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from habitus.files import File, Tree, file_of, is_examination, write_whole
from habitus.skills import trees
from habitus.skills.choosing.finding import DUPLICATE, Finder
from habitus.skills.library import Library
from habitus.skills.review import Action, Proposal, Review

if TYPE_CHECKING:
    from habitus.screening.findings import Policy

_NEAR = "near-duplicate of"
_MOST_KEPT = 50_000


def high_findings(tree: Tree, policy: Policy) -> list[str]:
    """Return the findings a person must see before foreign content is used, one line per kind."""
    from habitus.screening.findings import Risk, by_kind

    # Loads the rules and a parser, which only scanning needs.
    from habitus.screening.scanner import scan

    return list(map(str, by_kind(one for one in scan(tree, policy) if one.severity is Risk.HIGH)))


class KeptScans:
    """A cache of scan results, keyed by content and rules.

    It is stored in a cache file; without the file, content is scanned again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._has_new = False

    def high_findings(self, tree: Tree, policy: Policy) -> list[str]:
        """Return the high findings in these files, from the cache if possible."""
        lines = [f"{path}\0{one.sha256}\0{one.executable}\0{one.content is None}" for path, one in sorted(tree.items())]
        key = _digest(["\n".join(lines), repr(policy)])
        if key not in self._kept_scans:
            self._kept_scans[key], self._has_new = high_findings(tree, policy), True
        return [*self._kept_scans[key]]

    @functools.cached_property
    def _kept_scans(self) -> dict[str, list[str]]:
        try:
            found = json.loads(self._file.read_bytes())
            return dict(found["scans"]) if found["rules"] == self._rules else {}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    @functools.cached_property
    def _rules(self) -> str:
        """Return a digest that changes with any file of the scanner."""
        package = files("habitus.screening")
        parts = [*package.iterdir(), *(package / "rules").iterdir()]
        return _digest(sorted(part.read_text("utf-8") for part in parts if part.name.endswith((".py", ".toml"))))

    def save(self) -> None:
        """Write new results to the cache file; a failure is ignored."""
        if self._has_new:
            newest = dict(list(self._kept_scans.items())[-_MOST_KEPT:])
            # A full disk costs only time: the next process scans again.
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                content = json.dumps({"rules": self._rules, "scans": newest}).encode()
                write_whole(self._file, content, mode=0o600, durable=False)
            self._has_new = False


def _digest(parts: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def near_duplicates(finder: Finder, name: str, tree: Tree) -> list[str]:
    """Return a line for each skill in the library that says nearly the same as these files."""
    skill = trees.parse(name, tree).skill
    if skill is None:
        return []
    near = finder.similar_to(skill, skill.body)
    return [f"{_NEAR} {hit.id} ({hit.score:.2f})" for hit in near if hit.score >= DUPLICATE]


def said_to_be_near(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the names of near duplicates that the reasons of a proposal mention."""
    return tuple(reason.split()[2] for reason in reasons if reason.startswith(f"{_NEAR} "))


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file before and after a change; None if it doesn't exist or isn't text."""

    path: str
    before: str | None
    after: str | None
    is_text: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionChange:
    """The changes one version made to the version before it, which is 0 for the first."""

    before: int
    after: int
    files: tuple[FileChange, ...]


def made_by(skills: Library, name: str, version: int) -> VersionChange:
    """Return the changes that a version made."""
    kept = (one.number for one in skills.history(name))
    before = max((number for number in kept if number < version), default=0)
    return VersionChange(before=before, after=version, files=versions(skills, name, before, version))


def versions(skills: Library, name: str, before: int, after: int) -> tuple[FileChange, ...]:
    """Return the file changes from one version to another; version 0 has no files."""
    old = skills.tree(name, before) if before else {}
    return changes(old, skills.tree(name, after))


def candidate(skills: Library, name: str, version: int, text: str) -> tuple[FileChange, ...]:
    """Return the file changes that another text for the main file would make."""
    old = skills.tree(name, version)
    return changes(old, {**old, trees.main_file(old) or trees.MAIN_FILES[0]: file_of(text.encode())})


def proposed_changes(review: Review, proposal: Proposal) -> tuple[FileChange, ...]:
    """Return the file changes that approving a proposal would make; empty if it only enables or disables."""
    match proposal.change.action:
        case Action.WRITE:
            return changes(review.before(proposal), proposal.change.tree)
        case Action.REMOVE:
            return changes(review.before(proposal), {})
        case Action.TASKS:
            return changes({}, proposal.change.tree)
        case Action.ENABLE | Action.DISABLE:
            return ()


def twins(skills: Library, proposal: Proposal) -> dict[str, tuple[FileChange, ...]]:
    """Return the skills that say nearly the same as a proposal, each with its differences from the proposal."""
    there = skills.snapshot().by_name
    near = [name for name in said_to_be_near(proposal.reasons) if name in there]
    return {name: changes(skills.tree(name), proposal.change.tree) for name in near}


def readable(changes: Iterable[FileChange], *, is_admin: bool) -> tuple[FileChange, ...]:
    """Return the changes that this user may read: exam tasks are for admins only."""
    return tuple(one for one in changes if is_admin or not is_examination(one.path))


def changes(old: Tree, new: Tree) -> tuple[FileChange, ...]:
    """Return the files that differ between two trees, sorted by path."""
    differing = [path for path in sorted({*old, *new}) if _hash(old.get(path)) != _hash(new.get(path))]
    return tuple(_change(path, old.get(path), new.get(path)) for path in differing)


def _hash(file: File | None) -> str:
    return "" if file is None else file.sha256


def _change(path: str, old: File | None, new: File | None) -> FileChange:
    before, after = _text(old), _text(new)
    is_text = (old is None or before is not None) and (new is None or after is not None)
    return FileChange(path=path, before=before, after=after, is_text=is_text)


def _text(file: File | None) -> str | None:
    try:
        return None if file is None or file.content is None else file.content.decode()
    except UnicodeDecodeError:
        return None
