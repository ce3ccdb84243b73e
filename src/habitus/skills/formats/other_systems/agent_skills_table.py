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
from habitus.skills.formats import disk, fitting
from habitus.skills.formats.base import (
    CantTake,
    Entry,
    Format,
    Incoming,
    NotTaken,
    Outgoing,
    PlaybookLesson,
    Written,
    describe_problem,
)
from habitus.skills.formats.foreign_values import (
    Notes,
    count,
    flag,
    iso,
    load_json,
    parse_timestamp_field,
    storable,
    text,
    texts,
)
from habitus.skills.model import Severity, Skill, Source

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
_DUMPS = (".json", ".jsonl", ".csv")
_MAX_ROWS = 1_000_000

Row = Mapping[str, Any]


class Table(Format):
    """Reads and writes the `agent_skills` table."""

    name = "table"

    def claims(self, path: Path, inside: Set[str]) -> bool:
        if inside or not path.is_file():
            return False
        if path.suffix.lower() in _DUMPS:
            return True
        # Judged by content, because SQLite files have any suffix.
        return _is_sqlite(path) and _has_table(path)

    def read_one(self, path: Path, origin: str) -> Iterator[Entry]:
        if path.suffix.lower() == ".csv":
            yield from _entries(_from_csv(disk.read_file(path)), origin)
        elif path.suffix.lower() in _DUMPS:
            yield from _entries(_from_json(disk.read_file(path), path.name), origin)
        else:
            yield from _from_sqlite(path, origin)

    def write(
        self, skills: Sequence[Outgoing], to: Path, *, lessons: Sequence[PlaybookLesson] = (), overwrite: bool = False
    ) -> Written:
        """Write a SQLite file: `to` itself, or `agent_skills.db` in it if `to` is a directory."""
        target = to if to.suffix.lower() in SUFFIXES else to / f"{TABLE}.db"
        rows = {item.skill.name: _row(item.skill) for item in skills}
        with disk.export_place(target, overwrite=overwrite) as place, closing(sqlite3.connect(place)) as database:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            database.execute(f"CREATE TABLE {TABLE} ({columns})")
            marks = ", ".join("?" * len(COLUMNS))
            database.executemany(f"INSERT INTO {TABLE} VALUES ({marks})", rows.values())
            database.commit()
        return Written(paths=(target,))


def read_database(url: str) -> Iterator[Entry]:
    """Yield the rows at a database URL; raise `StorageFailed` if it can't be reached."""
    engine = sql.create_engine(url)
    origin = engine.url.render_as_string(hide_password=True)
    try:
        with sql.reading(engine) as connection:
            if not sa.inspect(connection).has_table(TABLE):
                raise NotFound(f"There is no table {TABLE} in {origin}.", hint="Check the address.")
            columns = [column["name"] for column in sa.inspect(connection).get_columns(TABLE)]
            rows = connection.execute(sa.select(sa.text("*")).select_from(sa.table(TABLE)).limit(_MAX_ROWS)).mappings()
            yield from _entries((dict(row) for row in rows), origin, columns)
    finally:
        engine.dispose()


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _has_table(path: Path) -> bool:
    """Whether the table exists; True for a damaged database, so the user hears about it."""
    try:
        with closing(_open_database(path)) as database:
            return TABLE in _tables(database)
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


def _tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def _from_sqlite(path: Path, origin: str) -> Iterator[Entry]:
    try:
        with closing(_open_database(path)) as database:
            if TABLE not in _tables(database):
                raise CantTake(f"There is no table {TABLE} in it.")
            cursor = database.execute(f"SELECT * FROM {TABLE} LIMIT {_MAX_ROWS}")
            columns = [column[0] for column in cursor.description]
            yield from _entries((dict(zip(columns, row, strict=True)) for row in cursor), origin, columns)
    except sqlite3.Error as error:
        yield NotTaken(origin=origin, name="", reason=f"The database can't be read: {error}.")


def _from_json(content: bytes, file: str) -> list[Any]:
    if file.lower().endswith(".jsonl"):
        return [_json_line(line) for line in content.splitlines() if line.strip()]
    value = load_json(content, file)
    if isinstance(value, dict):
        value = next((found for key in (TABLE, "rows", "skills") if isinstance(found := value.get(key), list)), None)
    if not isinstance(value, list):
        raise CantTake(f"It holds no list of rows of {TABLE}.")
    return value


