"""The database of one layer's skills: rows, versions, blobs and write-ahead records.

Every function runs in a transaction held by the caller. Nothing here touches the layer's files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.files import Tree, TreeFile, drop_eval_files, is_eval_file
from habitus.files import compute_tree_hash as hash_of
from habitus.skills.model import (
    ArchivedSkill,
    Author,
    Diagnostic,
    LifecycleAction,
    LifecycleEvent,
    SkillSummary,
    SkillVersion,
)
from habitus.skills.stores import records
from habitus.skills.stores.base import NO_FACTS, BackendSkillFacts
from habitus.skills.stores.tables import blobs, lifecycle_events, pending_writes, sequences, skills, versions


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillRow:
    """The row of one present skill; `summary` is None if it is broken."""

    id: int
    folder: str
    name: str
    version: int
    tree_hash: str
    stamp: str
    summary: SkillSummary | None
    diagnostics: tuple[Diagnostic, ...]
    enabled: bool
    created_on: datetime
    modified_on: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class ScannedFolder:
    """A skill's directory as it was read, ready to be stored."""

    folder: str
    name: str
    tree: Tree
    stamp: str
    summary: SkillSummary | None
    diagnostics: tuple[Diagnostic, ...]
    facts: BackendSkillFacts = NO_FACTS


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerChanges:
    """The changes of a layer since a generation."""

    generation: int
    present: tuple[SkillRow, ...]
    gone: tuple[int, ...]  # ids


def read_newest_generation(engine: sa.Engine) -> int:
    """Return the number that grows with every change to any layer in a database."""
    with sql.read_transaction(engine) as conn:
        return conn.execute(_NEWEST_GENERATION_QUERY).scalar() or 0


def reserve_generations(conn: sa.Connection, count: int = 1) -> int:
    """Reserve `count` generations; return the last one."""
    return increment_sequence(conn, _GENERATION_SEQUENCE, count)


def increment_sequence(conn: sa.Connection, name: str, count: int = 1) -> int:
    """Increase a sequence; return its new value."""
    sql.insert_missing_rows(conn, sequences, [{"name": name, "value": 0}])
    mine = sequences.update().where(sequences.c.name == name)
    query = mine.values(value=sequences.c.value + count).returning(sequences.c.value)
    return int(conn.execute(query).scalar_one())


_GENERATION_SEQUENCE = "skill_generation"
_NEWEST_GENERATION_QUERY = sa.select(sequences.c.value).where(sequences.c.name == _GENERATION_SEQUENCE)
_IS_PRESENT = skills.c.archived_on.is_(None)
_COLUMNS = tuple(skills.c[field.name] for field in fields(SkillRow))
_SUMMARY_POSITION = _COLUMNS.index(skills.c.summary)


