"""What was done to a skill beside its files, and the undo of one change among others, through the command line."""

from __future__ import annotations

import pytest

from habitus.settings import account_name
from tests.cli.conftest import Direct


def _switches(direct: Direct) -> list[tuple[str, str, str]]:
    told = direct.json("skills", "history", "csv-summary")["switches"]
    return [(switch["action"], switch["author"]["name"], switch["author"]["reason"]) for switch in told]


def _newest(direct: Direct) -> str:
    return str(max(one["made_on"] for one in direct.json("skills", "history", "csv-summary")["switches"]))


@pytest.mark.req("SK-11", "SK-12")
def test_switching_removing_and_restoring_stand_in_the_history_with_who_and_when(stocked: Direct) -> None:
    stocked.ok("skills", "disable", "csv-summary")
    stocked.ok("skills", "disable", "csv-summary")
    stocked.ok("skills", "enable", "csv-summary")
    stocked.ok("skills", "remove", "csv-summary", "--reason", "a trial")
    me = account_name()
    removed = [("disabled", me, ""), ("enabled", me, ""), ("removed", me, "a trial")]
    assert _switches(stocked) == removed
    stocked.ok("skills", "restore", "csv-summary")
    assert _switches(stocked) == [*removed, ("restored", me, "restored")]
    changes = [line.split()[0] for line in stocked.ok("skills", "history", "csv-summary").splitlines()]
    assert changes == ["change", "restored", "removed", "enabled", "disabled", "v1"]


@pytest.mark.req("SK-11")
def test_what_was_removed_by_hand_stands_in_the_history(stocked: Direct) -> None:
    stocked.skill_file("csv-summary").unlink()
    stocked.skill_file("csv-summary").parent.rmdir()
    told = stocked.json("skills", "history", "csv-summary")["switches"]
    assert [(switch["action"], switch["author"]["actor"]) for switch in told] == [("removed", "disk")]


@pytest.mark.req("SK-22")
def test_a_moment_has_its_switches_and_its_archive(stocked: Direct) -> None:
    moments = []
    for change in ("disable", "enable", "remove", "restore"):
        stocked.ok("skills", change, "csv-summary")
        moments.append(_newest(stocked))
    states = []
    for moment in (*moments, *reversed(moments)):
        stocked.ok("rollback", "--to", moment)
        states.append([item["state"] for item in stocked.own()])
    there = [["disabled"], ["ok"], [], ["ok"]]
    assert states == [*there, *reversed(there)]


@pytest.mark.req("SK-22")
def test_the_steps_to_a_moment_name_the_switches(stocked: Direct) -> None:
    stocked.ok("skills", "disable", "csv-summary")
    moment = _newest(stocked)
    stocked.ok("skills", "enable", "csv-summary")
    assert stocked.ok("rollback", "--to", moment, "--dry-run") == "disable  csv-summary\n"
