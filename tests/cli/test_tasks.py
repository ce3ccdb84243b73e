"""`habitus tasks`, and what the files that a skill is examined by count for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.skills.fingerprint import fingerprint
from tests.cli.conftest import Direct
from tests.planted import KEYS

TASKS = """
[[task]]
id = "tea"
request = "How long does green tea draw?"
expect = "three minutes"
reviewed_by = "ann"
origin = { kind = "session", conversation = "c1", user = "ann" }
"""


def _examine(direct: Direct, text: str = TASKS, name: str = "csv-summary") -> Path:
    file = direct.skill_file(name).parent / "evals" / "tasks.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


def _hash(direct: Direct) -> str:
    with Habitus.open(read_settings(direct.home)) as habitus:
        return fingerprint(habitus.skills.snapshot().hashes)


@pytest.mark.req("IM-02")
def test_files_that_a_skill_is_examined_by_count_for_no_version_hash_or_rollback(stocked: Direct) -> None:
    before = _hash(stocked)
    file = _examine(stocked)
    evals = file.with_name("evals.json")
    evals.write_text(
        json.dumps([{"request": "Sum it.", "expect": ["12"]}, {"query": "sum up a csv file", "expect": "y"}])
    )
    stocked.ok("skills", "eval", "csv-summary", "--record", "sum up this csv")
    rows = json.loads(evals.read_text())
    assert [row.get("expect") for row in rows] == [["12"], "y", None]
    assert rows[2] == {"query": "sum up this csv", "should_trigger": True}
    assert [one["version"] for one in stocked.own()] == [1]
    assert _hash(stocked) == before
    stocked.ok("skills", "edit", "csv-summary", "--append", "9. Check it.")
    stocked.ok("skills", "rollback", "csv-summary", "--to", "1")
    assert (file.read_text(), json.loads(evals.read_text())) == (TASKS, rows)
    stocked.ok("skills", "remove", "csv-summary")
    stocked.ok("skills", "restore", "csv-summary")
    assert file.read_text() == TASKS


@pytest.mark.req("IM-02")
def test_tasks_travel_only_when_asked_to_and_without_secrets_or_who_asked(stocked: Direct, tmp_path: Path) -> None:
    _examine(stocked, TASKS.replace("green tea", KEYS["openai"]))
    stocked.ok("skills", "export", "csv-summary", "--to", str(tmp_path / "a"))
    assert not list((tmp_path / "a").rglob("evals"))
    stocked.ok("skills", "export", "csv-summary", "--to", str(tmp_path / "b"), "--with-tasks")
    (found,) = (tmp_path / "b").rglob("tasks.toml")
    assert "three minutes" in found.read_text()
    assert not {KEYS["openai"], "c1", 'user = "ann"'} & set(found.read_text().split("\n"))
    assert KEYS["openai"] not in found.read_text()
    assert "conversation" not in found.read_text()


@pytest.mark.req("IM-01", "IM-02")
def test_tasks_are_added_listed_changed_and_removed_and_undone(stocked: Direct) -> None:
    new = (
        "--request",
        "Sum up sales.csv",
        "--expect",
        "12",
        "--check",
        '{"kind": "called", "tool": "sum"}',
        "--id",
        "sum",
    )
    made = stocked.json("tasks", "add", "csv-summary", *new)
    assert made["undo"] == ["tasks", "remove", "csv-summary", "sum"]
    assert made["task"]["check"] == [{"kind": "called", "tool": "sum"}, {"kind": "contains", "text": "12"}]
    assert "has a task 'sum' already" in stocked("tasks", "add", "csv-summary", *new).err
    changed = stocked.json("tasks", "edit", "csv-summary", "sum", "--expect", "13")
    assert changed["task"]["check"] == [{"kind": "contains", "text": "13"}]
    stocked.ok(*changed["undo"])
    assert "sum: Sum up sales.csv" in stocked.ok("tasks", "list", "csv-summary")
    gone = stocked.json("tasks", "remove", "csv-summary", "sum")
    assert "has no tasks" in stocked.ok("tasks", "list", "csv-summary")
    stocked.ok(*gone["undo"])
    (found,) = stocked.json("tasks", "list", "csv-summary")["tasks"]
    assert found == made["task"]
    assert [one["version"] for one in stocked.own()] == [1]


@pytest.mark.req("IM-01", "IM-02")
def test_tasks_of_a_read_only_skill_lie_in_the_home(stocked: Direct) -> None:
    stocked.ok("tasks", "add", "write-a-skill", "--task", "-", stdin=TASKS)
    assert (stocked.home / "tasks" / "write-a-skill.toml").stat().st_mode & 0o777 == 0o600
    assert [one["id"] for one in stocked.json("tasks", "list", "write-a-skill")["tasks"]] == ["tea"]
    assert [one["name"] for one in stocked.own()] == ["csv-summary"]


@pytest.mark.req("IM-01")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add", "csv-summary", "--request", "x"), "has no check"),
        (("add", "csv-summary", "--request", "x", "--check", '{"kind": "contians"}'), "Did you mean 'contains'?"),
        (("add", "csv-summary", "--request", "x", "--check", "{"), "is not JSON"),
        (("add", "csv-sumary", "--request", "x", "--expect", "y"), "csv-summary"),
        (("edit", "csv-summary", "nothing", "--expect", "y"), "has no task 'nothing'"),
        (("remove", "csv-summary", "nothing"), "has no task 'nothing'"),
        (("mine", "--from", "moon"), "moon"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(stocked: Direct, words: tuple[str, ...], told: str) -> None:
    ran = stocked("tasks", *words)
    assert ran.code in (1, 2)
    assert told in ran.err


@pytest.mark.req("IM-01")
def test_a_check_of_tasks_shows_that_each_can_be_passed_and_failed(stocked: Direct) -> None:
    _examine(stocked, TASKS + "\n[[task]]\nid = 'lax'\nrequest = 'x'\nmatches = '.*'\nreference = { reply = 'y' }\n")
    ran = stocked("tasks", "check", "csv-summary", "--json")
    assert (ran.code, json.loads(ran.out)["tasks"]) == (
        1,
        [
            {"task": "tea", "is_sound": True, "reason": ""},
            {"task": "lax", "is_sound": False, "reason": "doing nothing passes"},
        ],
    )
    _examine(stocked)
    assert "1 of 1 task tell" in stocked.ok("tasks", "check", "csv-summary")
