"""The `agent_skills` table: in a SQLite file, at a database URL, or as rows in a JSON or CSV file."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.errors import Invalid, NotFound
from habitus.skills.formats import conversion, disk
from habitus.skills.formats.base import (
    FormatExportResult,
    ImportEntry,
    IncomingSkill,
    OutgoingSkill,
    PlaybookLesson,
    SkillFormat,
    SkippedEntry,
    UnreadableEntryError,
    describe_read_error,
)
from habitus.skills.formats.foreign_values import (
    DiagnosticCollector,
    format_iso_timestamp,
    make_json_storable,
    parse_count,
    parse_flag,
    parse_storable_json,
    parse_text_list,
    parse_timestamp_field,
    to_text,
)
from habitus.skills.model import Severity, Skill, SkillSource

TABLE = "agent_skills"
COLUMNS = {
    "_id": "TEXT PRIMARY KEY",
    "title": "TEXT",
    "description": "TEXT",
    "content": "TEXT",
    "tags": "TEXT",
    "source": "TEXT",
    "version": "INTEGER",
    "enabled": "INTEGER",
    "created_on": "TEXT",
    "modified_on": "TEXT",
}
SUFFIXES = (".db", ".sqlite", ".sqlite3")
_DUMP_SUFFIXES = (".json", ".jsonl", ".csv")
_MAX_ROWS = 1_000_000

TableRow = Mapping[str, Any]


class AgentSkillsTableFormat(SkillFormat):
    """Reads and writes the `agent_skills` table."""

    name = "table"

    def can_read(self, path: Path, inside: Set[str]) -> bool:
        if inside or not path.is_file():
            return False
        if path.suffix.lower() in _DUMP_SUFFIXES:
            return True
        # Judged by content, because SQLite files have any suffix.
        return _is_sqlite(path) and _has_table_or_is_damaged(path)

    def read_entries(self, path: Path, origin: str) -> Iterator[ImportEntry]:
        if path.suffix.lower() == ".csv":
            yield from _convert_rows_to_entries(_read_csv_rows(disk.read_file(path)), origin)
        elif path.suffix.lower() in _DUMP_SUFFIXES:
            yield from _convert_rows_to_entries(_read_json_rows(disk.read_file(path), path.name), origin)
        else:
            yield from _read_sqlite(path, origin)

    def write_skills(
        self,
        skills: Sequence[OutgoingSkill],
        to: Path,
        *,
        lessons: Sequence[PlaybookLesson] = (),
        overwrite: bool = False,
    ) -> FormatExportResult:
        """Write a SQLite file: `to` itself, or `agent_skills.db` in it if `to` is a directory."""
        target = to if to.suffix.lower() in SUFFIXES else to / f"{TABLE}.db"
        rows = {item.skill.name: _build_skill_row(item.skill) for item in skills}
        with (
            disk.open_atomic_export_path(target, overwrite=overwrite) as place,
            closing(sqlite3.connect(place)) as database,
        ):
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            database.execute(f"CREATE TABLE {TABLE} ({columns})")
            marks = ", ".join("?" * len(COLUMNS))
            database.executemany(f"INSERT INTO {TABLE} VALUES ({marks})", rows.values())
            database.commit()
        return FormatExportResult(paths=(target,))


def read_database(url: str) -> Iterator[ImportEntry]:
    """Yield the rows at a database URL; raise `StorageFailed` if it can't be reached."""
    engine = sql.create_engine(url)
    origin = engine.url.render_as_string(hide_password=True)
    try:
        with sql.read_transaction(engine) as conn:
            if not sa.inspect(conn).has_table(TABLE):
                raise NotFound(f"There is no table {TABLE} in {origin}.", hint="Check the address.")
            columns = [column["name"] for column in sa.inspect(conn).get_columns(TABLE)]
            rows = conn.execute(sa.select(sa.text("*")).select_from(sa.table(TABLE)).limit(_MAX_ROWS)).mappings()
            yield from _convert_rows_to_entries((dict(row) for row in rows), origin, columns)
    finally:
        engine.dispose()


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _has_table_or_is_damaged(path: Path) -> bool:
    """Whether the table exists; True for a damaged database, so the user hears about it."""
    try:
        with closing(_open_database(path)) as database:
            return TABLE in _list_tables(database)
    except sqlite3.Error:
        return True


def _open_database(path: Path) -> sqlite3.Connection:
    quoted = path.absolute().as_uri()
    database = sqlite3.connect(f"{quoted}?mode=ro", uri=True, timeout=5)
    try:
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError:
        # A database in use, in a directory where no lock file can be created.
        database.close()
        database = sqlite3.connect(f"{quoted}?immutable=1", uri=True)
    database.text_factory = lambda content: content.decode("utf-8", "replace")
    return database


def _list_tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _read_sqlite(path: Path, origin: str) -> Iterator[ImportEntry]:
    try:
        with closing(_open_database(path)) as database:
            if TABLE not in _list_tables(database):
                raise UnreadableEntryError(f"There is no table {TABLE} in it.")
            cursor = database.execute(f"SELECT * FROM {TABLE} LIMIT {_MAX_ROWS}")
            columns = [column[0] for column in cursor.description]
            yield from _convert_rows_to_entries(
                (dict(zip(columns, row, strict=True)) for row in cursor), origin, columns
            )
    except sqlite3.Error as error:
        yield SkippedEntry(origin=origin, name="", reason=f"The database can't be read: {error}.")


