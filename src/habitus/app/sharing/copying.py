"""Copying a home's database into a shared one, or back: everything in it, with counts and checksums; and a
shared one as one SQLite file, every row of everybody's, and back.

The tables are those that both databases have, so a new one is never forgotten. A row and the rows that point to it are
copied in one transaction; a copy that was killed goes on where it stopped.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.app import home_directory
from habitus.app.operating.people import signing_keys
from habitus.app.sharing.copied_rows import (
    TOLD_APART,
    Row,
    Rows,
    blobs_of,
    chunks,
    describe_use,
    digest,
    identity,
    is_numbered,
    key_of,
    keys_of,
    ours,
    reflect,
    rows_of,
    snapshot,
    stays,
    tables,
    with_keys_of,
)
from habitus.errors import Refused, StorageFailed
from habitus.files import Tree, file_of
from habitus.journal.facts import empty_sums
from habitus.memory.store import next_revision
from habitus.search.store import next_of_all as next_learned
from habitus.settings import Settings
from habitus.skills.layers.layer import USER
from habitus.skills.stores.base import Facts, Shelf, Write
from habitus.skills.stores.ledger import next_generation
from habitus.skills.stores.tables import blobs, sequences

# Numbers that hosts have seen, so a copy gets new ones; and what tells how files looked on one disk.
_ANEW: Mapping[str, Mapping[str, Callable[[sa.Connection], object]]] = {
    "skills": {"generation": next_generation, "stamp": lambda _: "", "archived_as": lambda _: None},
    "engrams": {"revision": next_revision},
    "search_learned": {"generation": next_learned},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One side of a copy: a database, and where the skills that belong to it lie."""

    engine: sa.Engine
    shelf: Shelf

    @property
    def name(self) -> str:
        return sql.place(self.engine)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCopy:
    """A table after a copy: its rows here, those copied now, and those that the target has otherwise."""

    table: str
    rows: int
    copied: int
    differ: int
    checksum: str  # over the rows as the target has them


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    source: str
    target: str
    tables: tuple[TableCopy, ...]
    left: tuple[str, ...]  # skills whose files can't be read, each with the reason
    stays: Mapping[str, int]  # what belongs to one machine, with how many there are of it

    @property
    def differ(self) -> int:
        return sum(table.differ for table in self.tables)


@dataclass(slots=True)
class _Count:
    rows: int = 0
    copied: int = 0
    differ: int = 0
    hash: Any = field(default_factory=hashlib.sha256)


def copy(
    source: Place, target: Place, *, merge: bool = False, progress: Callable[[int], None] = lambda done: None
) -> Copied:
    """Copy what the target does not have yet; what it has stays as it is there."""
    if sql.key_of(source.engine) == sql.key_of(target.engine):
        raise Refused(f"{source.name} can't be copied onto itself.", mend="Name another database.")
    copying = _Copying(source, target, progress)
    with _begun(copying, merge=merge) as offsets, snapshot(source.engine) as connection:
        copying.offsets = offsets
        for table in copying.roots:
            copying.copy(connection, table)
        for table in copying.roots:
            copying.compare(connection, table)
    done = copying.report()
    if done.differ and not merge:
        names = ", ".join(table.table for table in done.tables if table.differ)
        raise StorageFailed(
            f"{done.differ} rows are not in {done.target} as they are here ({names}).",
            mend="Was something changed meanwhile? Run it again with --merge to leave what is there as it is.",
        )
    return done


@contextmanager
def _begun(copying: _Copying, *, merge: bool) -> Iterator[dict[str, int]]:
    """What is added to the numbers of rows, so that none is taken: kept in the target until the copy is complete."""
    engine = copying.target.engine
    keys = {name: f"copying {copying.source.name}: {name}" for name in copying.numbered}
    with sql.writing(engine, durable=True, lock=USER) as connection:
        kept = sequences.select().where(sequences.c.name.in_(keys.values()))
        found = {row.name: row.value for row in connection.execute(kept)}
        if not found:
            if not merge:
                _refuse_in_use(connection, copying)
            found = {key: _reserve_numbers(connection, copying, name) for name, key in keys.items()}
            connection.execute(sequences.insert(), [{"name": key, "value": found[key]} for key in found])
    yield {name: found[key] for name, key in keys.items()}
    with sql.writing(engine, durable=True, lock=USER) as connection:
        connection.execute(sequences.delete().where(sequences.c.name.in_(keys.values())))
        empty_sums(connection)


def _refuse_in_use(connection: sa.Connection, copying: _Copying) -> None:
    if used := describe_use(connection, copying.there):
        raise Refused(
            f"{copying.target.name} is not empty: it has {used}.",
            mend="Add --merge to copy what it does not have yet; what it has stays as it is.",
        )


