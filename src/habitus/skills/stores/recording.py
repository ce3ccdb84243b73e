"""Keeps files and database in step, and makes changes survive a crash.

A change is stored as a write-ahead record, applied to the files, then recorded. Before the record is committed the
old state holds; afterwards the new one, because the next process that takes the write lock completes it. Applying
a record twice is harmless. Every method here runs in a transaction with that lock.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from habitus.errors import StorageFailed
from habitus.files import Tree, compute_tree_hash, has_same_files
from habitus.skills import names, trees
from habitus.skills.model import ActorKind, Author, Diagnostic, Severity
from habitus.skills.stores import records
from habitus.skills.stores.base import NO_FACTS, BackendSkillFacts, FileBackend, FolderContents, FolderWrite
from habitus.skills.stores.layer_database import LayerDatabase, ScannedFolder, SkillRow

log = logging.getLogger(__name__)

_CHANGED_ON_DISK = Author(actor=ActorKind.DISK, reason="changed on disk")
_FOUND_ON_DISK = replace(_CHANGED_ON_DISK, reason="found on disk")
_REMOVED_ON_DISK = replace(_CHANGED_ON_DISK, reason="removed on disk")
_SWITCHED_ON_DISK = replace(_CHANGED_ON_DISK, reason="switched on disk")

RiskInspector = Callable[[Tree], Sequence[str]]  # the risks of files that were put there by hand
WritePlan = Mapping[str, Any]
# Numbers are reused after a record is deleted, so the plan is part of the identity.
WalRecord = tuple[int, WritePlan]


class ChangeRecorder:
    """Records changes of the files, and applies planned changes to them."""

    def __init__(
        self, backend: FileBackend, database: LayerDatabase, clock: Callable[[], datetime], inspect: RiskInspector
    ) -> None:
        self._backend = backend
        self._db = database
        self._clock = clock
        self._inspect = inspect

    # What lies on the shelf

    def read_folders_and_record_changes(
        self, conn: sa.Connection, folders: Sequence[str]
    ) -> Mapping[str, FolderContents]:
        """Read these folders and store what differs from the known rows."""
        new: list[tuple[None, ScannedFolder]] = []
        changed: list[tuple[SkillRow, ScannedFolder]] = []
        stamps: dict[int, str] = {}
        known, there = self._db.read_rows(conn, folders), self._backend.read_folders(folders, {})
        for folder in folders:
            row, found = known.get(folder), there.get(folder)
            if found is None:
                if row is not None:
                    self._db.archive_skill(conn, row.id, None, _REMOVED_ON_DISK, self._clock())
                continue
            entry = self._parse_folder_contents_for_storing(folder, found, found.facts)
            if row is None:
                new.append((None, entry))
            elif row.tree_hash != compute_tree_hash(entry.tree) or row.diagnostics != entry.diagnostics:
                changed.append((row, entry))
            elif row.stamp != entry.stamp:
                stamps[row.id] = entry.stamp
            if row is not None and found.facts.enabled not in (None, row.enabled):
                self._db.set_enabled(conn, row.id, not row.enabled, _SWITCHED_ON_DISK, self._clock())
        self._db.save_folders(conn, changed, _CHANGED_ON_DISK, self._clock())
        self._db.save_folders(conn, new, _FOUND_ON_DISK, self._clock())
        self._db.update_stamps(conn, stamps)
        return there

    def write_back_versions_and_dates(self, conn: sa.Connection, folders: Sequence[str]) -> None:
        """Write recorded facts, such as versions, back to backends that store them."""
        rows = self._db.read_rows(conn, folders) if self._backend.keeps_facts else {}
        if not rows:
            return
        new = self._backend.store_versions_and_dates({folder: _get_row_facts(row) for folder, row in rows.items()})
        self._db.update_stamps(conn, {row.id: new[folder] for folder, row in rows.items() if new[folder] != row.stamp})

    def _parse_folder_contents_for_storing(
        self, folder: str, found: FolderContents, facts: BackendSkillFacts = NO_FACTS
    ) -> ScannedFolder:
        """Parse the content of a folder for storing."""
        parsed = trees.parse_skill_tree(folder, found.tree)
        skill = parsed.skill if found.problem is None else None
        risks = [
            Diagnostic(file=folder, message=f"{risk}.", hint="Read it before you use it.", severity=Severity.RISK)
            for risk in self._inspect(found.tree)
        ]
        return ScannedFolder(
            folder=folder,
            name=skill.name if skill is not None else _make_skill_name_from_folder(folder),
            tree=found.tree,
            stamp=found.stamp,
            summary=None if skill is None else records.to_summary(skill, stages=trees.detect_stages(found.tree)),
            diagnostics=(*parsed.diagnostics, *risks) if found.problem is None else (found.problem,),
            facts=facts,
        )

    # Intents written down, each to be carried out after the transaction is committed

    def record_planned_writes(
        self,
        conn: sa.Connection,
        writes: Sequence[FolderWrite],
        author: Author,
        facts: Mapping[str, BackendSkillFacts],
    ) -> WalRecord:
        """Store one write-ahead record for these writes, with facts about new skills."""
        everything = (tree for each in writes for tree in (each.before, each.tree))
        # The old contents are stored too: rolling back needs them.
        self._db.store_contents(conn, (file for tree in everything for file in tree.values()))
        packed = [
            {
                "folder": each.folder,
                "before": records.pack_tree(each.before),
                "tree": records.pack_tree(each.tree),
                "facts": _pack_facts(facts.get(each.folder, NO_FACTS)),
            }
            for each in writes
        ]
        return self._add_write_ahead_record(conn, "write_many", "", author, {"writes": packed})

    def record_planned_removal(self, conn: sa.Connection, row: SkillRow, author: Author) -> WalRecord:
        """Store a write-ahead record for archiving a skill."""
        timestamp = self._clock().isoformat()[:19].replace(":", "")
        archived_as = f"{names.slugify(self._db.layer)}/{row.folder}-{row.id}-{timestamp}"
        return self._add_write_ahead_record(
            conn, "remove", row.folder, author, {"id": row.id, "archived_as": archived_as}
        )

    def record_planned_restore(self, conn: sa.Connection, identity: int, folder: str, author: Author) -> WalRecord:
        """Store a write-ahead record for restoring an archived skill."""
        return self._add_write_ahead_record(conn, "restore", folder, author, {"id": identity})

    def _add_write_ahead_record(
        self, conn: sa.Connection, action: str, folder: str, author: Author, more: WritePlan
    ) -> WalRecord:
        plan = {"action": action, "folder": folder, "author": records.pack_author(author), **more}
        plan["now"] = self._clock().isoformat()
        return self._db.add_write_ahead_record(conn, plan), plan

    # Intents carried out

    def apply_write_ahead_record(
        self, conn: sa.Connection, record: WalRecord, known: Mapping[str, Tree]
    ) -> Mapping[str, int]:
        """Apply a write-ahead record unless another process already has; return the version of each folder written.

        `known` holds folder contents that the caller still has; the others are loaded from the database.
        """
        if not self._is_pending(conn, record):
            return {}
        number, plan = record
        made = self._apply_planned_change(conn, plan, known)
        self._db.delete_write_ahead_record(conn, number)
        return made

    def _is_pending(self, conn: sa.Connection, record: WalRecord) -> bool:
        """Whether this very plan is still pending; another one may have its number by now."""
        number, plan = record
        return dict(self._db.list_write_ahead_records(conn)).get(number) == plan

    def complete_pending_writes(self, conn: sa.Connection) -> None:
        """Complete the writes of killed processes."""
        pending = self._db.list_write_ahead_records(conn)
        if pending:
            self._backend.remove_leftovers_of_interrupted_writes()
        for intent, plan in pending:
            log.info("completing an interrupted %s of '%s'", plan["action"], plan["folder"])
            self._apply_planned_change(conn, plan, {})
            self._db.delete_write_ahead_record(conn, intent)

    def roll_back(self, conn: sa.Connection, record: WalRecord, *, is_started: bool = True) -> bool:
        """Roll back a failed change; False if it was applied after all. One not started has left no files behind."""
        number, plan = record
        if not self._is_pending(conn, record):
            return False
        if is_started:
            self._revert_planned_change(conn, plan)
        self._db.delete_write_ahead_record(conn, number)
        return True

    def _revert_planned_change(self, conn: sa.Connection, plan: WritePlan) -> None:
        for write in plan.get("writes", ()):
            self._revert_write(conn, write)
        if plan["action"] == "remove":
            self._backend.unarchive_folder(plan["archived_as"], plan["folder"])
        elif plan["action"] == "restore":
            archived = {item.id: where for item, where in self._db.list_archived(conn)}
            where = archived.get(plan["id"]) or _make_abandoned_folder_path(plan["folder"])
            self._backend.archive_folder(plan["folder"], where)

    def _apply_planned_change(
        self, conn: sa.Connection, plan: WritePlan, known_trees: Mapping[str, Tree]
    ) -> Mapping[str, int]:
        author, now = records.unpack_author(plan["author"]), datetime.fromisoformat(plan["now"])
        match plan["action"]:
            case "write_many":
                return self._apply_writes(conn, plan["writes"], known_trees, author, now)
            case "remove":
                self._backend.archive_folder(plan["folder"], plan["archived_as"])
                self._db.archive_skill(conn, plan["id"], plan["archived_as"], author, now)
            case "restore":
                self._apply_restore(conn, plan["id"], plan["folder"], author, now)
            case unknown:
                raise StorageFailed(f"An unfinished '{unknown}' is pending in the database.", hint="Upgrade Habitus.")
        return {}

    def _apply_writes(
        self, conn: sa.Connection, plans: Sequence[WritePlan], given: Mapping[str, Tree], author: Author, now: datetime
    ) -> Mapping[str, int]:
        afters = {**given, **self._load_planned_trees(conn, [plan for plan in plans if plan["folder"] not in given])}
        writes = [
            FolderWrite(folder=plan["folder"], tree=afters[plan["folder"]], before=records.unpack_tree(plan["before"]))
            for plan in plans
        ]
        folders = [one.folder for one in writes]
        there = self._backend.read_folders(folders, afters)
        strange = [
            one.folder for one in writes if one.folder in there and not _is_untouched_by_others(there[one.folder], one)
        ]
        if strange:
            # Edited by hand at this very moment: store that as a version before overwriting it.
            self.read_folders_and_record_changes(conn, strange)
        self._backend.write_folders(writes)
        known, written = self._db.read_rows(conn, folders), self._backend.read_folders(folders, afters)
        put: list[tuple[SkillRow | None, ScannedFolder]] = []
        for plan in plans:
            folder = plan["folder"]
            if folder in written:
                facts = NO_FACTS if folder in known else _unpack_facts(plan["facts"])
                put.append((known.get(folder), self._parse_folder_contents_for_storing(folder, written[folder], facts)))
        made = self._db.save_folders(conn, put, author, now)
        self.write_back_versions_and_dates(conn, folders)
        return made

    def _load_planned_trees(self, conn: sa.Connection, plans: Sequence[WritePlan]) -> dict[str, Tree]:
        wanted = {plan["folder"]: records.unpack_tree(plan["tree"]) for plan in plans}
        contents = self._db.load_contents(conn, {f.sha256: f for tree in wanted.values() for f in tree.values()})
        return {
            folder: {path: replace(file, content=contents[file.sha256].content) for path, file in tree.items()}
            for folder, tree in wanted.items()
        }

    def _apply_restore(self, conn: sa.Connection, identity: int, folder: str, author: Author, now: datetime) -> None:
        archived_as = {item.id: where for item, where in self._db.list_archived(conn)}.get(identity)
        # The archived folder may be gone; the history still has the files.
        if archived_as is None or not self._backend.unarchive_folder(archived_as, folder):
            newest = max(version.number for version in self._db.list_versions(conn, identity))
            tree = self._db.load_version_tree(conn, identity, newest) or {}
            self._backend.write_folders([FolderWrite(folder=folder, tree=tree, before={})])
        self._db.unarchive_skill(conn, identity, folder, author, now)
        found, row = self._backend.read_folder(folder), self._db.read_row(conn, folder)
        if found is not None and row is not None:
            self._db.save_folders(
                conn, [(row, self._parse_folder_contents_for_storing(folder, found))], _CHANGED_ON_DISK, self._clock()
            )
            self.write_back_versions_and_dates(conn, [folder])

    def _revert_write(self, conn: sa.Connection, plan: WritePlan) -> None:
        name, old = plan["folder"], self._db.load_contents(conn, records.unpack_tree(plan["before"]))
        found = self._backend.read_folder(name)
        if found is not None and not old:
            self._backend.archive_folder(name, _make_abandoned_folder_path(name))
        elif found is not None and not has_same_files(found.tree, old):
            self._backend.write_folders([FolderWrite(folder=name, tree=old, before=records.unpack_tree(plan["tree"]))])
        self._backend.remove_leftovers_of_interrupted_writes()


def _make_abandoned_folder_path(folder: str) -> str:
    return f"abandoned/{folder}-{secrets.token_hex(4)}"


def make_pending_change_error(error: StorageFailed, plan: WritePlan) -> StorageFailed:
    """Return the error for a change that could be neither applied nor rolled back, and will be applied later."""
    folders = ", ".join(f"'{write['folder']}'" for write in plan.get("writes", [plan])[:3])
    why = error.message.rstrip(".").removesuffix("; nothing was changed")
    what = f"The change of {folders} is recorded but can be neither applied nor undone now: {why}."
    return type(error)(what, hint="The next change or start makes it when it can; undo it after that.")


def _is_untouched_by_others(found: FolderContents, write: FolderWrite) -> bool:
    """Whether every file is either in its old or its new state, so no other program has touched them."""
    return all(
        file.sha256 in {tree[path].sha256 for tree in (write.before, write.tree) if path in tree}
        for path, file in found.tree.items()
    )


def _get_row_facts(row: SkillRow) -> BackendSkillFacts:
    return BackendSkillFacts(
        version=row.version, enabled=row.enabled, created_on=row.created_on, modified_on=row.modified_on
    )


def _pack_facts(facts: BackendSkillFacts) -> list[Any]:
    dates = (facts.created_on, facts.modified_on)
    return [facts.version, *(None if date is None else date.isoformat() for date in dates)]


def _unpack_facts(packed: Sequence[Any]) -> BackendSkillFacts:
    version, created, modified = packed
    return BackendSkillFacts(
        version=version,
        created_on=None if created is None else datetime.fromisoformat(created),
        modified_on=None if modified is None else datetime.fromisoformat(modified),
    )


def _make_skill_name_from_folder(folder: str) -> str:
    name = names.canonicalize_name(folder)
    return name if names.is_legal_name(name) else names.slugify(folder)
