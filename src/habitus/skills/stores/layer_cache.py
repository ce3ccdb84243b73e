"""A cached view of one layer: in step with the database, checked against the files every few seconds."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import sqlalchemy as sa

from habitus import sql
from habitus.files import compute_tree_hash
from habitus.skills.layers.name_map import SortedNameMap
from habitus.skills.model import Diagnostic, Severity
from habitus.skills.stores.base import NO_CONTENTS, BrokenSkill, FileBackend, LayerContents
from habitus.skills.stores.layer_database import LayerChanges, LayerDatabase, SkillRow
from habitus.skills.stores.recording import ChangeRecorder

# Folders stored in one transaction: long ones would block other writers.
BATCH_SIZE = 500
# Wait this many times the duration of the last check: a large directory must not slow down every call.
_CHECK_PAUSE_FACTOR = 20
# This few folders are first read without the write lock, in case nothing has changed.
_PRE_READ_LIMIT = 20


class LayerCache:
    """The rows and contents of one layer. Thread-safe.

    A thread may wait for the database while holding this object's lock, but never the other way round.
    """

    def __init__(
        self,
        engine: sa.Engine,
        backend: FileBackend,
        database: LayerDatabase,
        recorder: ChangeRecorder,
        check_interval: float,
        read_change_marker: Callable[[], Hashable],
        monotonic: Callable[[], float],
    ) -> None:
        self.rows: dict[int, SkillRow] = {}  # by id
        self.index = LayerRowIndex(database.layer)
        self._lock = threading.RLock()
        self._engine = engine
        self._backend = backend
        self._db = database
        self._recorder = recorder
        self._generation = 0
        self._check_interval = self._next_check_after = check_interval
        self._last_check: float | None = None
        # Changes when the files were touched; None if no notification would arrive.
        self._read_change_marker = read_change_marker
        self._last_change_marker: Hashable = None
        self._monotonic = monotonic

    def refresh(self, *, check_disk: bool | None = None) -> LayerRowIndex:
        """Return the current index; `check_disk` forces (True) or skips (False) a check of the files."""
        with self._lock:
            self.sync_from_database()
            if check_disk is not False:
                self.refresh_from_disk(force=bool(check_disk))
            return self.index

    def refresh_from_disk(self, *, force: bool = False) -> bool:
        """Check the files if a check is due or forced; return whether anything changed."""
        with self._lock:
            began = self._monotonic()
            is_due = self._last_check is None or began - self._last_check >= self._next_check_after
            heard = self._read_change_marker()
            if not force and (not is_due or (heard is not None and heard == self._last_change_marker)):
                return False
            self._last_change_marker = heard
            known = {row.folder: row.stamp for row in self.rows.values()}
            stamps = self._backend.list_folder_change_stamps(known)
            changed = [folder for folder, stamp in stamps.items() if not stamp or known.get(folder) != stamp]
            changed += [folder for folder in known if folder not in stamps]
            self._last_check = self._monotonic()
            if self._check_interval:
                self._next_check_after = max(self._check_interval, _CHECK_PAUSE_FACTOR * (self._last_check - began))
            return self.refresh_folders(changed)

    def has_no_notified_change(self) -> bool:
        """Whether notifications are available and none arrived since the last check."""
        heard = self._read_change_marker()
        return heard is not None and heard == self._last_change_marker

    def refresh_folders(self, folders: Sequence[str]) -> bool:
        """Read these folders and store the changes; return whether there were any."""
        if len(folders) <= _PRE_READ_LIMIT:
            folders = self._find_changed_folders(folders)
        for start in range(0, len(folders), BATCH_SIZE):
            with self.open_write_transaction() as conn:
                self._recorder.complete_pending_writes(conn)
                self._recorder.read_folders_and_record_changes(conn, folders[start : start + BATCH_SIZE])
        return bool(folders)

    def _find_changed_folders(self, folders: Sequence[str]) -> list[str]:
        """Return the folders whose content differs from the known rows; the others only get a new stamp."""
        changed = list(folders)
        with self._lock:
            known = {row.folder: row for row in self.rows.values() if row.folder in folders and row.summary}
            for folder, found in self._backend.read_folders(known, {}).items() if known else ():
                row = known[folder]
                is_switched = found.facts.enabled not in (None, row.enabled)
                if found.problem is None and not is_switched and compute_tree_hash(found.tree) == row.tree_hash:
                    self.rows[row.id] = replace(row, stamp=found.stamp)
                    changed.remove(folder)
        return changed

    def sync_from_database(self) -> None:
        """Apply what this or another process has written to the database."""
        with self._lock, sql.read_transaction(self._engine) as conn:
            self._apply_changes(self._db.list_changes_since(conn, self._generation))

    @contextmanager
    def open_write_transaction(self, *, durable: bool = False) -> Iterator[sa.Connection]:
        """Open a transaction with the write lock; on commit its changes are applied here."""
        if not self._generation:
            # Load a large layer before taking the lock, so no other writer waits for it.
            self.sync_from_database()
        with sql.write_transaction(self._engine, durable=durable, lock=self._db.key) as conn:
            yield conn
            changes = self._db.list_changes_since(conn, self._generation)
        self._apply_changes(changes)

    def _apply_changes(self, changes: LayerChanges) -> None:
        with self._lock:
            # Another thread has already applied newer changes.
            if changes.generation <= self._generation:
                return
            old = [self.rows.pop(id) for id in (*changes.gone, *(row.id for row in changes.present)) if id in self.rows]
            self.rows |= {row.id: row for row in changes.present}
            self._generation = changes.generation
            self.index = self.index.with_changes(old, changes.present, changes.generation)


class LayerRowIndex:
    """A layer's rows by name. If two folders spell the same name, the first one loads and the other is broken."""

    def __init__(self, layer: str) -> None:
        self._layer = layer
        self._spellings = SortedNameMap[tuple[SkillRow, ...]]()  # by folder
        self.rows_by_name = SortedNameMap[SkillRow]()
        self.loadable = SortedNameMap[SkillRow]()
        self.contents = NO_CONTENTS

    def with_changes(self, gone: Sequence[SkillRow], present: Sequence[SkillRow], revision: int) -> LayerRowIndex:
        """Return the index with these rows removed and those added; the rest is shared, not copied."""
        left, found = {row.id for row in gone}, defaultdict[str, list[SkillRow]](list)
        # Sorted once here, so the maps built from it need no sorting.
        for row in sorted(present, key=lambda row: row.name):
            found[row.name].append(row)
        names = found.keys() | {row.name for row in gone}
        for name in names if self._spellings else ():
            found[name] += [row for row in self._spellings.get(name, ()) if row.id not in left]
        spellings = {name: tuple(sorted(rows, key=lambda row: row.folder)) for name, rows in found.items() if rows}
        taken = {name: rows[0] for name, rows in spellings.items()}
        summaries = {name: row.summary for name, row in taken.items() if row.summary is not None}
        made, before = LayerRowIndex(self._layer), self.contents
        made._spellings = self._spellings.with_changes(names, spellings)
        made.rows_by_name = self.rows_by_name.with_changes(names, taken)
        made.loadable = self.loadable.with_changes(names, {name: taken[name] for name in summaries})
        made.contents = LayerContents(
            revision=revision,
            summaries=before.summaries.with_changes(names, summaries),
            broken=before.broken.with_changes(names, self._list_broken_skills_by_name(spellings)),
            hashes=before.hashes.with_changes(names, {name: row.tree_hash for name, row in taken.items()}),
            diagnostics=before.diagnostics.with_changes(
                names, {name: row.diagnostics for name, row in taken.items() if row.diagnostics}
            ),
            changes=before.changes.append_change(before.revision, names) if before.revision else before.changes,
        )
        return made

    def _list_broken_skills_by_name(
        self, spellings: Mapping[str, Sequence[SkillRow]]
    ) -> dict[str, tuple[BrokenSkill, ...]]:
        broken = defaultdict[str, tuple[BrokenSkill, ...]](tuple)
        for name, rows in spellings.items():
            for row in rows:
                if row is not rows[0] or row.summary is None:
                    found = (
                        row.diagnostics
                        if row is rows[0]
                        else (*row.diagnostics, _build_spelling_conflict_diagnostic(row, rows[0]))
                    )
                    broken[name] += (BrokenSkill(name=name, folder=row.folder, layer=self._layer, diagnostics=found),)
        return broken


def _build_spelling_conflict_diagnostic(row: SkillRow, first: SkillRow) -> Diagnostic:
    return Diagnostic(
        file=row.folder,
        message=f"'{row.folder}' spells the same name as '{first.folder}', which is loaded.",
        hint="Rename or remove one of the two directories.",
        severity=Severity.ERROR,
    )
