"""Comparing: the files that differ between two versions of a skill, or that a proposal would change."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.app.library.content import said_to_be_near
from habitus.files import File, Tree, file_of
from habitus.skills import trees
from habitus.skills.library import Library
from habitus.skills.review import Action, Proposal, Review


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file before and after; None where it is not there, or no text."""

    path: str
    before: str | None
    after: str | None
    is_text: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionChange:
    """What one version changed, beside the version that was there before it; 0 where there was none."""

    before: int
    after: int
    files: tuple[FileChange, ...]


def made_by(skills: Library, name: str, version: int) -> VersionChange:
    kept = (one.number for one in skills.history(name))
    before = max((number for number in kept if number < version), default=0)
    return VersionChange(before=before, after=version, files=versions(skills, name, before, version))


def versions(skills: Library, name: str, before: int, after: int) -> tuple[FileChange, ...]:
    """What became of a skill's files from one version to another; version 0 has none."""
    old = skills.tree(name, before) if before else {}
    return changes(old, skills.tree(name, after))


def candidate(skills: Library, name: str, version: int, text: str) -> tuple[FileChange, ...]:
    """What another text of its main file would change in a version."""
    old = skills.tree(name, version)
    return changes(old, {**old, trees.main_file(old) or trees.MAIN_FILES[0]: file_of(text.encode())})


def proposed_changes(review: Review, proposal: Proposal) -> tuple[FileChange, ...]:
    """What approving it would do to the files."""
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
    """The skills that say much the same as a proposal, each with how the proposal differs from it."""
    there = skills.snapshot().by_name
    near = [name for name in said_to_be_near(proposal.reasons) if name in there]
    return {name: changes(skills.tree(name), proposal.change.tree) for name in near}


def changes(old: Tree, new: Tree) -> tuple[FileChange, ...]:
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