class LayerDatabase:
    """One layer's skills in the database. `key` identifies its rows, `layer` is its display name; `only` limits
    reading to one name.
    """

    def __init__(self, key: str, layer: str, only: str = "") -> None:
        self.key = key
        self.layer = layer
        which = skills.c.layer == key if not only else sa.and_(skills.c.layer == key, skills.c.name == only)
        changes = sa.select(*_COLUMNS, skills.c.generation, skills.c.archived_on).order_by(skills.c.generation)
        self._changes = changes.where(which, skills.c.generation > sa.bindparam("since"))

    # Rows

    def list_changes_since(self, conn: sa.Connection, generation: int) -> LayerChanges:
        """Return the rows changed since a generation."""
        # A first read needs no archived rows; a later one must hear that a skill was archived.
        query = self._changes if generation else self._changes.where(_IS_PRESENT)
        found = conn.execute(query, {"since": generation}).all()
        return LayerChanges(
            generation=found[-1].generation if found else generation,
            present=tuple(self._parse_rows(row[:-2] for row in found if row[-1] is None)),
            gone=tuple(row.id for row in found if row[-1] is not None),
        )

    def read_rows(self, conn: sa.Connection, folders: Sequence[str]) -> dict[str, SkillRow]:
        """Return the present rows of these folders, by folder."""
        query = sa.select(*_COLUMNS).where(skills.c.layer == self.key, skills.c.folder.in_(folders), _IS_PRESENT)
        return {row.folder: row for row in self._parse_rows(conn.execute(query))}

    def read_row(self, conn: sa.Connection, folder: str) -> SkillRow | None:
        """Return the present row of a folder, or None."""
        return self.read_rows(conn, [folder]).get(folder)

    def find_folders(self, conn: sa.Connection, names: Sequence[str]) -> dict[str, str]:
        """Return the folder that loads under each name: the first one if several spell it."""
        query = (
            sa.select(skills.c.name, sa.func.min(skills.c.folder).label("folder"))
            .where(skills.c.layer == self.key, skills.c.name.in_(names), _IS_PRESENT)
            .group_by(skills.c.name)
        )
        return {row.name: row.folder for row in conn.execute(query)}

    def _parse_rows(self, found: Iterable[Sequence[Any]]) -> Iterator[SkillRow]:
        """Parse rows of `_COLUMNS`."""
        kept = list(found)
        # One json.loads call for all rows: a call per row takes twice the time.
        texts = json.loads(f"[{','.join(row[_SUMMARY_POSITION] or 'null' for row in kept)}]")
        for row, values in zip(kept, texts, strict=True):
            id, folder, name, version, digest, stamp, _, diagnostics, enabled, created_on, modified_on = row
            summary = None
            if values is not None:
                summary = records.unpack_summary(
                    values,
                    name=name,
                    layer=self.layer,
                    version=version,
                    enabled=enabled,
                    created_on=created_on,
                    modified_on=modified_on,
                )
            yield SkillRow(
                id=id,
                folder=folder,
                name=name,
                version=version,
                tree_hash=digest,
                stamp=stamp,
                summary=summary,
                diagnostics=records.unpack_diagnostics(diagnostics),
                enabled=enabled,
                created_on=created_on,
                modified_on=modified_on,
            )

    def save_folders(
        self, conn: sa.Connection, found: Sequence[tuple[SkillRow | None, ScannedFolder]], author: Author, now: datetime
    ) -> dict[str, int]:
        """Store directories as they are now, each with its previous row; changed files make a new version.

        Return the version of each folder.
        """
        if not found:
            return {}
        numbered = enumerate(found, reserve_generations(conn, len(found)) - len(found) + 1)
        rows = [(row, entry, self._build_row(row, entry, now, generation)) for generation, (row, entry) in numbered]
        old = [values | {"the_id": row.id} for row, _, values in rows if row is not None]
        if old:
            conn.execute(skills.update().where(skills.c.id == sa.bindparam("the_id")), old)
        identities = self._insert_rows(conn, [values for row, _, values in rows if row is None])
        changed = [
            (identities[entry.folder] if row is None else row.id, entry, values)
            for row, entry, values in rows
            if row is None or row.version != values["version"]
        ]
        self.store_contents(conn, (file for _, entry, _ in changed for file in entry.tree.values()))
        packed = records.pack_author(author)
        made = [
            {
                "skill": identity,
                "number": values["version"],
                "tree": records.pack_tree(entry.tree),
                "tree_hash": values["tree_hash"],
                "author": packed,
                "made_on": now,
            }
            for identity, entry, values in changed
        ]
        if made:
            conn.execute(versions.insert(), made)
        self._keep_eval_files_in_newest_version(conn, ((row, entry, values["version"]) for row, entry, values in rows))
        return {entry.folder: values["version"] for _, entry, values in rows}

    def _keep_eval_files_in_newest_version(
        self, conn: sa.Connection, put: Iterable[tuple[SkillRow | None, ScannedFolder, int]]
    ) -> None:
        """Update the tasks and cases in place: they make no version, and only the newest version has them."""
        for row, entry, version in put:
            if row is None or not any(map(is_eval_file, entry.tree)):
                continue
            mine = (versions.c.skill == row.id, versions.c.number == row.version)
            tree: Tree = entry.tree
            if version == row.version:
                self.store_contents(conn, tree.values())
            else:
                packed = conn.execute(sa.select(versions.c.tree).where(*mine)).scalar_one()
                tree = drop_eval_files(records.unpack_tree(packed))
            conn.execute(versions.update().where(*mine).values(tree=records.pack_tree(tree)))

    def _build_row(self, row: SkillRow | None, entry: ScannedFolder, now: datetime, generation: int) -> dict[str, Any]:
        facts = entry.facts
        values = {
            "name": entry.name,
            "stamp": entry.stamp,
            "tree_hash": hash_of(entry.tree),
            "summary": None if entry.summary is None else records.pack_summary(entry.summary),
            "diagnostics": records.pack_diagnostics(entry.diagnostics),
            "generation": generation,
            "modified_on": facts.modified_on or now,
        }
        if row is None:
            own = {"layer": self.key, "folder": entry.folder, "created_on": facts.created_on or now}
            return values | own | {"version": facts.version or 1, "enabled": facts.enabled is not False}
        if row.tree_hash == values["tree_hash"]:
            # Same files, so the version and date stay; only stamp and diagnostics are new.
            return values | {"version": row.version, "modified_on": row.modified_on}
        return values | {"version": max(row.version + 1, facts.version)}

    def _insert_rows(self, conn: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """Insert new rows; return their ids by folder."""
        if not rows:
            return {}
        conn.execute(skills.insert(), rows)
        # Queried afterwards because SQLite would insert row by row to return the ids.
        mine = (skills.c.layer == self.key, skills.c.folder.in_([row["folder"] for row in rows]), _IS_PRESENT)
        return {row.folder: row.id for row in conn.execute(sa.select(skills.c.folder, skills.c.id).where(*mine))}

    def update_stamps(self, conn: sa.Connection, stamps: Mapping[int, str]) -> None:
        """Store new stamps for folders that were read and found unchanged."""
        if not stamps:
            return
        numbered = enumerate(stamps.items(), reserve_generations(conn, len(stamps)) - len(stamps) + 1)
        conn.execute(
            skills.update().where(skills.c.id == sa.bindparam("the_id")),
            [{"the_id": id, "stamp": stamp, "generation": generation} for generation, (id, stamp) in numbered],
        )

    def set_enabled(self, conn: sa.Connection, identity: int, enabled: bool, author: Author, now: datetime) -> None:
        """Enable or disable a skill and record who did."""
        action = LifecycleAction.ENABLED if enabled else LifecycleAction.DISABLED
        self._apply_lifecycle_action(conn, identity, action, author, now, enabled=enabled)

    def _apply_lifecycle_action(
        self, conn: sa.Connection, identity: int, action: LifecycleAction, author: Author, now: datetime, **changes: Any
    ) -> None:
        """Record a lifecycle event and change the columns that follow from it."""
        values = {"skill": identity, "action": action.value, "author": records.pack_author(author), "made_on": now}
        conn.execute(lifecycle_events.insert().values(values))
        changes["generation"] = reserve_generations(conn)
        conn.execute(skills.update().where(skills.c.id == identity).values(changes))

    # Blobs and versions

    def store_contents(self, conn: sa.Connection, files: Iterable[TreeFile]) -> None:
        """Store the contents of these files that are not stored yet."""
        contents = {file.sha256: file.content for file in files if file.content is not None}
        for sha256s in sql.split_batches(list(contents)):
            query = sa.select(blobs.c.sha256).where(blobs.c.sha256.in_(sha256s))
            for kept in conn.execute(query).scalars():
                del contents[kept]
        rows = [{"sha256": sha256, "packed": records.compress_content(content)} for sha256, content in contents.items()]
        sql.insert_missing_rows(conn, blobs, rows)

    def load_contents(self, conn: sa.Connection, tree: Tree) -> dict[str, TreeFile]:
        """Return the tree with its stored contents; raise `StorageFailed` if one is damaged."""
        wanted = list({file.sha256 for file in tree.values() if file.content is None})
        found: dict[str, bytes] = {}
        for sha256s in sql.split_batches(wanted):
            query = sa.select(blobs).where(blobs.c.sha256.in_(sha256s))
            found |= {
                row.sha256: records.require_intact(records.decompress_content(row.packed, row.sha256))
                for row in conn.execute(query)
            }
        return {
            path: file if file.content is not None else replace(file, content=found.get(file.sha256))
            for path, file in tree.items()
        }

    def list_versions(self, conn: sa.Connection, identity: int) -> list[SkillVersion]:
        """Return the versions of a skill, oldest first."""
        query = sa.select(versions).where(versions.c.skill == identity).order_by(versions.c.number)
        return [
            SkillVersion(
                number=row.number,
                author=records.unpack_author(row.author),
                made_on=row.made_on,
                tree_hash=row.tree_hash,
                paths=tuple(sorted(records.unpack_tree(row.tree))),
            )
            for row in conn.execute(query)
        ]

    def list_lifecycle_events(self, conn: sa.Connection, identity: int) -> list[LifecycleEvent]:
        """Return the lifecycle events of a skill, oldest first."""
        query = sa.select(lifecycle_events).where(lifecycle_events.c.skill == identity).order_by(lifecycle_events.c.id)
        return [
            LifecycleEvent(
                action=LifecycleAction(row.action), author=records.unpack_author(row.author), made_on=row.made_on
            )
            for row in conn.execute(query)
        ]

    def load_version_tree(self, conn: sa.Connection, identity: int, number: int) -> dict[str, TreeFile] | None:
        """Return the files of one version with their contents, or None if there is no such version."""
        mine = (versions.c.skill == identity, versions.c.number == number)
        row = conn.execute(sa.select(versions.c.tree, versions.c.tree_hash).where(*mine)).first()
        if row is None:
            return None
        tree = records.unpack_tree(row.tree)
        return self.load_contents(conn, records.require_intact(tree if hash_of(tree) == row.tree_hash else None))

    # Archive

    def archive_skill(
        self, conn: sa.Connection, identity: int, where: str | None, author: Author, now: datetime
    ) -> None:
        """Mark a skill as archived."""
        archived = {"archived_on": now, "archived_as": where, "archived_by": records.pack_author(author)}
        self._apply_lifecycle_action(conn, identity, LifecycleAction.REMOVED, author, now, **archived)

    def unarchive_skill(self, conn: sa.Connection, identity: int, folder: str, author: Author, now: datetime) -> None:
        """Mark an archived skill as present in a folder."""
        present = dict.fromkeys(("archived_on", "archived_as", "archived_by"))
        # An empty stamp makes the next check of the directory read the folder.
        self._apply_lifecycle_action(
            conn, identity, LifecycleAction.RESTORED, author, now, **present, folder=folder, stamp=""
        )

    def list_archived(self, conn: sa.Connection) -> list[tuple[ArchivedSkill, str | None]]:
        """Return the archived skills, newest first, each with its directory in the archive."""
        query = (
            sa.select(skills)
            .where(skills.c.layer == self.key, skills.c.archived_on.is_not(None))
            .order_by(skills.c.archived_on.desc(), skills.c.id.desc())
        )
        return [
            (
                ArchivedSkill(
                    id=row.id,
                    name=row.name,
                    layer=self.layer,
                    version=row.version,
                    archived_on=row.archived_on,
                    author=records.unpack_author(row.archived_by),
                    title=json.loads(row.summary).get("title", "") if row.summary else "",
                ),
                row.archived_as,
            )
            for row in conn.execute(query)
        ]

    # Intents

    def add_write_ahead_record(self, conn: sa.Connection, plan: Mapping[str, Any]) -> int:
        """Store a write-ahead record; return its id."""
        key = conn.execute(pending_writes.insert().values(layer=self.key, plan=json.dumps(plan))).inserted_primary_key
        assert key is not None
        return int(key[0])

    def list_write_ahead_records(self, conn: sa.Connection) -> list[tuple[int, dict[str, Any]]]:
        """Return the pending write-ahead records, oldest first."""
        query = sa.select(pending_writes).where(pending_writes.c.layer == self.key).order_by(pending_writes.c.id)
        return [(row.id, json.loads(row.plan)) for row in conn.execute(query)]

    def delete_write_ahead_record(self, conn: sa.Connection, intent: int) -> None:
        """Delete a write-ahead record that has been applied."""
        conn.execute(pending_writes.delete().where(pending_writes.c.id == intent))
