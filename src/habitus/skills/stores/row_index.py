"""A cached view of one layer: in step with the database, checked against the files every few seconds."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.errors import NotFound
from habitus.files import tree_hash
from habitus.skills import names
from habitus.skills.layers.by_name import ByName
from habitus.skills.model import Counters, Diagnostic, Severity, Stage
from habitus.skills.stores.base import NO_CONTENTS, TOLD, Broken, Contents, Shelf
from habitus.skills.stores.ledger import LayerChanges, Ledger, Row
from habitus.skills.stores.recording import Recorder

# Folders stored in one transaction: long ones would block other writers.
CHUNK = 500
# Wait this many times the duration of the last check: a large directory must not slow down every call.
_REST = 20
# This few folders are first read without the write lock, in case nothing has changed.
_FEW = 20


class KnownLayer:
    """The rows and contents of one layer. Thread-safe.

    A thread may wait for the database while holding this object's lock, but never the other way round.
    """

    def __init__(
        self,
        engine: sa.Engine,
        shelf: Shelf,
        ledger: Ledger,
        recorder: Recorder,
        *,
        look_every: float,
        heard: Callable[[], Hashable],
        monotonic: Callable[[], float],
    ) -> None:
        self.rows: dict[int, Row] = {}  # by id
        self.index = RowIndex(ledger.layer)
        self._lock = threading.RLock()
        self._engine = engine
        self._shelf = shelf
        self._ledger = ledger
        self._recorder = recorder
        self._generation = 0
        self._look_every = self._look_again_after = look_every
        self._looked_at: float | None = None
        # Changes when the files were touched; None if no notification would arrive.
        self._heard = heard
        self._heard_of: Hashable = None
        self._monotonic = monotonic

    def fresh(self, *, look: bool | None = None) -> RowIndex:
        """Return the current index; `check_disk` forces (True) or skips (False) a check of the files."""
        with self._lock:
            self.catch_up()
            if look is not False:
                self.look(now=bool(look))
            return self.index

    def look(self, *, now: bool = False) -> bool:
        """Check the files if a check is due or forced; return whether anything changed."""
        with self._lock:
            began = self._monotonic()
            is_due = self._looked_at is None or began - self._looked_at >= self._look_again_after
            heard = self._heard()
            if not now and (not is_due or (heard is not None and heard == self._heard_of)):
                return False
            self._heard_of = heard
            known = {row.folder: row.stamp for row in self.rows.values()}
            stamps = self._shelf.look(known)
            changed = [folder for folder, stamp in stamps.items() if not stamp or known.get(folder) != stamp]
            changed += [folder for folder in known if folder not in stamps]
            self._looked_at = self._monotonic()
            if self._look_every:
                self._look_again_after = max(self._look_every, _REST * (self._looked_at - began))
            return self.look_at(changed)

    def is_told_all(self) -> bool:
        """Whether notifications are available and none arrived since the last check."""
        heard = self._heard()
        return heard is not None and heard == self._heard_of

    def look_at(self, folders: Sequence[str]) -> bool:
        """Read these folders and store the changes; return whether there were any."""
        if len(folders) <= _FEW:
            folders = self._changed_folders(folders)
        for start in range(0, len(folders), CHUNK):
            with self.writing() as connection:
                self._recorder.recover(connection)
                self._recorder.notice(connection, folders[start : start + CHUNK])
        return bool(folders)

    def _changed_folders(self, folders: Sequence[str]) -> list[str]:
        """Return the folders whose content differs from the known rows; the others only get a new stamp."""
        changed = list(folders)
        with self._lock:
            known = {row.folder: row for row in self.rows.values() if row.folder in folders and row.summary}
            for folder, found in self._shelf.read_many(known, {}).items() if known else ():
                row = known[folder]
                is_switched = found.facts.enabled not in (None, row.enabled)
                if found.problem is None and not is_switched and tree_hash(found.tree) == row.tree_hash:
                    self.rows[row.id] = replace(row, stamp=found.stamp)
                    changed.remove(folder)
        return changed

    def catch_up(self) -> None:
        """Apply what this or another process has written to the database."""
        with self._lock, sql.reading(self._engine) as connection:
            self._take_over(self._ledger.changes_since(connection, self._generation))

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction with the write lock; on commit its changes are applied here."""
        if not self._generation:
            # Load a large layer before taking the lock, so no other writer waits for it.
            self.catch_up()
        with sql.writing(self._engine, durable=durable, lock=self._ledger.key) as connection:
            yield connection
            changes = self._ledger.changes_since(connection, self._generation)
        self._take_over(changes)

    def _take_over(self, changes: LayerChanges) -> None:
        with self._lock:
            # Another thread has already applied newer changes.
            if changes.generation <= self._generation:
                return
            old = [self.rows.pop(id) for id in (*changes.gone, *(row.id for row in changes.present)) if id in self.rows]
            self.rows |= {row.id: row for row in changes.present}
            self._generation = changes.generation
            self.index = self.index.after(old, changes.present, changes.generation)

    # Counters

    def count(
        self,
        wanted: Sequence[str],
        stage: Stage,
        plus: dict[str, int],
        last_used: datetime | None,
        version: int | None = None,
    ) -> None:
        """Add to the counters of these skills, at their current or a given version; raise `NotFound` for an unknown
        name.
        """
        loadable = self.index.loadable
        if any(names.canonical(name) not in loadable for name in wanted):
            loadable = self.fresh(look=False).loadable
        rows = [row for name in wanted if (row := loadable.get(names.canonical(name))) is not None]
        if len(rows) < len(wanted):
            unknown = next(name for name in wanted if names.canonical(name) not in loadable)
            raise NotFound(f"No skill '{unknown}' to count for.", hint="See 'habitus skills list'.")
        if not rows:
            return
        with sql.writing(self._engine) as connection:
            counted = {row.id: row.version if version is None else version for row in rows}
            self._ledger.count(connection, counted, stage, plus, last_used)

    def counted_and_told(self, name: str, version: int | None) -> tuple[dict[Stage, Counters], dict[Stage, Counters]]:
        """Return our own counters by stage, and those of another system; both empty for an unknown name."""
        known = names.canonical(name)
        row = self.index.taken.get(known) or self.fresh().taken.get(known)
        counted: dict[Stage, Counters] = {}
        told: dict[Stage, Counters] = {}
        if row is None:
            return counted, told
        with sql.reading(self._engine) as connection:
            found = self._ledger.counters(connection, row.id)
        for (number, stage), counters in found.items():
            if number == TOLD or version in (None, number):
                result = told if number == TOLD else counted
                result[stage] = result.get(stage, Counters()) + counters
        return counted, told

    def all_counters(self, *, with_told: bool, among: Sequence[str] | None) -> dict[str, dict[Stage, Counters]]:
        """Return the counters by name and stage, over all versions."""
        if among is None:
            self.fresh(look=False)
        rows = None if among is None else [row.id for name in among if (row := self.index.taken.get(name))]
        with sql.reading(self._engine) as connection:
            found = self._ledger.all_counters(connection, with_told=with_told, among=rows)
        return {self.rows[identity].name: stages for identity, stages in found.items() if identity in self.rows}


