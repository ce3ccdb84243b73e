from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.errors import NotFound, Refused, StorageFailed
from habitus.skills.formats.base import IncomingSkill, SkippedEntry
from habitus.skills.formats.detect import read_entries
from habitus.skills.formats.other_systems import agent_skills_table
from habitus.skills.formats.other_systems.agent_skills_table import AgentSkillsTableFormat
from habitus.skills.model import Skill, SkillSource
from tests.skills.formats.made import (
    again,
    any_text,
    fresh,
    law,
    of_kind,
    only,
    outgoing,
    plain_skill,
    reasons,
    skills,
    some_text,
    write_files,
)

pytestmark = pytest.mark.req("SK-19")

TABLE = AgentSkillsTableFormat()

ROW: dict[str, Any] = {
    "_id": "quarterly-reports",
    "title": "Quarterly Reports",
    "description": "How the reports are built",
    "content": "# Reports\n\nOne sheet each.\n",
    "tags": '["excel", "finance"]',
    "source": "agent",
    "version": 4,
    "enabled": 0,
    "created_on": "2026-01-02T03:04:05.678Z",
    "modified_on": "2026-02-02T00:00:00Z",
}


def database(path: Path, rows: list[dict[str, Any]], columns: tuple[str, ...] = tuple(ROW)) -> Path:
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"CREATE TABLE agent_skills ({', '.join(columns)})")
        marks = ", ".join("?" * len(columns))
        made.executemany(f"INSERT INTO agent_skills VALUES ({marks})", [[row.get(c) for c in columns] for row in rows])
        made.commit()
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as made:
        made.row_factory = sqlite3.Row
        return [dict(row) for row in made.execute("SELECT * FROM agent_skills ORDER BY _id")]


def check(entry: IncomingSkill) -> None:
    skill = entry.skill
    assert (entry.name, skill.title, skill.description) == (ROW["_id"], ROW["title"], ROW["description"])
    assert (skill.body, skill.tags, skill.source) == (
        "# Reports\n\nOne sheet each.",
        ("excel", "finance"),
        SkillSource.AGENT,
    )
    assert (entry.version, entry.enabled, entry.format) == (4, False, "table")
    assert entry.created_on == datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    assert entry.modified_on == datetime(2026, 2, 2, tzinfo=UTC)


def test_a_sqlite_file(tmp_path: Path) -> None:
    check(only(read_entries(database(tmp_path / "skills.db", [ROW]))))
    check(only(read_entries(tmp_path)))


def test_a_database_address(tmp_path: Path) -> None:
    database(tmp_path / "skills.db", [ROW])
    check(only(read_entries(f"sqlite:///{tmp_path / 'skills.db'}")))
    with pytest.raises(NotFound, match="no table agent_skills"):
        list(read_entries(f"sqlite:///{tmp_path / 'other.db'}"))
    with pytest.raises(StorageFailed):
        list(read_entries("mysql://nowhere/x"))


@pytest.mark.parametrize("wrapped", [[ROW], {"agent_skills": [ROW]}, {"rows": [{**ROW, "tags": ["excel", "finance"]}]}])
def test_a_json_dump(tmp_path: Path, wrapped: object) -> None:
    check(only(read_entries(write_files(tmp_path, {"dump.json": json.dumps(wrapped)}) / "dump.json")))


def test_dumps_line_by_line(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"dump.jsonl": f"{json.dumps(ROW)}\n\n{{\n[]\n"}) / "dump.jsonl"
    entries = list(read_entries(path))
    check(of_kind(entries, IncomingSkill)[0])
    assert len(of_kind(entries, SkippedEntry)) == 2


def test_a_csv_dump(tmp_path: Path) -> None:
    path = tmp_path / "dump.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerow(ROW)
    check(only(read_entries(path)))


def test_missing_columns_have_usual_values(tmp_path: Path) -> None:
    path = database(tmp_path / "skills.db", [ROW], ("_id", "content", "title"))
    entry = only(read_entries(path))
    assert (entry.version, entry.enabled, entry.created_on) == (1, True, None)
    assert entry.skill.description == "Quarterly Reports"
    assert "no column description, tags, source, version, enabled, created_on, modified_on" in str(entry.diagnostics[0])


@pytest.mark.parametrize("column", ["_id", "content"])
def test_a_table_without_what_makes_a_skill(tmp_path: Path, column: str) -> None:
    columns = tuple(name for name in ROW if name != column)
    (entry,) = read_entries(database(tmp_path / "skills.db", [ROW], columns))
    assert isinstance(entry, SkippedEntry)
    assert entry.reason == f"The table agent_skills has no column {column}."