def _json_line(line: bytes) -> Any:
    try:
        return load_json(line, "It")
    except CantTake as problem:
        # Reported in its turn, so the other lines are still read.
        return problem


def _from_csv(content: bytes) -> list[Any]:
    try:
        # The default limit of 128 KB is shorter than many skills.
        csv.field_size_limit(2**30)
        reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        rows = [{key: value for key, value in row.items() if key is not None} for row in reader]
    except UnicodeDecodeError as error:
        raise CantTake(f"It is not UTF-8 at byte {error.start}.") from None
    except csv.Error as error:
        raise CantTake(f"It is not valid CSV: {error}.") from None
    return list(rows)


def _entries(rows: Iterator[Any] | list[Any], origin: str, columns: Sequence[str] | None = None) -> Iterator[Entry]:
    if columns is not None and not {"_id", "content"} <= set(columns):
        missing = " and ".join(name for name in ("_id", "content") if name not in columns)
        raise CantTake(f"The table {TABLE} has no column {missing}.")
    for number, row in enumerate(rows, 1):
        place = f"{origin}, row {number}"
        try:
            yield _incoming(row, place)
        except (CantTake, Invalid) as problem:
            name = text(row.get("_id")) if isinstance(row, dict) else ""
            yield NotTaken(origin=place, name=name, reason=describe_problem(problem))


def _incoming(row: Any, origin: str) -> Incoming:
    notes = Notes(origin)
    if isinstance(row, CantTake):
        raise row
    if not isinstance(row, dict):
        raise CantTake("It is not an object.")
    values = {key: _plain(value) for key, value in row.items()}
    called, content = text(values.get("_id")), values.get("content")
    if not called.strip():
        raise CantTake("It has no _id.")
    if content is None:
        raise CantTake("It has no content.")
    missing = [column for column in COLUMNS if column not in values]
    if missing:
        notes.say(f"There is no column {', '.join(missing)}; the usual values were taken.", severity=Severity.NOTE)
    skill = _skill(values, called, notes)
    return Incoming(
        name=skill.name,
        tree=fitting.folder(skill, {}),
        origin=origin,
        format="table",
        enabled=flag(values.get("enabled"), "enabled", notes, True),
        version=max(count(values.get("version"), "version", notes, 1), 1),
        created_on=parse_timestamp_field(values.get("created_on"), "created_on", notes),
        modified_on=parse_timestamp_field(values.get("modified_on"), "modified_on", notes),
        diagnostics=tuple(notes.found),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            raise CantTake("It has bytes that are not text.") from None
    return value if value is None or isinstance(value, (bool, int, float)) else storable(value)


def _skill(values: Row, called: str, notes: Notes) -> Skill:
    source = text(values.get("source")).strip().lower()
    if source not in (*Source, ""):
        notes.say(f"'{source[:40]}' is not a source.", f"Use one of {', '.join(Source)}.", Severity.NOTE)
    raw = Skill(
        name=fitting.legal_name(called),
        title=text(values.get("title")),
        description=text(values.get("description")),
        when_to_use=text(values.get("when_to_use")),
        tags=texts(values.get("tags"), "tags", notes),
        source=Source(source) if source in tuple(Source) else Source.IMPORTED,
        body=text(values.get("content")),
    )
    return fitting.fit(raw, format="table", called=called, frame=fitting.PLAIN_TEXT, notes=notes, kept={})


def _row(skill: Skill) -> tuple[Any, ...]:
    tags = fitting.original(skill, "tags", "table")
    return (
        _id(skill),
        fitting.original(skill, "title", "table"),
        fitting.original(skill, "description", "table"),
        fitting.original_body(skill, "table", fitting.PLAIN_TEXT),
        json.dumps(tags, ensure_ascii=False),
        skill.source.value,
        max(skill.version, 1),
        int(skill.enabled),
        iso(skill.created_on),
        iso(skill.modified_on),
    )


def _id(skill: Skill) -> str:
    called = fitting.memory_of(skill, "table").get("name")
    is_still_its_name = isinstance(called, str) and fitting.legal_name(called) == skill.name
    return called if isinstance(called, str) and is_still_its_name else skill.name
