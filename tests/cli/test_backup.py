"""A home as one file: made while somebody writes, put back whole, with what was there kept and nobody brought back."""

from __future__ import annotations

import multiprocessing
import shutil
import sqlite3
import tarfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.home_directory import DATABASE
from habitus.app.operating import backing_up
from tests.cli.conftest import Direct
from tests.journeys.crash import Killer


@pytest.mark.req("OP-04", "SK-12")
def test_a_backup_brings_everything_back_and_can_itself_be_undone(stocked: Direct) -> None:
    stocked.ok("lessons", "add", "Water has to boil.")
    (stocked.home / "web.key").write_bytes(b"k" * 32)
    with closing(sqlite3.connect(stocked.home / DATABASE)) as database, database:
        database.execute("INSERT INTO signing_keys VALUES ('people', 'opens-every-door')")
    with closing(sqlite3.connect(stocked.home / DATABASE)) as reader:  # as somebody does who is in the midst of it
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM skills").fetchone()
        made = stocked.json("db", "backup")
    with tarfile.open(made["file"]) as archive:
        names = archive.getnames()
        copy = archive.extractfile(DATABASE)
        assert copy is not None
        assert b"opens-every-door" not in copy.read()
    assert {"backup.json", DATABASE, "skills/csv-summary/SKILL.md"} <= set(names)
    assert not [name for name in names if name.startswith(("web.key", "backups", "cache"))]
    assert Path(made["file"]).stat().st_mode & 0o077 == 0
    before = stocked.ok("skills", "show", "csv-summary"), stocked.ok("lessons", "list")
    stocked.ok("skills", "edit", "csv-summary", "--append", "Later.")
    stocked.ok("skills", "new", "too-late", "-d", "Came later.")
    (lesson,) = stocked.json("lessons", "list")["lessons"]
    stocked.ok("lessons", "remove", lesson["id"])
    done = stocked.json("db", "restore", Path(made["file"]).name, "--yes")
    assert (stocked.ok("skills", "show", "csv-summary"), stocked.ok("lessons", "list")) == before
    assert [skill["name"] for skill in stocked.own()] == ["csv-summary"]
    assert len(stocked.json("db", "backups")["backups"]) == 2
    stocked.ok("db", "restore", done["before"]["file"], "--yes")
    assert [skill["name"] for skill in stocked.own()] == ["csv-summary", "too-late"]


@pytest.mark.full
@pytest.mark.req("OP-04")
def test_whoever_was_forgotten_is_not_brought_back_by_a_restore(stocked: Direct) -> None:
    ann = {"HABITUS_USER": "ann"}
    stocked.ok("lessons", "add", "The zeppelin leaves on Tuesdays.", env=ann)
    made = stocked.json("db", "backup")
    stocked.ok("users", "forget", "ann", "--yes", env=ann)
    stocked.ok("db", "restore", made["file"], "--yes")
    assert b"zeppelin" not in (stocked.home / DATABASE).read_bytes()
    assert stocked.json("users", "forget", "ann", "--dry-run", env=ann)["erased"] == {}


@pytest.mark.req("OP-04")
def test_what_is_no_backup_or_a_hostile_one_changes_nothing(stocked: Direct, tmp_path: Path) -> None:
    stocked.ok("db", "backup", str(good := tmp_path / "good.tar.gz"))
    half = tmp_path / "half.tar.gz"
    half.write_bytes(good.read_bytes()[:-200])
    hostile = tmp_path / "hostile.tar.gz"
    with tarfile.open(good) as source, tarfile.open(hostile, "w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member))
        target.addfile(tarfile.TarInfo("../outside"))
    (tmp_path / "text.tar.gz").write_text("hello")
    before = stocked.skill_file("csv-summary").read_bytes()
    for name in ("half", "hostile", "text", "none"):
        ran = stocked("db", "restore", str(tmp_path / f"{name}.tar.gz"), "--yes")
        assert (ran.code, ran.err.count("\n"), "Traceback" in ran.err) == (1, 1, False)
    assert "is there already" in stocked("db", "backup", str(good)).err
    assert "add --yes" in stocked("db", "restore", str(good)).err
    assert stocked.skill_file("csv-summary").read_bytes() == before
    assert not (tmp_path / "outside").exists()


def _restore_and_die(home: Path, file: Path, at: int) -> None:
    killer = Killer(at)
    killer.watch()
    killer.is_on = True
    backing_up.restore_backup(read_settings(home, {"HOME": str(home)}), file, now=datetime.now(UTC))


def _seen(home: Path) -> Sequence[object]:
    """What whoever comes next finds."""
    with Habitus.open(read_settings(home, {"HOME": str(home)})) as habitus:
        own = [item for item in habitus.skills.list_skills() if item.layer == "user"]
        texts = [(item.name, habitus.skills.load(item.name).body) for item in own]
        return [*texts, *(engram.text for engram in habitus.memory.list_lessons()), habitus.settings.bot_name]


@pytest.mark.full
@pytest.mark.req("OP-04", "SC-02")
def test_a_kill_at_any_step_of_a_restore_leaves_the_home_as_it_was_or_restored(
    stocked: Direct, tmp_path: Path, is_thorough: bool
) -> None:
    stocked.ok("config", "set", "bot_name", "Robin")
    made = Path(stocked.json("db", "backup", str(tmp_path / "made.tar.gz"))["file"])
    restored = _seen(stocked.home)
    stocked.ok("skills", "edit", "csv-summary", "--append", "Later.")
    stocked.ok("skills", "new", "too-late", "-d", "Came later.")
    stocked.ok("lessons", "add", "Water has to boil.")
    stocked.ok("config", "set", "bot_name", "Wren")
    as_it_was = _seen(stocked.home)
    assert as_it_was != restored
    context, found = multiprocessing.get_context("fork"), []
    for at in range(1, 10_000, 1 if is_thorough else 29):
        home = tmp_path / f"at-{at}"
        shutil.copytree(stocked.home, home)
        process = context.Process(target=_restore_and_die, args=(home, made, at))
        process.start()
        process.join()
        found.append(_seen(home))
        assert found[-1] in (as_it_was, restored), at
        assert not (home / ".replacing" / "begun.json").exists()
        shutil.rmtree(home)
        if process.exitcode == 0:
            break
        assert process.exitcode == -9
    assert found[0] == as_it_was
    assert as_it_was not in found[found.index(restored) :]  # what was begun is completed, never taken back


@pytest.mark.req("OP-04")
def test_a_home_that_somebody_is_in_is_not_replaced(stocked: Direct, tmp_path: Path) -> None:
    made = stocked.json("db", "backup")
    stocked.ok("skills", "new", "too-late", "-d", "Came later.")
    with Habitus.open(read_settings(stocked.home, {"HOME": str(tmp_path)})):
        ran = stocked("db", "restore", made["file"], "--yes")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "is in use by another process" in ran.err
    assert "too-late" in stocked.ok("skills", "list")
    stocked.ok("db", "restore", made["file"], "--yes")
    assert "too-late" not in stocked.ok("skills", "list")
