"""Copy a database into an empty one: a home's into a shared one or back, or a shared one to a file and back.

Tables are discovered in both databases, so a new table is never forgotten. Everything happens in one transaction of the
target: a copy that fails or is killed leaves nothing behind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.app import home_directory
from habitus.app.operating.people import signing_keys
from habitus.errors import Refused, StorageFailed
from habitus.files import Tree, build_tree_file
from habitus.memory.store import increment_revision
from habitus.search.store import increment_all_collection_generations as next_learned
from habitus.settings import Settings
from habitus.skills.layers.layer import USER_LAYER
from habitus.skills.sources.trust import APPROVED_ROOT
from habitus.skills.stores import records
from habitus.skills.stores.base import BackendSkillFacts, FileBackend, FolderWrite
from habitus.skills.stores.layer_database import reserve_generations
from habitus.skills.stores.tables import blobs

# Data of one machine: its index, its pages, its reading progress, its secrets. Other machines create their own.
MACHINE_TABLES = frozenset(
    (
        "granted_credentials",
        "indexed_skills",
        "job_parts",
        "job_workers",
        "jobs",
        "memory_views",
        "search_collections",
        "search_documents",
        "search_vectors",
        "signing_keys",
        "skill_calls",
        "studied_files",
    )
)
# The part of it that no other machine can recreate, in words for people.
_UNCOPIED_LABELS = {
    "granted_credentials": "grants of secrets to skills",
    "skill_calls": "calls of command lines in the log",
    "studied_files": "transcripts that were studied",
}
# Tables filled while the others are copied: shelf, file contents, and ever-growing counters.
_DERIVED_TABLES = frozenset(
    ("agent_skills", "agent_skill_files", "blobs", "evidence_sums", "memory_revision", "sequences", "skill_intents")
)
# Rebuilt by the server when needed.
_SERVER_INDEX_TABLES = frozenset(("search_skills", "search_skill_vectors", "search_terms"))
_SCHEMA_TABLES = frozenset(("alembic_version", "schema_compatibility"))
_ROW_FILTERS = {
    "skills": ("layer", USER_LAYER),
    "skill_proposals": ("layer", USER_LAYER),
    # Other roots are folders of one machine.
    "trusted_skills": ("root", APPROVED_ROOT),
}
# Even an empty database may have rows here, which it keeps.
_SEEDED_TABLES = frozenset(("evidence_seed", "switches"))
_TABLE_LABELS = {"skills": "skill", "engrams": "lesson", "turns": "turn", "skill_proposals": "proposal"}
# Hosts remember these numbers, so copied rows need new ones; a stamp describes files on one disk.
_REGENERATED_COLUMNS: Mapping[str, Mapping[str, Callable[[sa.Connection], object]]] = {
    "skills": {"generation": reserve_generations, "stamp": lambda _: "", "archived_as": lambda _: None},
    "engrams": {"revision": increment_revision},
    "search_learned": {"generation": next_learned},
}
_BATCH_ROWS = 1000

RowValues = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseCopyEndpoint:
    """One end of a copy: a database, and the shelf with the skill files that belong to it."""

    engine: sa.Engine
    shelf: FileBackend

    @property
    def name(self) -> str:
        """Return the database's address without its password."""
        return sql.describe_database(self.engine)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableCopyResult:
    """The verified copy of one table."""

    table: str
    rows: int
    # Over the rows in the target, independent of their order.
    checksum: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyDatabaseResult:
    """The result of a copy."""

    source: str
    target: str
    tables: tuple[TableCopyResult, ...]
    # Skills whose files can't be read, each with the reason.
    unreadable_skills: tuple[str, ...]
    # Rows that belong to one machine and are not copied, counted by kind.
    not_copied: Mapping[str, int]


