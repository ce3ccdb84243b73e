"""Changes that survive a crash: written down as an intent, carried out on the shelf, then recorded.

Until the intent is committed the old state holds; from then on the new one does, because whoever takes the write
lock next completes what a killed process left. Carrying out an intent twice does no harm.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.errors import StorageFailed
from habitus.files import Tree, is_same
from habitus.skills import names, records
from habitus.skills.ledger import Entry, Ledger, Row
from habitus.skills.model import Author
from habitus.skills.stores.base import NO_FACTS, Facts, Shelf, Write
from habitus.skills.stores.noticing import ON_DISK, Noticing

log = logging.getLogger(__name__)

Plan = Mapping[str, Any]


class Intents:
    def __init__(
        self, engine: sa.Engine, shelf: Shelf, ledger: Ledger, noticing: Noticing, clock: Callable[[], datetime]
    ) -> None:
        self._engine = engine
        self._shelf = shelf
        self._ledger = ledger
        self._noticing = noticing
        self._clock = clock

    # Written down, inside the caller's transaction

    def write(self, connection: sa.Connection, folder: str, before: Tree, after: Tree, author: Author) -> int:
        self._ledger.keep(connection, (*before.values(), *after.values()))
        plan = self._plan("write", folder, author)
        plan |= {"tree": records.pack_tree(after), "before": records.pack_tree(before)}
        return self._ledger.intend(connection, plan)

    def write_many(
        self,
        connection: sa.Connection,
        writes: Sequence[Write],
        author: Author,
        facts: Mapping[str, Facts],
    ) -> int:
        """Many skills as one intent, with what is known of new ones from elsewhere."""
        trees = (tree for each in writes for tree in (each.before, each.tree))
        self._ledger.keep(connection, (file for tree in trees for file in tree.values()))
        plan = self._plan("write_many", "", author)
        plan["writes"] = [
            {
                "folder": each.folder,
                "before": records.pack_tree(each.before),
                "tree": records.pack_tree(each.tree),
                "facts": _packed(facts.get(each.folder, NO_FACTS)),
            }
            for each in writes
        ]
        return self._ledger.intend(connection, plan)

    def remove(self, connection: sa.Connection, row: Row, author: Author) -> int:
        plan = self._plan("remove", row.folder, author)
        moment = plan["now"][:19].replace(":", "")
        plan |= {"id": row.id, "archived_as": f"{names.slugify(self._ledger.layer)}/{row.folder}-{row.id}-{moment}"}
        return self._ledger.intend(connection, plan)

    def restore(self, connection: sa.Connection, identity: int, folder: str, author: Author) -> int:
        return self._ledger.intend(connection, self._plan("restore", folder, author) | {"id": identity})

    def _plan(self, action: str, folder: str, author: Author) -> dict[str, Any]:
        now = self._clock().isoformat()
        return {"action": action, "folder": folder, "author": records.pack_author(author), "now": now}

    # Carried out

    def perform(self, intent: int, at_hand: Mapping[str, Tree] | None = None) -> None:
        """Carry out an intent, unless another process has done it for us; undo it when the disk refuses.

        `at_hand` are the files of its folders where the caller has them still; the others are read back.
        """
        try:
            with sql.writing(self._engine, lock=self._ledger.key) as connection:
                plan = dict(self._ledger.intended(connection)).get(intent)
                if plan is not None:
                    self._redo(connection, plan, at_hand or {})
                    self._ledger.done(connection, intent)
        except StorageFailed:
            self._abandon(intent)
            raise

    def recover(self, connection: sa.Connection) -> None:
        """Complete what killed processes left undone. The caller holds the write lock."""
        pending = self._ledger.intended(connection)
        if pending:
            self._shelf.tidy()
        for intent, plan in pending:
            log.info("completing an interrupted %s of '%s'", plan["action"], plan["folder"])
            self._redo(connection, plan, {})
            self._ledger.done(connection, intent)

    def _redo(self, connection: sa.Connection, plan: Plan, at_hand: Mapping[str, Tree]) -> None:
        match plan["action"]:
            case "write":
                self._redo_write(connection, plan)
            case "write_many":
                self._redo_write_many(connection, plan, at_hand)
            case "remove":
                author, now = records.unpack_author(plan["author"]), datetime.fromisoformat(plan["now"])
                self._shelf.put_away(plan["folder"], plan["archived_as"])
                self._ledger.archive(connection, plan["id"], plan["archived_as"], author, now)
            case "restore":
                self._redo_restore(connection, plan)
            case unknown:
                raise StorageFailed(f"An unfinished '{unknown}' waits in the database.", mend="Upgrade Habitus.")

    def _redo_write(self, connection: sa.Connection, plan: Plan) -> None:
        folder, author = plan["folder"], records.unpack_author(plan["author"])
        before = records.unpack_tree(plan["before"])
        after = self._ledger.contents(connection, records.unpack_tree(plan["tree"]))
        found = self._shelf.read(folder)
        if found is not None and not _is_between(found.tree, before, after):
            self._noticing.notice(connection, [folder])  # edited by hand this very moment: their version is kept
        self._shelf.write(folder, after, before)
        written = self._shelf.read(folder)
        if written is not None:
            row = self._ledger.row(connection, folder)
            now = datetime.fromisoformat(plan["now"])
            entry = replace(self._noticing.entry(folder, written), facts=NO_FACTS)
            self._ledger.put(connection, [(row, entry)], author, now)
            self._noticing.settle(connection, [folder])

    def _redo_write_many(self, connection: sa.Connection, plan: Plan, at_hand: Mapping[str, Tree]) -> None:
        folders = [write["folder"] for write in plan["writes"]]
        author, now = records.unpack_author(plan["author"]), datetime.fromisoformat(plan["now"])
        afters = {**at_hand, **self._read_back(connection, [w for w in plan["writes"] if w["folder"] not in at_hand])}
        befores = {write["folder"]: records.unpack_tree(write["before"]) for write in plan["writes"]}
        self._shelf.write_many(
            [Write(folder=folder, tree=afters[folder], before=before) for folder, before in befores.items()]
        )
        known, written = self._ledger.rows(connection, folders), self._shelf.read_many(folders, afters)
        put: list[tuple[Row | None, Entry]] = []
        for write in plan["writes"]:
            folder = write["folder"]
            if folder in written:
                facts = NO_FACTS if folder in known else _unpacked(write["facts"])
                put.append((known.get(folder), replace(self._noticing.entry(folder, written[folder]), facts=facts)))
        self._ledger.put(connection, put, author, now)
        self._noticing.settle(connection, folders)

    def _read_back(self, connection: sa.Connection, writes: Sequence[Plan]) -> dict[str, Tree]:
        wanted = {write["folder"]: records.unpack_tree(write["tree"]) for write in writes}
        contents = self._ledger.contents(connection, {f.sha256: f for tree in wanted.values() for f in tree.values()})
        return {
            folder: {path: replace(file, content=contents[file.sha256].content) for path, file in tree.items()}
            for folder, tree in wanted.items()
        }

    def _redo_restore(self, connection: sa.Connection, plan: Plan) -> None:
        identity, folder = plan["id"], plan["folder"]
        archived_as = {item.id: where for item, where in self._ledger.archived(connection)}.get(identity)
        if archived_as is None or not self._shelf.bring_back(archived_as, folder):
            newest = max(version.number for version in self._ledger.history(connection, identity))
            self._shelf.write(folder, self._ledger.tree(connection, identity, newest) or {}, {})
        author, now = records.unpack_author(plan["author"]), datetime.fromisoformat(plan["now"])
        self._ledger.unarchive(connection, identity, folder, author, now)
        found, row = self._shelf.read(folder), self._ledger.row(connection, folder)
        if found is not None and row is not None:
            entry = replace(self._noticing.entry(folder, found), facts=NO_FACTS)
            self._ledger.put(connection, [(row, entry)], ON_DISK, self._clock())
            self._noticing.settle(connection, [folder])

    def _abandon(self, intent: int) -> None:
        """Put back what a failed write had begun, so that nothing has changed."""
        try:
            with sql.writing(self._engine, lock=self._ledger.key) as connection:
                plan = dict(self._ledger.intended(connection)).get(intent)
                if plan is not None and plan["action"] in ("write", "write_many"):
                    for write in plan.get("writes", [plan]):
                        self._undo_write(connection, write)
                self._ledger.done(connection, intent)
        except StorageFailed:
            log.warning("an unfinished change waits; it is completed at the next start")

    def _undo_write(self, connection: sa.Connection, plan: Plan) -> None:
        before = self._ledger.contents(connection, records.unpack_tree(plan["before"]))
        found = self._shelf.read(plan["folder"])
        if found is not None and not before:
            self._shelf.put_away(plan["folder"], f"abandoned/{plan['folder']}-{secrets.token_hex(4)}")
        elif found is not None and not is_same(found.tree, before):
            self._shelf.write(plan["folder"], before, records.unpack_tree(plan["tree"]))
        self._shelf.tidy()


def _is_between(found: Tree, before: Tree, after: Tree) -> bool:
    """Whether every file is as it was before or as it shall be: nobody else has touched them."""
    return all(
        file.sha256 in {tree[path].sha256 for tree in (before, after) if path in tree} for path, file in found.items()
    )


def _packed(facts: Facts) -> list[Any]:
    dates = (facts.created_on, facts.modified_on)
    return [facts.version, *(None if date is None else date.isoformat() for date in dates)]


def _unpacked(packed: Sequence[Any]) -> Facts:
    version, created, modified = packed
    return Facts(
        version=version,
        created_on=None if created is None else datetime.fromisoformat(created),
        modified_on=None if modified is None else datetime.fromisoformat(modified),
    )