class RowIndex:
    """A layer's rows by name. If two folders spell the same name, the first one loads and the other is broken."""

    def __init__(self, layer: str) -> None:
        self._layer = layer
        self._spellings = ByName[tuple[Row, ...]]()  # by folder
        self.taken = ByName[Row]()
        self.loadable = ByName[Row]()
        self.contents = NO_CONTENTS

    def after(self, gone: Sequence[Row], present: Sequence[Row], revision: int) -> RowIndex:
        """Return the index with these rows removed and those added; the rest is shared, not copied."""
        left, found = {row.id for row in gone}, defaultdict[str, list[Row]](list)
        # Sorted once here, so the maps built from it need no sorting.
        for row in sorted(present, key=lambda row: row.name):
            found[row.name].append(row)
        names = found.keys() | {row.name for row in gone}
        for name in names if self._spellings else ():
            found[name] += [row for row in self._spellings.get(name, ()) if row.id not in left]
        spellings = {name: tuple(sorted(rows, key=lambda row: row.folder)) for name, rows in found.items() if rows}
        taken = {name: rows[0] for name, rows in spellings.items()}
        summaries = {name: row.summary for name, row in taken.items() if row.summary is not None}
        made, before = RowIndex(self._layer), self.contents
        made._spellings = self._spellings.after(names, spellings)
        made.taken = self.taken.after(names, taken)
        made.loadable = self.loadable.after(names, {name: taken[name] for name in summaries})
        made.contents = Contents(
            revision=revision,
            summaries=before.summaries.after(names, summaries),
            broken=before.broken.after(names, self._broken(spellings)),
            hashes=before.hashes.after(names, {name: row.tree_hash for name, row in taken.items()}),
            diagnostics=before.diagnostics.after(
                names, {name: row.diagnostics for name, row in taken.items() if row.diagnostics}
            ),
            changes=before.changes.then(before.revision, names) if before.revision else before.changes,
        )
        return made

    def _broken(self, spellings: Mapping[str, Sequence[Row]]) -> dict[str, tuple[Broken, ...]]:
        broken = defaultdict[str, tuple[Broken, ...]](tuple)
        for name, rows in spellings.items():
            for row in rows:
                if row is not rows[0] or row.summary is None:
                    found = row.diagnostics if row is rows[0] else (*row.diagnostics, _second_spelling(row, rows[0]))
                    broken[name] += (Broken(name=name, folder=row.folder, layer=self._layer, diagnostics=found),)
        return broken


def _second_spelling(row: Row, first: Row) -> Diagnostic:
    return Diagnostic(
        file=row.folder,
        what=f"'{row.folder}' spells the same name as '{first.folder}', which is loaded.",
        hint="Rename or remove one of the two directories.",
        severity=Severity.ERROR,
    )