def copy_shared_data_to_database(
    source: DatabaseCopyEndpoint, target: DatabaseCopyEndpoint, *, progress: Callable[[int], None] = lambda done: None
) -> CopyDatabaseResult:
    """Copy everything that hosts share into an empty database. Raises `Refused` if the target is in use."""
    if sql.get_database_key(source.engine) == sql.get_database_key(target.engine):
        raise Refused(f"{source.name} can't be copied onto itself.", hint="Name another database.")
    with (
        open_consistent_database_view(source.engine) as rows,
        sql.write_transaction(target.engine, durable=True, lock=USER_LAYER) as out,
    ):
        copying = _DatabaseCopier(rows, out)
        if used := _describe_row_counts(out, copying.there, copying.there.keys() - _SEEDED_TABLES):
            raise Refused(f"{target.name} is not empty: it has {used}.", hint="Name an empty database.")
        done = 0
        for name in copying.here:
            for copied in copying.copy_table(name):
                progress(done := done + copied)
        left = copying.copy_skill_files(source.shelf, target.shelf)
        tables = tuple(copying.verify_table(name, target.name) for name in sorted(copying.here))
    return CopyDatabaseResult(
        source=source.name,
        target=target.name,
        tables=tables,
        unreadable_skills=left,
        not_copied=_count_uncopied_rows(source.engine),
    )


class _DatabaseCopier:
    """The tables of both databases, and the offsets added to row ids that the target may have assigned already."""

    def __init__(self, rows: sa.Connection, out: sa.Connection) -> None:
        self._rows, self._out = rows, out
        self.there = _reflect_tables_to_copy(out)
        self.here = {name: table for name, table in _reflect_tables_to_copy(rows).items() if name in self.there}
        self._offsets = {
            name: _get_highest_id(out, self.there[name]) for name in self.here if _has_integer_id(self.here[name])
        }
        self._checksums = dict.fromkeys(self.here, 0)

    def copy_table(self, name: str) -> Iterator[int]:
        """Copy a table in batches, and yield the size of each."""
        here, there = self.here[name], self.there[name]
        for some in _iterate_row_batches(
            self._rows, sa.select(here).where(*_build_filters_of_copied_rows(here, self.here))
        ):
            moved = [self._renumber_row(name, row) for row in some]
            self._checksums[name] += _compute_checksum(name, moved)
            for kept in _iterate_referenced_blobs(self._rows, some):
                sql.insert_missing_rows(self._out, blobs, [kept])
            anew = {column: make(self._out) for column, make in _REGENERATED_COLUMNS.get(name, {}).items()}
            sql.insert_missing_rows(self._out, there, [row | anew for row in moved])
            yield len(some)
        _advance_sequence(self._out, there)

    def _renumber_row(self, name: str, row: RowValues) -> RowValues:
        """Return a row with its ids and references shifted to those of the target."""
        moved = dict(row)
        if name in self._offsets:
            moved["id"] += self._offsets[name]
        for link in self.here[name].foreign_keys:
            if link.column.table.name in self._offsets and moved[link.parent.name] is not None:
                moved[link.parent.name] += self._offsets[link.column.table.name]
        return moved

    def copy_skill_files(self, source: FileBackend, target: FileBackend) -> tuple[str, ...]:
        """Write the files of active skills to the target's shelf; return those that can't be read, with the reason."""
        skills, left = self.there["skills"], []
        present = sa.select(skills).where(
            *_build_filters_of_copied_rows(skills, self.there), skills.c.archived_on.is_(None)
        )
        for some in list(_iterate_row_batches(self._out, present)):
            read = {row["folder"]: _read_skill_files_or_problem(source, row["folder"]) for row in some}
            left += [f"{folder}: {tree}" for folder, tree in read.items() if isinstance(tree, str)]
            trees = {folder: tree for folder, tree in read.items() if not isinstance(tree, str)}
            target.write_folders([FolderWrite(folder=folder, tree=tree, before={}) for folder, tree in trees.items()])
            if target.keeps_facts and trees:
                stamps = target.store_versions_and_dates(
                    {row["folder"]: _build_skill_facts_from_row(row) for row in some if row["folder"] in trees}
                )
                ids = {row["folder"]: row["id"] for row in some}
                stamped = [{"the_id": ids[folder], "stamp": stamp} for folder, stamp in stamps.items()]
                self._out.execute(skills.update().where(skills.c.id == sa.bindparam("the_id")), stamped)
        return tuple(left)

    def verify_table(self, name: str, target: str) -> TableCopyResult:
        """Compare the copied rows with those read. Raises `StorageFailed` if they differ."""
        table, count, checksum = self.there[name], 0, 0
        names = [column.name for column in self.here[name].columns]
        for some in _iterate_row_batches(
            self._out, sa.select(table).where(*_build_filters_of_copied_rows(table, self.there))
        ):
            count += len(some)
            checksum += _compute_checksum(name, [{column: row[column] for column in names} for row in some])
        if checksum != self._checksums[name] and name not in _SEEDED_TABLES:
            raise StorageFailed(f"{name} would not be in {target} as it is here.", hint="Nothing was copied; retry.")
        return TableCopyResult(table=name, rows=count, checksum=f"{checksum % 2**64:016x}")