def _reserve_numbers(connection: sa.Connection, copying: _Copying, name: str) -> int:
    """The highest number that the target has; those that the copy will need are taken out of its sequence."""
    highest = sa.select(sa.func.coalesce(sa.func.max(copying.there[name].c.id), 0))
    offset = int(connection.execute(highest).scalar_one())
    if connection.dialect.name == "postgresql":
        with sql.reading(copying.source.engine) as here:
            needed = int(here.execute(sa.select(sa.func.max(copying.here[name].c.id))).scalar() or 0)
        query = sa.text("SELECT setval(pg_get_serial_sequence(:name, 'id'), GREATEST(:last, 1))")
        connection.execute(query, {"name": name, "last": offset + needed})
    return offset


class _Copying:
    """The tables of both sides, and what has been counted so far."""

    def __init__(self, source: Place, target: Place, progress: Callable[[int], None]) -> None:
        self.source, self.target = source, target
        self.here, self.there = tables(source.engine), tables(target.engine)
        shared = [name for name in self.here if name in self.there]
        self.roots = [name for name in shared if not self.here[name].foreign_keys]
        self.numbered = [name for name in shared if is_numbered(self.here[name])]
        self.offsets: Mapping[str, int] = {}
        self._progress = progress
        self._counts: dict[str, _Count] = {name: _Count() for name in shared}
        self._left: dict[str, str] = {}
        self._done = 0

    def copy(self, connection: sa.Connection, name: str) -> None:
        for rows in chunks(connection, self.here[name]):
            with sql.writing(self.target.engine, durable=True, lock=USER) as out:
                new = self._new(out, name, rows)
                for table, below in self._family(connection, name, new):
                    self._insert(connection, out, table, below)
                if name == "skills":
                    self._shelve(out, new)
            self._done += len(rows)
            self._progress(self._done)

    def _new(self, out: sa.Connection, name: str, rows: Rows) -> Rows:
        """The rows that the target has neither under their key nor under another number."""
        table = self.there[name]
        there = keys_of(table, with_keys_of(out, table, [self._move_row(name, row) for row in rows]))
        new = [row for row in rows if key_of(table, self._move_row(name, row)) not in there]
        if name not in self.offsets:
            return new
        told = TOLD_APART.get(name, tuple(column.name for column in table.columns if column.name != "id"))
        alike = sa.select(table).where(*ours(table), table.c[told[0]].in_([row[told[0]] for row in new]))
        taken = {identity(row, told) for row in rows_of(out, alike)}
        return [row for row in new if identity(row, told) not in taken]

    def _family(self, connection: sa.Connection, name: str, rows: Rows) -> Iterator[tuple[str, Rows]]:
        """The rows themselves, then those that point to them, and so on."""
        yield name, rows
        for child, table in self.here.items():
            for link in table.foreign_keys:
                if link.column.table.name == name and rows and child in self.there:
                    keys = [row[link.column.name] for row in rows]
                    query = sa.select(table).where(link.parent.in_(keys)).order_by(*table.primary_key)
                    yield from self._family(connection, child, rows_of(connection, query))

    def _insert(self, connection: sa.Connection, out: sa.Connection, name: str, rows: Rows) -> None:
        if not rows:
            return
        anew = {column: make(out) for column, make in _ANEW.get(name, {}).items()}
        for kept in blobs_of(connection, rows):
            sql.insert_missing(out, blobs, [kept])
        sql.insert_missing(out, self.there[name], [self._move_row(name, row) | anew for row in rows])
        self._counts[name].copied += len(rows)

    def _move_row(self, name: str, row: Row) -> Row:
        """A row with the numbers it has in the target."""
        table, moved = self.here[name], dict(row)
        if name in self.offsets:
            moved["id"] += self.offsets[name]
        for link in table.foreign_keys:
            if link.column.table.name in self.offsets and moved[link.parent.name] is not None:
                moved[link.parent.name] += self.offsets[link.column.table.name]
        return moved

    def _shelve(self, out: sa.Connection, rows: Rows) -> None:
        """Put the files of skills that are there, not archived, where the target keeps them."""
        skills, shelf = self.there["skills"], self.target.shelf
        present = {row["folder"]: row for row in rows if row["archived_on"] is None}
        trees = {folder: tree for folder in present if (tree := self._files(folder)) is not None}
        if not trees:
            return
        shelf.write_many([Write(folder=folder, tree=tree, before={}) for folder, tree in trees.items()])
        if shelf.keeps_facts:
            stamps = shelf.record({folder: _facts(present[folder]) for folder in trees})
            out.execute(
                skills.update().where(skills.c.id == sa.bindparam("the_id")),
                [
                    {"the_id": present[folder]["id"] + self.offsets["skills"], "stamp": stamp}
                    for folder, stamp in stamps.items()
                ],
            )

    def _files(self, folder: str) -> Tree | None:
        """All files of a skill with their contents, the large ones too."""
        found = self.source.shelf.read(folder)
        if found is None or found.problem is not None:
            self._left[folder] = "its files are gone" if found is None or not found.problem else found.problem.what
            return None
        contents = {path: file.content for path, file in found.tree.items()}
        for path in [path for path, content in contents.items() if content is None]:
            contents[path] = self.source.shelf.read_file(folder, path)
        return {
            path: file_of(content, executable=found.tree[path].executable)
            for path, content in contents.items()
            if content is not None
        }

    def compare(self, connection: sa.Connection, name: str) -> None:
        """Hold every row against the one in the target."""
        for rows in chunks(connection, self.here[name]):
            with sql.reading(self.target.engine) as other:
                for table, below in self._family(connection, name, rows):
                    self._compare(connection, other, table, below)

    def _compare(self, connection: sa.Connection, other: sa.Connection, name: str, rows: Rows) -> None:
        table, count = self.there[name], self._counts[name]
        found = {
            key_of(table, row): row for row in with_keys_of(other, table, [self._move_row(name, row) for row in rows])
        }
        apart = _ANEW.get(name, {}).keys()
        for row in rows:
            wanted = self._move_row(name, row)
            there = found.get(key_of(table, wanted), {})
            is_same = all(column in apart or there.get(column) == value for column, value in wanted.items())
            count.rows += 1
            count.differ += not is_same
            count.hash.update(repr([there.get(column) for column in wanted if column not in apart]).encode())
        lost = Counter(map(digest, blobs_of(connection, rows))) - Counter(map(digest, blobs_of(other, rows)))
        count.differ += len(lost)

    def report(self) -> Copied:
        tables = [
            TableCopy(
                table=name,
                rows=count.rows,
                copied=count.copied,
                differ=count.differ,
                checksum=count.hash.hexdigest()[:16],
            )
            for name, count in sorted(self._counts.items())
        ]
        left = tuple(f"{folder}: {why}" for folder, why in self._left.items())
        return Copied(
            source=self.source.name,
            target=self.target.name,
            tables=tuple(tables),
            left=left,
            stays=stays(self.source.engine),
        )


