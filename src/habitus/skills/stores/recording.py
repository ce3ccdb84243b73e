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
from habitus.files import Tree, is_same, tree_hash
from habitus.skills import names, trees
from habitus.skills.model import Actor, Author, Diagnostic, Severity
from habitus.skills.stores import records
from habitus.skills.stores.base import NO_FACTS, Facts, Found, Shelf, Write
from habitus.skills.stores.ledger import Entry, Ledger, Row

log = logging.getLogger(__name__)

_CHANGED = Author(actor=Actor.DISK, reason="changed on disk")
_FOUND = replace(_CHANGED, reason="found on disk")
_REMOVED = replace(_CHANGED, reason="removed on disk")
_SWITCHED = replace(_CHANGED, reason="switched on disk")

Inspect = Callable[[Tree], Sequence[str]]  # the risks of files that were put there by hand
Plan = Mapping[str, Any]
# Numbers are reused after a record is deleted, so the plan is part of the identity.
Intent = tuple[int, Plan]


class Recorder:
    """Records changes of the files, and applies planned changes to them."""

    def __init__(self, shelf: Shelf, ledger: Ledger, clock: Callable[[], datetime], inspect: Inspect) -> None:
        self._shelf = shelf
        self._ledger = ledger
        self._clock = clock
        self._inspect = inspect

    # What lies on the shelf

    def notice(self, connection: sa.Connection, folders: Sequence[str]) -> Mapping[str, Found]:
        """Read these folders and store what differs from the known rows."""
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
            entry = self._entry(folder, found, found.facts)
            if row is None:
                new.append((None, entry))
            elif row.tree_hash != tree_hash(entry.tree) or row.diagnostics != entry.diagnostics:
                changed.append((row, entry))
            elif row.stamp != entry.stamp:
                stamps[row.id] = entry.stamp
            if row is not None and found.facts.enabled not in (None, row.enabled):
                self._ledger.enable(connection, row.id, not row.enabled, _SWITCHED, self._clock())
        self._ledger.put(connection, changed, _CHANGED, self._clock())
        self._ledger.put(connection, new, _FOUND, self._clock())
        self._ledger.restamp(connection, stamps)
        return there

    def settle(self, connection: sa.Connection, folders: Sequence[str]) -> None:
        """Write recorded facts, such as versions, back to backends that store them."""
        rows = self._ledger.rows(connection, folders) if self._shelf.keeps_facts else {}
        if not rows:
            return
        stamps = self._shelf.record({folder: _facts(row) for folder, row in rows.items()})
        self._ledger.restamp(
            connection, {row.id: stamps[folder] for folder, row in rows.items() if stamps[folder] != row.stamp}
        )

    def _entry(self, folder: str, found: Found, facts: Facts = NO_FACTS) -> Entry:
        """Parse the content of a folder for storing."""
        parsed = trees.parse(folder, found.tree)
        skill = parsed.skill if found.problem is None else None
        risks = [
            Diagnostic(file=folder, what=f"{risk}.", hint="Read it before you use it.", severity=Severity.RISK)
            for risk in self._inspect(found.tree)
        ]
        return Entry(
            folder=folder,
            name=skill.name if skill is not None else _name_of(folder),
            tree=found.tree,
            stamp=found.stamp,
            summary=None if skill is None else records.without_body(skill, stages=trees.stages(found.tree)),
            diagnostics=(*parsed.diagnostics, *risks) if found.problem is None else (found.problem,),
            facts=facts,
        )

    # Intents written down, each to be carried out after the transaction is committed

    def write(
        self, connection: sa.Connection, writes: Sequence[Write], author: Author, facts: Mapping[str, Facts]
    ) -> Intent:
        """Store one write-ahead record for these writes, with facts about new skills."""
        everything = (tree for each in writes for tree in (each.before, each.tree))
        # The old contents are stored too: rolling back needs them.
        self._ledger.keep(connection, (file for tree in everything for file in tree.values()))
        packed = [
            {
                "folder": each.folder,
                "before": records.pack_tree(each.before),
                "tree": records.pack_tree(each.tree),
                "facts": _pack(facts.get(each.folder, NO_FACTS)),
            }
            for each in writes
        ]
        return self._intend(connection, "write_many", "", author, {"writes": packed})

    def remove(self, connection: sa.Connection, row: Row, author: Author) -> Intent:
        """Store a write-ahead record for archiving a skill."""
        timestamp = self._clock().isoformat()[:19].replace(":", "")
        archived_as = f"{names.slugify(self._ledger.layer)}/{row.folder}-{row.id}-{timestamp}"
        return self._intend(connection, "remove", row.folder, author, {"id": row.id, "archived_as": archived_as})

    def restore(self, connection: sa.Connection, identity: int, folder: str, author: Author) -> Intent:
        """Store a write-ahead record for restoring an archived skill."""
        return self._intend(connection, "restore", folder, author, {"id": identity})

    def _intend(self, connection: sa.Connection, action: str, folder: str, author: Author, more: Plan) -> Intent:
        plan = {"action": action, "folder": folder, "author": records.pack_author(author), **more}
        plan["now"] = self._clock().isoformat()
        return self._ledger.intend(connection, plan), plan

    # Intents carried out

    def perform(self, connection: sa.Connection, intent: Intent, at_hand: Mapping[str, Tree]) -> Mapping[str, int]:
        """Apply a write-ahead record unless another process already has; return the version of each folder written.

        `known_trees` holds folder contents that the caller still has; the others are loaded from the database.
        """
        if not self._waits(connection, intent):
            return {}
        number, plan = intent
        made = self._redo(connection, plan, at_hand)
        self._ledger.finish_intent(connection, number)
        return made

    def _waits(self, connection: sa.Connection, intent: Intent) -> bool:
        """Whether this very plan is still pending; another one may have its number by now."""
        number, plan = intent
        return dict(self._ledger.list_intents(connection)).get(number) == plan

    def recover(self, connection: sa.Connection) -> None:
        """Complete the writes of killed processes."""
        pending = self._ledger.list_intents(connection)
        if pending:
            self._shelf.tidy()
        for intent, plan in pending:
            log.info("completing an interrupted %s of '%s'", plan["action"], plan["folder"])
            self._redo(connection, plan, {})
            self._ledger.finish_intent(connection, intent)

    def abandon(self, connection: sa.Connection, intent: Intent) -> bool:
        """Roll back a failed change; False if it was applied after all."""
        number, plan = intent
        if not self._waits(connection, intent):
            return False
        for write in _writes(plan):
            self._undo_write(connection, write)
        if plan["action"] == "remove":
            self._shelf.bring_back(plan["archived_as"], plan["folder"])
        elif plan["action"] == "restore":
            archived = {item.id: where for item, where in self._ledger.list_archived(connection)}
            self._shelf.put_away(plan["folder"], archived.get(plan["id"]) or _abandoned_path(plan["folder"]))
        self._ledger.finish_intent(connection, number)
        return True

    def _redo(self, connection: sa.Connection, plan: Plan, at_hand: Mapping[str, Tree]) -> Mapping[str, int]:
        author, now = records.unpack_author(plan["author"]), datetime.fromisoformat(plan["now"])
        match plan["action"]:
            # "write" is the format of older releases, whose records may still be pending.
            case "write" | "write_many":
                return self._redo_writes(connection, _writes(plan), at_hand, author, now)
            case "remove":
                self._shelf.put_away(plan["folder"], plan["archived_as"])
                self._ledger.archive(connection, plan["id"], plan["archived_as"], author, now)
            case "restore":
                self._redo_restore(connection, plan["id"], plan["folder"], author, now)
            case unknown:
                raise StorageFailed(f"An unfinished '{unknown}' waits in the database.", hint="Upgrade Habitus.")
        return {}

    def _redo_writes(
        self,
        connection: sa.Connection,
        plans: Sequence[Plan],
        at_hand: Mapping[str, Tree],
        author: Author,
        now: datetime,
    ) -> Mapping[str, int]:
        afters = {**at_hand, **self._read_back(connection, [plan for plan in plans if plan["folder"] not in at_hand])}
        writes = [
            Write(folder=plan["folder"], tree=afters[plan["folder"]], before=records.unpack_tree(plan["before"]))
            for plan in plans
        ]
        folders = [each.folder for each in writes]
        there = self._shelf.read_many(folders, afters)
        strange = [each.folder for each in writes if each.folder in there and not _is_between(there[each.folder], each)]
        if strange:
            # Edited by hand at this very moment: store that as a version before overwriting it.
            self.notice(connection, strange)
        self._shelf.write_many(writes)
        known, written = self._ledger.rows(connection, folders), self._shelf.read_many(folders, afters)
        put: list[tuple[Row | None, Entry]] = []
        for plan in plans:
            folder = plan["folder"]
            if folder in written:
                facts = NO_FACTS if folder in known else _unpack(plan.get("facts", _pack(NO_FACTS)))
                put.append((known.get(folder), self._entry(folder, written[folder], facts)))
        made = self._ledger.put(connection, put, author, now)
        self.settle(connection, folders)
        return made

    def _read_back(self, connection: sa.Connection, plans: Sequence[Plan]) -> dict[str, Tree]:
        wanted = {plan["folder"]: records.unpack_tree(plan["tree"]) for plan in plans}
        contents = self._ledger.contents(connection, {f.sha256: f for tree in wanted.values() for f in tree.values()})
        return {
            folder: {path: replace(file, content=contents[file.sha256].content) for path, file in tree.items()}
            for folder, tree in wanted.items()
        }

    def _redo_restore(
        self, connection: sa.Connection, identity: int, folder: str, author: Author, now: datetime
    ) -> None:
        archived_as = {item.id: where for item, where in self._ledger.list_archived(connection)}.get(identity)
        # The archived folder may be gone; the history still has the files.
        if archived_as is None or not self._shelf.bring_back(archived_as, folder):
            newest = max(version.number for version in self._ledger.history(connection, identity))
            tree = self._ledger.tree(connection, identity, newest) or {}
            self._shelf.write_many([Write(folder=folder, tree=tree, before={})])
        self._ledger.unarchive(connection, identity, folder, author, now)
        found, row = self._shelf.read(folder), self._ledger.row(connection, folder)
        if found is not None and row is not None:
            self._ledger.put(connection, [(row, self._entry(folder, found))], _CHANGED, self._clock())
            self.settle(connection, [folder])

    def _undo_write(self, connection: sa.Connection, plan: Plan) -> None:
        folder, before = plan["folder"], self._ledger.contents(connection, records.unpack_tree(plan["before"]))
        found = self._shelf.read(folder)
        if found is not None and not before:
            self._shelf.put_away(folder, _abandoned_path(folder))
        elif found is not None and not is_same(found.tree, before):
            self._shelf.write_many([Write(folder=folder, tree=before, before=records.unpack_tree(plan["tree"]))])
        self._shelf.tidy()


