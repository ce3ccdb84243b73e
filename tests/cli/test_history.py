"""What was done to a skill beside its files, and the undo of one change among others, through the command line."""

from __future__ import annotations

import re
import shlex

import pytest

from habitus.cli import output
from habitus.operating_system import get_account_name
from habitus.skills.model import ActorKind, Author
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
    me = get_account_name()
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


@pytest.mark.full
@pytest.mark.req("SK-22")
def test_a_timestamp_has_its_switches_and_its_archive(stocked: Direct) -> None:
    timestamps = []
    for change in ("disable", "enable", "remove", "restore"):
        stocked.ok("skills", change, "csv-summary")
        timestamps.append(_newest(stocked))
    states = []
    for timestamp in (*timestamps, *reversed(timestamps)):
        stocked.ok("undo", "since", timestamp)
        states.append([item["state"] for item in stocked.own()])
    there = [["disabled"], ["ok"], [], ["ok"]]
    assert states == [*there, *reversed(there)]


@pytest.mark.req("SK-22")
def test_the_steps_to_a_timestamp_name_the_switches(stocked: Direct) -> None:
    stocked.ok("skills", "disable", "csv-summary")
    timestamp = _newest(stocked)
    stocked.ok("skills", "enable", "csv-summary")
    assert stocked.ok("undo", "since", timestamp, "--dry-run") == "disable  csv-summary\n"


def _undo_line(out: str) -> list[str]:
    (line,) = re.findall(r"^Undo: habitus (.*)$", out, re.MULTILINE)
    return shlex.split(line)


def _body(direct: Direct) -> str:
    return str(direct.json("skills", "show", "csv-summary")["body"])


@pytest.mark.req("SK-11", "SK-12")
def test_the_undo_of_an_edit_keeps_what_others_wrote_before_and_since(stocked: Direct) -> None:
    stocked.ok("skills", "edit", "csv-summary", "--replace", "1. Read.\n2. Sum.\n3. Tell.")
    out = stocked.ok("skills", "edit", "csv-summary", "--append", "4. Mine.")
    stocked.ok("skills", "edit", "csv-summary", "--append", "5. Theirs.", "-d", "Sums up.")
    said = stocked.ok(*_undo_line(out))
    assert _body(stocked).split("\n") == ["1. Read.", "2. Sum.", "3. Tell.", "5. Theirs."]
    assert stocked.json("skills", "show", "csv-summary")["description"] == "Sums up."
    stocked.ok(*_undo_line(said))
    assert _body(stocked).split("\n") == ["1. Read.", "2. Sum.", "3. Tell.", "4. Mine.", "5. Theirs."]


@pytest.mark.req("SK-12")
def test_an_undo_where_others_changed_the_same_lines_changes_nothing_and_says_so(stocked: Direct) -> None:
    stocked.ok("skills", "edit", "csv-summary", "--replace", "1. Read.")
    out = stocked.ok("skills", "edit", "csv-summary", "--find", "Read.", "--with", "Read twice.")
    stocked.ok("skills", "edit", "csv-summary", "--find", "twice", "--with", "three times")
    ran = stocked(*_undo_line(out))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "habitus: Version 3 of 'csv-summary' can't be undone on its own: SKILL.md has changed in the same place since. "
        "Compare 'habitus skills diff csv-summary@user 2 3' and edit it; nothing was changed.\n"
    )
    assert _body(stocked) == "1. Read three times."


@pytest.mark.req("SK-12")
def test_the_undo_of_a_new_skill_keeps_it_where_others_went_on_with_it(direct: Direct) -> None:
    out = direct.ok("skills", "new", "csv-summary", "-d", "D")
    direct.ok("skills", "edit", "csv-summary", "--append", "Theirs.")
    ran = direct(*_undo_line(out))
    assert ran.code == 1
    assert f"has been changed since (version 2 by {get_account_name()})" in ran.err
    assert "Theirs." in _body(direct)


@pytest.mark.req("SK-12")
@pytest.mark.parametrize(
    "command",
    [
        ("skills", "enable", "csv-summary"),
        ("skills", "edit", "csv-summary", "-d", "Sums up a CSV file."),
        ("skills", "rollback", "csv-summary", "--to", "1"),
        ("undo", "since", "now"),
        ("undo", "csv-summary:2"),
    ],
    ids=" ".join,
)
def test_what_changes_nothing_prints_no_undo(stocked: Direct, command: tuple[str, ...]) -> None:
    if command[0] == "undo":
        stocked.ok("skills", "edit", "csv-summary", "--append", "x")
        stocked.ok("undo", "csv-summary:2")
    assert "Undo:" not in stocked.ok(*command)