def _facts(row: Row) -> Facts:
    return Facts(
        version=row["version"],
        enabled=bool(row["enabled"]),
        created_on=datetime.fromisoformat(row["created_on"]),
        modified_on=datetime.fromisoformat(row["modified_on"]),
    )


_AT_A_TIME = 1000


def dump(settings: Settings, file: Path) -> None:
    """Write all that hosts share into a new file, as it is at one moment."""
    source, target = _open(settings), sql.open_engine(sql.sqlite_url(file))
    try:
        with snapshot(source) as rows, sql.writing(target, durable=True) as copy:
            _copy(rows, copy)
    finally:
        target.dispose()


def load(file: Path, settings: Settings) -> str:
    """Put a dump into the database that the settings name, in one transaction; where that is in use nothing is
    changed, and what it holds is returned."""
    source, target = sql.open_engine(sql.sqlite_url(file)), _open(settings)
    try:
        with sql.reading(source) as rows, sql.writing(target, durable=True, lock=USER) as copy:
            if used := describe_use(copy, reflect(copy)):
                return used
            _copy(rows, copy)
        return ""
    finally:
        source.dispose()


def _open(settings: Settings) -> sa.Engine:
    return sql.open_engine(home_directory.address(settings), settings.workspace)


def _copy(rows: sa.Connection, copy: sa.Connection) -> None:
    here, there = reflect(rows), reflect(copy)
    tables = [name for name in here if name in there and name != signing_keys.name]
    for name in reversed(tables):
        copy.execute(there[name].delete())  # numbers that a new database begins with
    for name in tables:
        found = rows.execution_options(yield_per=_AT_A_TIME).execute(sa.select(here[name]))
        for some in found.mappings().partitions(_AT_A_TIME):
            copy.execute(there[name].insert(), [dict(row) for row in some])
        if copy.dialect.name == "postgresql" and "id" in there[name].c:
            _count_on(copy, there[name])


def _count_on(connection: sa.Connection, table: sa.Table) -> None:
    """New rows get numbers after those that came."""
    sequence = connection.execute(sa.select(sa.func.pg_get_serial_sequence(table.name, "id"))).scalar()
    highest = connection.execute(sa.select(sa.func.max(table.c.id))).scalar()
    if sequence is not None and highest is not None:
        connection.execute(sa.select(sa.func.setval(sequence, highest)))