def _reflect_tables_to_copy(conn: sa.Connection) -> dict[str, sa.Table]:
    apart = MACHINE_TABLES | _DERIVED_TABLES
    return {name: table for name, table in reflect_data_tables(conn).items() if name not in apart}


def reflect_data_tables(conn: sa.Connection) -> dict[str, sa.Table]:
    """Return every table with data of its own, referenced tables first."""
    # SQLAlchemy doesn't know the column types of the server's index tables.
    apart = _SERVER_INDEX_TABLES | _SCHEMA_TABLES
    found = sa.MetaData()
    found.reflect(conn, only=lambda name, _: name not in apart)
    return {table.name: table for table in found.sorted_tables}


@contextmanager
def open_consistent_database_view(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Open a consistent view of a database, however long it is read."""
    with sql.translate_storage_errors(engine), engine.connect() as conn:
        if engine.dialect.name == "postgresql":
            # PostgreSQL's default would show later commits between two queries; SQLite has a snapshot anyway.
            conn.execution_options(isolation_level="REPEATABLE READ")
        with conn.begin():
            yield conn


def _describe_row_counts(conn: sa.Connection, tables: Mapping[str, sa.Table], names: Iterable[str]) -> str:
    """Describe how many of our rows the tables hold, best-known tables first; empty if there are none."""
    found = []
    for name in sorted(names, key=lambda name: ([*_TABLE_LABELS, name].index(name), name)):
        query = (
            sa.select(sa.func.count())
            .select_from(tables[name])
            .where(*_build_filters_of_copied_rows(tables[name], tables))
        )
        if count := conn.execute(query).scalar_one():
            found.append(f"{count} {_TABLE_LABELS.get(name, f'{name} row')}{'s' if count > 1 else ''}")
    return ", ".join(found)


def _count_uncopied_rows(engine: sa.Engine) -> dict[str, int]:
    """Count the rows that are not copied because they belong to one machine."""
    with sql.read_transaction(engine) as conn:
        count = {
            what: int(conn.execute(sa.select(sa.func.count()).select_from(sa.table(name))).scalar_one())
            for name, what in _UNCOPIED_LABELS.items()
        }
    return {what: number for what, number in count.items() if number}


def _has_integer_id(table: sa.Table) -> bool:
    (first, *more) = table.primary_key
    return isinstance(first.type, sa.Integer) and not more and table.name != "evidence_seed"


def _get_highest_id(conn: sa.Connection, table: sa.Table) -> int:
    return int(conn.execute(sa.select(sa.func.max(table.c.id))).scalar() or 0)


def _build_filters_of_copied_rows(table: sa.Table, tables: Mapping[str, sa.Table]) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for the rows to copy, also for tables that reference a filtered one."""
    column, value = _ROW_FILTERS.get(table.name, ("", ""))
    own = [table.c[column] == value] if column else []
    for link in table.foreign_keys:
        parent = link.column.table
        if parent.name in _ROW_FILTERS and parent.name in tables:
            own.append(link.parent.in_(sa.select(link.column).where(*_build_filters_of_copied_rows(parent, tables))))
    return own


def _iterate_row_batches(conn: sa.Connection, query: sa.Select[Any]) -> Iterator[list[RowValues]]:
    found = conn.execute(query.execution_options(yield_per=_BATCH_ROWS))
    for some in found.mappings().partitions(_BATCH_ROWS):
        yield [dict(row) for row in some]


def _compute_checksum(name: str, rows: Sequence[RowValues]) -> int:
    """Return a sum of row hashes."""
    apart = _REGENERATED_COLUMNS.get(name, {}).keys()
    digests = (hashlib.sha256(repr([row[key] for key in row if key not in apart]).encode()) for row in rows)
    # Addition ignores the order of rows, which differs between databases.
    return sum(int.from_bytes(digest.digest()[:8], "big") for digest in digests)


def _iterate_referenced_blobs(conn: sa.Connection, rows: Sequence[RowValues]) -> Iterator[RowValues]:
    """Yield the file contents that the trees of versions and proposals refer to."""
    trees = [row["tree"] for row in rows if row.get("tree")]
    wanted = sorted({file.sha256 for tree in trees for file in records.unpack_tree(tree).values()})
    for start in range(0, len(wanted), _BATCH_ROWS):
        query = sa.select(blobs).where(blobs.c.sha256.in_(wanted[start : start + _BATCH_ROWS]))
        yield from [dict(row) for row in conn.execute(query).mappings()]


def _read_skill_files_or_problem(shelf: FileBackend, folder: str) -> Tree | str:
    """Return all files of a skill with their contents, large ones included; or the reason why they can't be read."""
    found = shelf.read_folder(folder)
    if found is None or found.problem is not None:
        return "its files are missing" if found is None or not found.problem else found.problem.message
    contents = {
        path: file.content if file.content is not None else shelf.read_file(folder, path)
        for path, file in found.tree.items()
    }
    return {
        path: build_tree_file(content, executable=found.tree[path].executable)
        for path, content in contents.items()
        if content is not None
    }


def _build_skill_facts_from_row(row: RowValues) -> BackendSkillFacts:
    return BackendSkillFacts(
        version=row["version"],
        enabled=bool(row["enabled"]),
        created_on=datetime.fromisoformat(row["created_on"]),
        modified_on=datetime.fromisoformat(row["modified_on"]),
    )


def dump_database(settings: Settings, file: Path) -> None:
    """Write everything that hosts share to a new file, in one consistent state."""
    source, target = _open_database(settings), sql.open_engine_with_current_schema(sql.build_sqlite_url(file))
    try:
        with open_consistent_database_view(source) as rows, sql.write_transaction(target, durable=True) as out:
            _replace_rows_of_all_tables(rows, out)
    finally:
        target.dispose()


def load_dump_unless_database_is_used(file: Path, settings: Settings) -> str:
    """Load a dump into the configured database, in one transaction.

    If the database is in use, nothing is changed and a description of its contents is returned; else an empty string.
    """
    source, target = sql.open_engine_with_current_schema(sql.build_sqlite_url(file)), _open_database(settings)
    try:
        with sql.read_transaction(source) as rows, sql.write_transaction(target, durable=True, lock=USER_LAYER) as out:
            if used := _describe_row_counts(out, reflect_data_tables(out), _TABLE_LABELS):
                return used
            _replace_rows_of_all_tables(rows, out)
        return ""
    finally:
        source.dispose()


def _open_database(settings: Settings) -> sa.Engine:
    return sql.open_engine_with_current_schema(home_directory.get_database_url(settings), settings.workspace)


def _replace_rows_of_all_tables(rows: sa.Connection, out: sa.Connection) -> None:
    here, there = reflect_data_tables(rows), reflect_data_tables(out)
    tables = [name for name in here if name in there and name != signing_keys.name]
    for name in reversed(tables):
        # A new database starts with counters of its own, which the dump replaces.
        out.execute(there[name].delete())
    for name in tables:
        copy_table_unchanged(rows, out, here[name], there[name])
        _advance_sequence(out, there[name])


def copy_table_unchanged(rows: sa.Connection, out: sa.Connection, here: sa.Table, there: sa.Table) -> None:
    """Copy a table unchanged."""
    for some in _iterate_row_batches(rows, sa.select(here)):
        out.execute(there.insert(), some)


def _advance_sequence(conn: sa.Connection, table: sa.Table) -> None:
    """Advance the id sequence beyond the copied rows; PostgreSQL does not do so itself."""
    if conn.dialect.name != "postgresql" or "id" not in table.c:
        return
    sequence = conn.execute(sa.select(sa.func.pg_get_serial_sequence(table.name, "id"))).scalar()
    highest = conn.execute(sa.select(sa.func.max(table.c.id))).scalar()
    if sequence is not None and highest is not None:
        conn.execute(sa.select(sa.func.setval(sequence, highest)))
