"""Taking down what lies on a shelf: new folders, hand edits and removals become rows and versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from habitus.files import Tree, tree_hash
from habitus.skills import names, records, trees
from habitus.skills.ledger import Entry, Ledger, Row
from habitus.skills.model import Actor, Author, Diagnostic, Severity
from habitus.skills.stores.base import Facts, Found, Shelf

ON_DISK = Author(actor=Actor.DISK, reason="changed on disk")
_FOUND = replace(ON_DISK, reason="found on disk")
_REMOVED = replace(ON_DISK, reason="removed on disk")
_SWITCHED = replace(ON_DISK, reason="switched on disk")


Inspect = Callable[[Tree], Sequence[str]]  # what a person should know of files that somebody else put there


class Noticing:
    def __init__(self, shelf: Shelf, ledger: Ledger, clock: Callable[[], datetime], inspect: Inspect) -> None:
        self._shelf = shelf
        self._ledger = ledger
        self._clock = clock
        self._inspect = inspect

    def notice(self, connection: sa.Connection, folders: Sequence[str]) -> None:
        """Read these folders and write down what differs from what was known. The caller holds the write lock."""
        new: list[tuple[None, Entry]] = []
        changed: list[tuple[Row, Entry]] = []
        stamps: dict[int, str] = {}
        known, there = self._ledger.rows(connection, folders), self._shelf.read_many(folders, {})
        for folder in folders:
            row, found = known.get(folder), there.get(folder)
            if found is None:
                if row is not None:
                    self._ledger.archive(connection, row.id, None, _REMOVED, self._clock())
                continue
            entry = self.entry(folder, found)
            if row is None:
                new.append((None, entry))
            elif row.tree_hash != tree_hash(entry.tree) or row.diagnostics != entry.diagnostics:
                changed.append((row, entry))
            elif row.stamp != entry.stamp:
                stamps[row.id] = entry.stamp
            if row is not None and found.facts.enabled not in (None, row.enabled):
                self._ledger.enable(connection, row.id, not row.enabled, _SWITCHED, self._clock())
        self._ledger.put(connection, changed, ON_DISK, self._clock())
        self._ledger.put(connection, new, _FOUND, self._clock())
        self._ledger.restamp(connection, stamps)

    def settle(self, connection: sa.Connection, folders: Sequence[str]) -> None:
        """Let the shelf keep what has just been recorded about these folders."""
        rows = self._ledger.rows(connection, folders) if self._shelf.keeps_facts else {}
        if not rows:
            return
        stamps = self._shelf.record({folder: _facts(row) for folder, row in rows.items()})
        self._ledger.restamp(
            connection, {row.id: stamps[folder] for folder, row in rows.items() if stamps[folder] != row.stamp}
        )

    def entry(self, folder: str, found: Found) -> Entry:
        """What lies in a folder, ready to be written down."""
        parsed = trees.parse(folder, found.tree)
        skill = parsed.skill if found.problem is None else None
        risks = [
            Diagnostic(file=folder, what=f"{risk}.", mend="Read it before you use it.", severity=Severity.RISK)
            for risk in self._inspect(found.tree)
        ]
        return Entry(
            folder=folder,
            name=skill.name if skill is not None else _name_of(folder),
            tree=found.tree,
            stamp=found.stamp,
            summary=None if skill is None else records.without_body(skill, stages=trees.stages(found.tree)),
            diagnostics=(*parsed.diagnostics, *risks) if found.problem is None else (found.problem,),
            facts=found.facts,
        )


def _facts(row: Row) -> Facts:
    return Facts(version=row.version, enabled=row.enabled, created_on=row.created_on, modified_on=row.modified_on)


def _name_of(folder: str) -> str:
    name = names.canonical(folder)
    return name if names.is_legal(name) else names.slugify(folder)
