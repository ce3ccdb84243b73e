"""New content, as a person should see it first: what a scan finds in it, and which skills say much the same."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from habitus.files import Tree, write_whole
from habitus.screening.findings import Policy
from habitus.skills import trees
from habitus.skills.finding import Finder
from habitus.skills.lint import DUPLICATE

_NEAR = "near-duplicate of"
_MOST_KEPT = 50_000


def high_findings(tree: Tree, policy: Policy) -> list[str]:
    """What a person must see before foreign content is used, one line a kind; a rule in brackets can be silenced."""
    from habitus.screening.findings import Risk, by_kind
    from habitus.screening.scanner import scan  # patterns and a parser, for those who look at content

    return list(map(str, by_kind(one for one in scan(tree, policy) if one.severity is Risk.HIGH)))


class KeptScans:
    """Scans that were done before, by what was scanned and by which rules: content that is the same reads the same.

    A file in the cache holds them; without it they are done anew.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._has_new = False

    def high_findings(self, tree: Tree, policy: Policy) -> list[str]:
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
        """Another one whenever anything of the scanner has changed."""
        package = files("habitus.screening")
        parts = [*package.iterdir(), *(package / "rules").iterdir()]
        return _digest(sorted(part.read_text("utf-8") for part in parts if part.name.endswith((".py", ".toml"))))

    def save(self) -> None:
        if self._has_new:
            newest = dict(list(self._kept_scans.items())[-_MOST_KEPT:])
            with suppress(OSError):  # of a disk that is full, say; nothing is lost but time
                self._file.parent.mkdir(parents=True, exist_ok=True)
                content = json.dumps({"rules": self._rules, "scans": newest}).encode()
                write_whole(self._file, content, mode=0o600, durable=False)
            self._has_new = False


def _digest(parts: Iterable[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def near_duplicates(finder: Finder, name: str, tree: Tree) -> list[str]:
    """Which skills of the library say much the same as these files."""
    skill = trees.parse(name, tree).skill
    if skill is None:
        return []
    near = finder.similar_to(skill, skill.body)
    return [f"{_NEAR} {hit.id} ({hit.score:.2f})" for hit in near if hit.score >= DUPLICATE]


def said_to_be_near(reasons: Iterable[str]) -> tuple[str, ...]:
    """The skills that a proposal waits for because it says much the same."""
    return tuple(reason.split()[2] for reason in reasons if reason.startswith(f"{_NEAR} "))
