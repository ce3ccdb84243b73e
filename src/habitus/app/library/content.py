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

from habitus.files import Tree, TreeFile, build_tree_file, is_eval_file, write_atomically
from habitus.skills import trees
from habitus.skills.choosing.skill_finder import DUPLICATE_THRESHOLD, SkillFinder
from habitus.skills.library import Library
from habitus.skills.review import Proposal, ProposalAction, ReviewQueue

if TYPE_CHECKING:
    from habitus.screening.findings import ScreeningPolicy

_NEAR_DUPLICATE = "near-duplicate of"
_MAX_CACHED = 50_000


def list_high_risk_scan_findings(tree: Tree, policy: ScreeningPolicy) -> list[str]:
    """Return the findings a person must see before foreign content is used, one line per kind."""
    from habitus.screening.findings import RiskLevel, merge_findings_of_each_rule

    # Loads the rules and a parser, which only scanning needs.
    from habitus.screening.scanner import scan_skill

    return list(
        map(str, merge_findings_of_each_rule(one for one in scan_skill(tree, policy) if one.severity is RiskLevel.HIGH))
    )


# In a home.
SCANS_FILE = Path("cache", "scans.json")


class ScanCache:
    """A cache of scan results, keyed by content and rules.

    It is stored in a cache file; without the file, content is scanned again.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._has_new = False

    def list_high_risk_scan_findings(self, tree: Tree, policy: ScreeningPolicy) -> list[str]:
        """Return the high findings in these files, from the cache if possible."""
        lines = [f"{path}\0{one.sha256}\0{one.executable}\0{one.content is None}" for path, one in sorted(tree.items())]
        key = _hash_cache_key_parts(["\n".join(lines), repr(policy)])
        if key not in self._cached_scans:
            self._cached_scans[key], self._has_new = list_high_risk_scan_findings(tree, policy), True
        return [*self._cached_scans[key]]

    @functools.cached_property
    def _cached_scans(self) -> dict[str, list[str]]:
        try:
            found = json.loads(self._file.read_bytes())
            return dict(found["scans"]) if found["rules"] == self._rules_digest else {}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    @functools.cached_property
    def _rules_digest(self) -> str:
        """Return a digest that changes with any file of the scanner."""
        package = files("habitus.screening")
        parts = [*package.iterdir(), *(package / "rules").iterdir()]
        return _hash_cache_key_parts(
            sorted(part.read_text("utf-8") for part in parts if part.name.endswith((".py", ".toml")))
        )

    def save(self) -> None:
        """Write new results to the cache file; a failure is ignored."""
        if self._has_new:
            newest = dict(list(self._cached_scans.items())[-_MAX_CACHED:])
            # A full disk costs only time: the next process scans again.
            with suppress(OSError):
                self._file.parent.mkdir(parents=True, exist_ok=True)
                content = json.dumps({"rules": self._rules_digest, "scans": newest}).encode()
                write_atomically(self._file, content, mode=0o600, durable=False)
            self._has_new = False


def _hash_cache_key_parts(parts: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def describe_near_duplicates(finder: SkillFinder, name: str, tree: Tree) -> list[str]:
    """Return a line for each skill in the library that says nearly the same as these files."""
    skill = trees.parse_skill_tree(name, tree).skill
    if skill is None:
        return []
    near = finder.find_skills_similar_to_skill(skill, skill.body)
    return [f"{_NEAR_DUPLICATE} {hit.id} ({hit.score:.2f})" for hit in near if hit.score >= DUPLICATE_THRESHOLD]


def parse_near_duplicate_names_from_reasons(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the names of near duplicates that the reasons of a proposal mention."""
    return tuple(reason.split()[2] for reason in reasons if reason.startswith(f"{_NEAR_DUPLICATE} "))


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file before and after a change; None if it doesn't exist or isn't text."""

    path: str
    before: str | None
    after: str | None
    is_text: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillVersionChanges:
    """The changes one version made to the version before it, which is 0 for the first."""

    before: int
    after: int
    files: tuple[FileChange, ...]


def get_file_changes_of_version(skills: Library, name: str, version: int) -> SkillVersionChanges:
    """Return the changes that a version made."""
    kept = (one.number for one in skills.list_versions(name))
    before = max((number for number in kept if number < version), default=0)
    return SkillVersionChanges(
        before=before, after=version, files=list_file_changes_between_versions(skills, name, before, version)
    )


def list_file_changes_between_versions(skills: Library, name: str, before: int, after: int) -> tuple[FileChange, ...]:
    """Return the file changes from one version to another; version 0 has no files."""
    old = skills.read_tree(name, before) if before else {}
    return list_file_changes_between_trees(old, skills.read_tree(name, after))


def list_file_changes_of_new_main_text(skills: Library, name: str, version: int, text: str) -> tuple[FileChange, ...]:
    """Return the file changes that another text for the main file would make."""
    old = skills.read_tree(name, version)
    return list_file_changes_between_trees(
        old, {**old, trees.find_main_file(old) or trees.MAIN_FILES[0]: build_tree_file(text.encode())}
    )


def list_file_changes_of_proposal(review: ReviewQueue, proposal: Proposal) -> tuple[FileChange, ...]:
    """Return the file changes that approving a proposal would make; empty if it only enables or disables."""
    match proposal.change.action:
        case ProposalAction.WRITE:
            return list_file_changes_between_trees(review.read_base_tree(proposal), proposal.change.tree)
        case ProposalAction.REMOVE:
            return list_file_changes_between_trees(review.read_base_tree(proposal), {})
        case ProposalAction.TASKS:
            return list_file_changes_between_trees({}, proposal.change.tree)
        case ProposalAction.ENABLE | ProposalAction.DISABLE:
            return ()


def diff_proposal_with_near_duplicates(skills: Library, proposal: Proposal) -> dict[str, tuple[FileChange, ...]]:
    """Return the skills that say nearly the same as a proposal, each with its differences from the proposal."""
    there = skills.snapshot().by_name
    near = [name for name in parse_near_duplicate_names_from_reasons(proposal.reasons) if name in there]
    return {name: list_file_changes_between_trees(skills.read_tree(name), proposal.change.tree) for name in near}


def filter_changes_user_may_read(changes: Iterable[FileChange], *, is_admin: bool) -> tuple[FileChange, ...]:
    """Return the changes that this user may read: exam tasks are for admins only."""
    return tuple(one for one in changes if is_admin or not is_eval_file(one.path))


def list_file_changes_between_trees(old: Tree, new: Tree) -> tuple[FileChange, ...]:
    """Return the files that differ between two trees, sorted by path."""
    differing = [
        path for path in sorted({*old, *new}) if _get_file_hash(old.get(path)) != _get_file_hash(new.get(path))
    ]
    return tuple(_build_file_change(path, old.get(path), new.get(path)) for path in differing)


def _get_file_hash(file: TreeFile | None) -> str:
    return "" if file is None else file.sha256


def _build_file_change(path: str, old: TreeFile | None, new: TreeFile | None) -> FileChange:
    before, after = _decode_text(old), _decode_text(new)
    is_text = (old is None or before is not None) and (new is None or after is not None)
    return FileChange(path=path, before=before, after=after, is_text=is_text)


def _decode_text(file: TreeFile | None) -> str | None:
    try:
        return None if file is None or file.content is None else file.content.decode()
    except UnicodeDecodeError:
        return None
