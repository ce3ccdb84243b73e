"""What changed since somebody last looked: a hash over every file of every loadable skill, and the names behind it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from habitus.skills import gates
from habitus.skills.gates import GateContext
from habitus.skills.listing import Snapshot
from habitus.skills.selection import NEVER
from habitus.text import one_line

_MOST_LINES = 10


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


def visible(snapshot: Snapshot, context: GateContext) -> dict[str, str]:
    """Name → hash of the skills that somebody may know of, also of those that are switched off."""
    return {
        item.name: item.tree_hash
        for item in snapshot.listing
        if item.summary is not None and item.state not in NEVER and not gates.closed_gates(item.summary, context)
    }


def news(
    before: Mapping[str, str] | None,
    now: Mapping[str, str],
    *,
    hidden: Collection[str] = (),
    changelog: Callable[[], str] = lambda: "",
) -> News:
    """What a user has not seen yet. Somebody who never looked has nothing to catch up with.

    `hidden` are skills that are there and that the user may not know of.
    """
    if before is None:
        return News()
    added = tuple(sorted(name for name in now if name not in before))
    removed = tuple(sorted(name for name in before if name not in now and name not in hidden))
    changed = tuple(sorted(name for name, digest in now.items() if name in before and before[name] != digest))
    found = {*added, *changed, *removed}
    lines = _naming(changelog().splitlines(), found, but=hidden) if found else ()
    return News(added=added, changed=changed, removed=removed, lines=lines)


def _naming(lines: Collection[str], names: Collection[str], *, but: Collection[str]) -> tuple[str, ...]:
    """The first lines that name one of the skills, and none of those that are nobody's business."""
    wanted, unwanted = _any_of(names), _any_of(but)
    named = (line.strip(" \t-*+") for line in lines if wanted.search(line) and not (but and unwanted.search(line)))
    return tuple(named)[:_MOST_LINES]


def _any_of(names: Collection[str]) -> re.Pattern[str]:
    spellings = (re.escape(name).replace(r"\-", "[-_ ]") for name in names)
    return re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(spellings)})(?![\w-])")