@pytest.mark.req("SK-12")
def test_the_undo_of_a_removal_brings_back_that_very_one(stocked: Direct) -> None:
    stocked.ok("skills", "edit", "csv-summary", "--replace", "Mine.")
    out = stocked.ok("skills", "remove", "csv-summary")
    stocked.ok("skills", "new", "csv-summary", "-d", "Theirs")
    stocked.ok("skills", "remove", "csv-summary")
    stocked.ok(*_undo_line(out))
    assert _body(stocked) == "Mine."


@pytest.mark.req("SK-12")
def test_the_undo_of_switching_leaves_alone_what_was_so_before(stocked: Direct) -> None:
    stocked.ok("skills", "new", "second", "-d", "D")
    stocked.ok("skills", "disable", "second")
    stocked.ok(*_undo_line(stocked.ok("skills", "disable", "csv-summary", "second")))
    assert [item["state"] for item in stocked.own()] == ["ok", "disabled"]


@pytest.mark.req("SK-12", "SK-18")
def test_the_undo_of_an_import_keeps_what_was_done_since(stocked: Direct) -> None:
    source = stocked.cli.cwd / "source"
    for name, text in {"csv-summary": "Theirs.", "second": "Second.", "third": "Third."}.items():
        (source / name).mkdir(parents=True)
        (source / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Of {name}.\n---\n\n{text}\n")
    before = _body(stocked)
    out = stocked.ok("skills", "import", str(source), "--overwrite")
    stocked.ok("skills", "edit", "third", "--append", "Mine.")
    stocked.ok("skills", "new", "fourth", "-d", "D")
    ran = stocked(*_undo_line(out))
    assert ran.code == 1
    assert "'third' has been changed since (version 2 by" in ran.err
    assert [item["name"] for item in stocked.own()] == ["csv-summary", "fourth", "third"]
    assert _body(stocked) == before
    assert "Mine." in stocked.ok("skills", "show", "third")


@pytest.mark.req("SK-22")
def test_the_undo_of_going_back_to_a_timestamp_keeps_what_was_done_since(stocked: Direct) -> None:
    stocked.ok("skills", "disable", "csv-summary")
    timestamp = _newest(stocked)
    stocked.ok("skills", "enable", "csv-summary")
    stocked.ok("skills", "edit", "csv-summary", "--append", "Later.")
    stocked.ok("skills", "new", "second", "-d", "D")
    stocked.ok("lessons", "add", "Invoices go to the accountant on Fridays.")
    out = stocked.ok("undo", "since", timestamp)
    assert "2 skills and 1 lesson were rolled back" in out  # the first takes two steps
    stocked.ok("skills", "new", "third", "-d", "D")
    stocked.ok(*_undo_line(out))
    assert [(item["name"], item["state"]) for item in stocked.own()] == [
        ("csv-summary", "ok"),
        ("second", "ok"),
        ("third", "ok"),
    ]
    assert "Later." in _body(stocked)
    assert "Invoices" in stocked.ok("lessons", "list")


@pytest.mark.req("SK-12")
def test_the_undo_of_a_lessons_edit_keeps_what_others_changed_of_it_since(direct: Direct) -> None:
    direct.ok("lessons", "add", "Invoices go to the accountant on Fridays.")
    (lesson,) = direct.json("lessons", "list")["lessons"]
    out = direct.ok("lessons", "edit", lesson["id"], "--text", "Invoices go to the accountant on Mondays.")
    direct.ok("lessons", "edit", lesson["id"], "--topic", "money")
    direct.ok(*_undo_line(out))
    (after,) = direct.json("lessons", "list")["lessons"]
    assert (after["text"], after["topic"]) == ("Invoices go to the accountant on Fridays.", "money")
    assert "Undo:" not in direct.ok("lessons", "edit", lesson["id"], "--topic", "money")


def test_a_change_that_nobody_knows_is_said(stocked: Direct) -> None:
    for wrong in ("%", "", "0badcafe"):
        ran = stocked("undo", wrong)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith(f"habitus: No change '{wrong}' is known. Write NAME:VERSION")
    assert "names no version" in stocked("undo", "csv-summary:x").err
    assert "has no version 9" in stocked("undo", "csv-summary:9").err


def test_who_did_it_is_said_once() -> None:
    made = [
        Author(actor=ActorKind.AGENT, name="agent"),
        Author(actor=ActorKind.AGENT),
        Author(actor=ActorKind.USER, name="ann"),
    ]
    assert [output.format_author_and_reason(author) for author in made] == ["agent", "agent", "user ann"]