def _read_json_rows(content: bytes, file: str) -> list[Any]:
    if file.lower().endswith(".jsonl"):
        return [_parse_json_line_or_return_error(line) for line in content.splitlines() if line.strip()]
    value = parse_storable_json(content, file)
    if isinstance(value, dict):
        value = next((found for key in (TABLE, "rows", "skills") if isinstance(found := value.get(key), list)), None)
    if not isinstance(value, list):
        raise UnreadableEntryError(f"It holds no list of rows of {TABLE}.")
    return value


def _parse_json_line_or_return_error(line: bytes) -> Any:
    try:
        return parse_storable_json(line, "It")
    except UnreadableEntryError as problem:
        # Reported in its turn, so the other lines are still read.
        return problem


def _read_csv_rows(content: bytes) -> list[Any]:
    try:
        # The default limit of 128 KB is shorter than many skills.
        csv.field_size_limit(2**30)
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        rows = [{key: value for key, value in row.items() if key is not None} for row in reader]
    except UnicodeDecodeError as error:
        raise UnreadableEntryError(f"It is not UTF-8 at byte {error.start}.") from None
    except csv.Error as error:
        raise UnreadableEntryError(f"It is not valid CSV: {error}.") from None
    return list(rows)


def _convert_rows_to_entries(
    rows: Iterator[Any] | list[Any], origin: str, columns: Sequence[str] | None = None
) -> Iterator[ImportEntry]:
    if columns is not None and not {"_id", "content"} <= set(columns):
        missing = " and ".join(name for name in ("_id", "content") if name not in columns)
        raise UnreadableEntryError(f"The table {TABLE} has no column {missing}.")
    for number, row in enumerate(rows, 1):
        place = f"{origin}, row {number}"
        try:
            yield _build_incoming_skill(row, place)
        except (UnreadableEntryError, Invalid) as problem:
            name = to_text(row.get("_id")) if isinstance(row, dict) else ""
            yield SkippedEntry(origin=place, name=name, reason=describe_read_error(problem))


def _build_incoming_skill(row: Any, origin: str) -> IncomingSkill:
    notes = DiagnosticCollector(origin)
    if isinstance(row, UnreadableEntryError):
        raise row
    if not isinstance(row, dict):
        raise UnreadableEntryError("It is not an object.")
    values = {key: _decode_column_value(value) for key, value in row.items()}
    called, content = to_text(values.get("_id")), values.get("content")
    if not called.strip():
        raise UnreadableEntryError("It has no _id.")
    if content is None:
        raise UnreadableEntryError("It has no content.")
    missing = [column for column in COLUMNS if column not in values]
    if missing:
        notes.add(f"There is no column {', '.join(missing)}; the default values were used.", severity=Severity.NOTE)
    skill = _build_skill_from_row(values, called, notes)
    return IncomingSkill(
        name=skill.name,
        tree=conversion.build_imported_skill_files(skill, {}),
        origin=origin,
        format="table",
        enabled=parse_flag(values.get("enabled"), "enabled", notes, True),
        version=max(parse_count(values.get("version"), "version", notes, 1), 1),
        created_on=parse_timestamp_field(values.get("created_on"), "created_on", notes),
        modified_on=parse_timestamp_field(values.get("modified_on"), "modified_on", notes),
        diagnostics=tuple(notes.diagnostics),
    )


def _decode_column_value(value: Any) -> Any:
    if isinstance(value, (bytes, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise UnreadableEntryError("It has bytes that are not text.") from None
    return value if value is None or isinstance(value, (bool, int, float)) else make_json_storable(value)


def _build_skill_from_row(values: TableRow, called: str, notes: DiagnosticCollector) -> Skill:
    source = to_text(values.get("source")).strip().lower()
    if source not in (*SkillSource, ""):
        notes.add(f"'{source[:40]}' is not a source.", f"Use one of {', '.join(SkillSource)}.", Severity.NOTE)
    raw = Skill(
        name=conversion.make_legal_name(called),
        title=to_text(values.get("title")),
        description=to_text(values.get("description")),
        when_to_use=to_text(values.get("when_to_use")),
        tags=parse_text_list(values.get("tags"), "tags", notes),
        source=SkillSource(source) if source in tuple(SkillSource) else SkillSource.IMPORTED,
        body=to_text(values.get("content")),
    )
    return conversion.fit_to_skill_md(
        raw, format="table", original_name=called, frame=conversion.PLAIN_TEXT_FRAME, notes=notes, remembered={}
    )


def _build_skill_row(skill: Skill) -> tuple[Any, ...]:
    tags = conversion.get_original_field(skill, "tags", "table")
    return (
        _get_row_id(skill),
        conversion.get_original_field(skill, "title", "table"),
        conversion.get_original_field(skill, "description", "table"),
        conversion.get_original_body(skill, "table", conversion.PLAIN_TEXT_FRAME),
        json.dumps(tags, ensure_ascii=False),
        skill.source.value,
        max(skill.version, 1),
        int(skill.enabled),
        format_iso_timestamp(skill.created_on),
        format_iso_timestamp(skill.modified_on),
    )


def _get_row_id(skill: Skill) -> str:
    called = conversion.get_remembered_values(skill, "table").get("name")
    is_still_its_name = isinstance(called, str) and conversion.make_legal_name(called) == skill.name
    return called if isinstance(called, str) and is_still_its_name else skill.name