def _abandoned_path(folder: str) -> str:
    return f"abandoned/{folder}-{secrets.token_hex(4)}"


def pending(error: StorageFailed, plan: Plan) -> StorageFailed:
    """Return the error for a change that could be neither applied nor rolled back, and will be applied later."""
    folders = ", ".join(f"'{write['folder']}'" for write in _writes(plan)[:3] or [plan])
    why = error.message.rstrip(".").removesuffix("; nothing was changed")
    what = f"The change of {folders} is written down and waits, for it can be neither made nor taken back now: {why}."
    return type(error)(what, hint="The next change or start makes it when it can; undo it after that.")


def _writes(plan: Plan) -> Sequence[Plan]:
    """Return the writes of a plan; older releases stored a single write without a list."""
    writes: Sequence[Plan] = plan.get("writes", [plan] if plan["action"] == "write" else [])
    return writes


def _is_between(found: Found, write: Write) -> bool:
    """Whether every file is either in its old or its new state, so no other program has touched them."""
    return all(
        file.sha256 in {tree[path].sha256 for tree in (write.before, write.tree) if path in tree}
        for path, file in found.tree.items()
    )


def _facts(row: Row) -> Facts:
    return Facts(version=row.version, enabled=row.enabled, created_on=row.created_on, modified_on=row.modified_on)


def _pack(facts: Facts) -> list[Any]:
    dates = (facts.created_on, facts.modified_on)
    return [facts.version, *(None if date is None else date.isoformat() for date in dates)]


def _unpack(packed: Sequence[Any]) -> Facts:
    version, created, modified = packed
    return Facts(
        version=version,
        created_on=None if created is None else datetime.fromisoformat(created),
        modified_on=None if modified is None else datetime.fromisoformat(modified),
    )


def _name_of(folder: str) -> str:
    name = names.canonical(folder)
    return name if names.is_legal(name) else names.slugify(folder)
