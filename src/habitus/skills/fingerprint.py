"""What changed since somebody last looked: a hash over every file of every loadable skill, and the names behind it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from habitus.text import one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class News:
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # of the CHANGELOG that came with them

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def text(self) -> str:
        """The section for an interactive prompt."""
        parts = [
            f"- {what}: {', '.join(found)}"
            for what, found in (("new", self.added), ("changed", self.changed), ("gone", self.removed))
            if found
        ]
        return (
            "\n".join(["## What's new", "", *parts, *(f"  - {one_line(line)}" for line in self.lines)]) if parts else ""
        )


def fingerprint(hashes: Mapping[str, str]) -> str:
    """One hash for a whole library: name → hash over all its files."""
    lines = "".join(f"{name}\0{digest}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def news(before: Mapping[str, str] | None, now: Mapping[str, str], changelog: str = "") -> News:
    """What a user has not seen yet. Somebody who never looked has nothing to catch up with."""
    if before is None:
        return News()
    added = tuple(sorted(name for name in now if name not in before))
    removed = tuple(sorted(name for name in before if name not in now))
    changed = tuple(sorted(name for name, digest in now.items() if name in before and before[name] != digest))
    spellings = (re.escape(name).replace(r"\-", "[-_ ]") for name in {*added, *changed, *removed})
    named = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(spellings)})(?![\w-])")
    lines = (
        [line.strip() for line in changelog.splitlines() if named.search(line)] if added or changed or removed else []
    )
    return News(added=added, changed=changed, removed=removed, lines=tuple(lines[:10]))
