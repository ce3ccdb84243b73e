"""Housekeeping: a process that stays up deletes what is past its retention, and says what is stored."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from habitus.app import Habitus
from habitus.app.operating.housekeeping import run_due_housekeeping
from habitus.journal.model import Turn, TurnMessage
from habitus.sandbox.inside.folders import remove_folder
from tests.cli.conftest import Direct
from tests.cli.test_curate import opened

START = datetime(2030, 1, 1, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def habitus_clock() -> Clock:
    return Clock()


def _fill(habitus: Habitus, count: int = 300) -> None:
    for number in range(count):
        message = TurnMessage(role="user", content=f"{number} " * 3_000)
        habitus.journal.record_complete_turn(
            Turn(id=f"t{number}", session="old", request="?", started_on=habitus.clock(), messages=(message,))
        )


def _wait(until: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not until() and time.monotonic() < end:
        time.sleep(0.05)
    return until()


@pytest.mark.req("PF-05")
def test_a_resident_process_deletes_old_turns_without_being_closed(habitus: Habitus, habitus_clock: Clock) -> None:
    _fill(habitus, 3)
    habitus_clock.now += timedelta(days=200)
    with habitus.turn("hello", conversation="new") as turn:
        turn.done("hi", ok=True)
    assert _wait(lambda: habitus.journal.list_session_ids() == {"new"})


@pytest.mark.req("PF-05")
def test_space_is_given_back_and_nothing_runs_twice_a_day(
    habitus: Habitus, habitus_clock: Clock, tmp_path: Path
) -> None:
    _fill(habitus)
    file = tmp_path / "home" / "habitus.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    full = file.stat().st_size
    habitus_clock.now += timedelta(days=200)
    done = run_due_housekeeping(habitus)
    assert done is not None
    assert (done.turns, done.ran_on) == (300, habitus_clock.now)
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert done.freed_bytes > full / 2 > file.stat().st_size
    habitus_clock.now += timedelta(hours=23)
    assert run_due_housekeeping(habitus) is None
    habitus_clock.now += timedelta(hours=1)
    again = run_due_housekeeping(habitus)
    assert again is not None
    assert again.turns == 0


@pytest.mark.req("PF-05")
def test_doctor_says_what_is_stored_since_when_and_what_was_freed(direct: Direct) -> None:
    assert "no turns, " in direct.ok("doctor")
    with opened(direct) as habitus, habitus.turn("hello") as turn:
        turn.done("hi", ok=True)
    said = direct.ok("doctor")
    assert f"turns since {datetime.now():%Y-%m-%d}" in said
    assert "0 old turns deleted, 0 bytes freed" in said


def test_a_damaged_report_is_replaced(habitus: Habitus, tmp_path: Path) -> None:
    (tmp_path / "home" / "housekeeping.json").write_text("{")
    assert run_due_housekeeping(habitus) is not None
    assert run_due_housekeeping(habitus) is None


@pytest.mark.req("IM-10", "PF-05")
def test_housekeeping_removes_what_killed_solvers_left(habitus: Habitus) -> None:
    for name, is_old in (("left", True), ("new", False)):
        folder = habitus.settings.user_home / ".cache" / "habitus" / f"habitus-ask-{name}"
        (folder / "pi").mkdir(parents=True)
        (folder / "pi" / "auth.json").write_text("a copy of the sign-in")
        (folder / "deep").mkdir()
        for _ in range(1_200):
            # Deeper than a recursive removal can go.
            (folder / "next").mkdir()
            (folder / "deep").rename(folder / "next" / "deep")
            (folder / "next").rename(folder / "deep")
        if is_old:
            os.utime(folder, (0, 0))
    assert run_due_housekeeping(habitus) is not None
    assert [path.name for path in folder.parent.iterdir()] == ["habitus-ask-new"]
    remove_folder(str(folder))