def test_bad_rows_do_not_hide_good_ones(tmp_path: Path) -> None:
    bad = [
        {**ROW, "_id": None},
        {**ROW, "_id": "no-content", "content": None},
        {**ROW, "_id": "bytes", "content": b"\xff"},
        {**ROW, "_id": "huge", "content": "x" * 2_000_000},
        {**ROW, "_id": "Quarterly_Reports"},
    ]
    odd = {"_id": "odd", "content": b"text", "tags": "a, b", "version": "x", "enabled": "maybe", "created_on": "soon"}
    entries = list(read_entries(database(tmp_path / "skills.db", [ROW, *bad, odd])))
    assert [entry.name for entry in of_kind(entries, IncomingSkill)] == ["quarterly-reports", "odd"]
    found = of_kind(entries, IncomingSkill)[1]
    assert (found.skill.tags, found.version, found.enabled, found.created_on) == (("a", "b"), 1, True, None)
    assert len(found.diagnostics) >= 3
    assert set(reasons(entries)) == {"", "no-content", "bytes", "huge", "quarterly-reports"}


def test_files_that_are_no_table(tmp_path: Path) -> None:
    damaged = database(tmp_path / "damaged.db", [ROW] * 1)
    damaged.write_bytes(damaged.read_bytes()[:3000])
    with closing(sqlite3.connect(tmp_path / "empty.db")) as made:
        made.execute("CREATE TABLE other (x)")
    for name, content in (("a.json", "3"), ("b.csv", b"\xff"), ("c.csv", '"a"b\n'), ("d.txt", "x")):
        write_files(tmp_path, {name: content})
    for name in ("damaged.db", "empty.db", "a.json", "b.csv", "c.csv", "d.txt"):
        entries = list(read_entries(tmp_path / name))
        assert of_kind(entries, IncomingSkill) == []
        assert name == "c.csv" or len(entries) == 1


def test_export_has_exactly_the_columns(tmp_path: Path) -> None:
    entry = only(read_entries(database(tmp_path / "in.db", [ROW])))
    written = TABLE.write_skills([again(entry)], tmp_path / "out")
    assert written.paths == (tmp_path / "out/agent_skills.db",)
    assert rows_of(written.paths[0]) == [
        {**ROW, "created_on": "2026-01-02T03:04:05.678000Z", "modified_on": "2026-02-02T00:00:00Z"}
    ]
    with pytest.raises(Refused):
        TABLE.write_skills([again(entry)], tmp_path / "out")


@given(skill=skills())
@law
def test_what_is_written_reads_back(tmp_path: Path, skill: Skill) -> None:
    path = fresh(tmp_path).with_suffix(".db")
    TABLE.write_skills([outgoing(skill)], path)
    entry = only(read_entries(path))
    found = entry.skill
    assert (found.name, found.title, found.description) == (skill.name, skill.title, skill.description)
    assert (found.body, found.tags, found.source) == (skill.body, skill.tags, skill.source)
    assert (entry.version, entry.enabled) == (skill.version, skill.enabled)
    assert (entry.created_on, entry.modified_on) == (skill.created_on, skill.modified_on)


@pytest.mark.full
@given(
    row=st.fixed_dictionaries({"_id": some_text, "title": any_text, "description": any_text, "content": any_text}),
    tags=st.lists(any_text, max_size=3),
)
@law
def test_what_was_read_is_written_back(tmp_path: Path, row: dict[str, str], tags: list[str]) -> None:
    row["content"] = row["content"].replace("\r", "").replace("\x00", "")
    path, out = (fresh(tmp_path).with_suffix(".db") for _ in range(2))
    database(path, [{**row, "tags": json.dumps(tags)}])
    TABLE.write_skills([again(only(read_entries(path)))], out)
    (back,) = rows_of(out)
    if not row["content"].strip("\n"):
        row["content"] = ""
    assert {key: back[key] for key in row} == row
    assert json.loads(back["tags"]) == tags


def test_the_columns_are_the_documented_ones() -> None:
    assert list(agent_skills_table.COLUMNS) == list(ROW)


def test_a_skill_of_another_layout_goes_into_a_table(tmp_path: Path) -> None:
    TABLE.write_skills([outgoing(plain_skill())], tmp_path / "x.sqlite")
    assert rows_of(tmp_path / "x.sqlite")[0]["_id"] == "csv-summary"
