"""What a person does wrong: one line on standard error, the right exit code, the hint, and never a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Direct

pytestmark = pytest.mark.req("CL-01", "SC-01")


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("skils",), 2, "No such command 'skils'. Did you mean 'skills'"),
        (("skills", "lst"), 2, "Did you mean 'list'?"),
        (("dream",), 2, "No such command 'dream'. Did you mean 'learn dream'?"),
        (("skills", "list", "--jsn"), 2, "--json"),
        (("skills", "edit", "csv-summary", "--apend", "x"), 2, "--append"),
        (("skills", "list", "--state", "brokn"), 2, "'brokn' is not one of"),
        (("skills", "list", "--layer", "usr"), 1, "There is no layer 'usr'. Did you mean 'user'?"),
        (("skills", "show", "csv-sumary"), 1, "No skill 'csv-sumary'. Did you mean 'csv-summary'?"),
        (("skills", "show", "CSV_Sumary@user"), 1, "Did you mean 'csv-summary@user'?"),
        (("skills", "show", "csv-summary@clade"), 1, "Did you mean 'claude'?"),
        (("skills", "show", "csv-summary@"), 1, "names no layer after the '@'"),
        (("skills", "edit", "csv-sumary", "--append", "x"), 1, "Did you mean 'csv-summary'?"),
        (("skills", "remove", "csv-sumary"), 1, "Did you mean 'csv-summary'?"),
        (("skills", "remove", "csv-summary", "nope"), 1, "No skill 'nope'"),
        (("skills", "restore", "csv-sumary"), 1, "The archive has no skill"),
        (("skills", "restore", "²"), 1, "The archive has no skill"),
        (("skills", "restore", "#99999999999999999999999"), 1, "The archive has no skill"),
        (("skills", "enable", "csv-sumary"), 1, "Did you mean 'csv-summary'?"),
        (("skills", "history", "csv-sumary"), 1, "Did you mean 'csv-summary'?"),
        (("skills", "stats", "csv-sumary"), 1, "Did you mean 'csv-summary'?"),
        (("skills", "lint", "csv-sumary"), 1, "Did you mean 'csv-summary'?"),
        (("skills", "lint", "./nowhere"), 1, "is not a directory"),
        (("skills", "lint", "x" * 300), 1, "No skill"),
        (("skills", "lint", "./" + "x" * 300), 1, "is not a directory"),
        (("skills", "new", "csv-summary", "-d", "D"), 1, "There is a skill 'csv-summary' already (version 1)."),
        (("skills", "new", "../x"), 1, "can't be the name of a skill"),
        (("skills", "new", "a/b"), 1, "'a-b' would do"),
        (("skills", "new", "a\nb"), 1, "'a-b' would do"),
        (("skills", "new", "x", "--layer", "bundled"), 1, "read-only"),
        (("skills", "new", "x", "--layer", "bundld"), 1, "Did you mean 'bundled'?"),
        (("skills", "new", "x", "-d", "a <b>"), 1, "has a '<' or '>' in it"),
        (("skills", "new", "x", "-d", "y" * 1025), 1, "The description has 1025 characters."),
        (("skills", "new", "x", "-d", "a\udcff"), 1, "half of a character"),
        (("skills", "new", "x", "--file", "nowhere.md"), 1, "Can't read nowhere.md: No such file"),
        (("skills", "new", "x", "--file", "."), 1, "Can't read .: Is a directory"),
        (("skills", "new"), 2, "Missing argument 'name'. See 'habitus skills new --help'."),
        (("check", "extra"), 2, "(extra). See 'habitus check --help'."),
        (("report", "rows", "x"), 2, "for 'of': 'x' is not one of"),
        (("report", "--month", "9999-12"), 1, "Nothing can have happened in 9999-12."),
        (("report", "--month", "0001-01"), 1, "Nothing can have happened in 0001-01."),
        (("skills", "edit", "csv-summary"), 2, "No terminal for an editor"),
        (("skills", "edit", "csv-summary", "--find", "x"), 2, "--find needs --with"),
        (("skills", "edit", "csv-summary", "--with", "x"), 2, "--with needs --find"),
        (("skills", "edit", "csv-summary", "--all"), 2, "--all needs --find"),
        (("skills", "edit", "csv-summary", "--append", "x", "--delete", "y"), 2, "can't be done in one go"),
        (("skills", "edit", "csv-summary", "--find", "", "--with", "x"), 1, "The text to find is empty."),
        (("skills", "edit", "csv-summary", "--delete", "not there"), 1, "The text 'not there' is not in the skill."),
        (("skills", "edit", "csv-summary", "--expect", "seven", "--append", "x"), 1, "'seven' is not a version."),
        (("skills", "diff", "csv-summary", "1", "7"), 1, "'csv-summary' has no version 7. It has: 1."),
        (("skills", "diff", "csv-summary", "9" * 25), 2, "less than or equal"),
        (("skills", "rollback", "csv-summary", "--to", "7"), 1, "version 7"),
        (("skills", "rollback", "csv-summary", "--to", "9" * 25), 2, "less than or equal"),
        (("skills", "rollback", "csv-summary"), 2, "Missing option '--to'"),
        (("skills", "show", "csv-summary", "--version", "7"), 1, "has no version 7"),
        (("skills", "show", "a\nb"), 1, "No skill 'a b'."),
        (("undo", "since", "someday"), 1, "'someday' is not a time that can be read."),
        (("undo", "since", "9" * 25 + "w"), 1, "is not a time that can be read."),
        (("undo", "since", "0001-01-01"), 1, "is not a time that can be read."),
        (("undo", "since", "2999-01-01"), 2, "is in the future"),
    ],
    ids=lambda value: (
        " ".join(value)[:60].replace("\n", "|").encode("ascii", "replace").decode() if isinstance(value, tuple) else ""
    ),
)
def test_a_mistake_is_one_line_with_its_hint(stocked: Direct, args: tuple[str, ...], code: int, says: str) -> None:
    before = stocked.skill_file("csv-summary").read_bytes()
    ran = stocked(*args)
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("habitus: ")
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    assert "Internal error" not in ran.err
    assert stocked.skill_file("csv-summary").read_bytes() == before
    assert [path.name for path in (stocked.home / "skills").iterdir()] == ["csv-summary"]


@pytest.mark.parametrize(
    ("args", "code"),
    [(("skills", "show", "csv-sumary"), 1), (("skills", "lst"), 2), (("skills", "show", "a\udcff"), 1)],
)
def test_a_mistake_asked_for_as_json_is_json(stocked: Direct, args: tuple[str, ...], code: int) -> None:
    ran = stocked(*args, "--json")
    assert ran.code == code
    assert json.loads(ran.out)["error"]
    assert ran.err == ""


def test_the_hint_stands_once_in_json(stocked: Direct) -> None:
    assert json.loads(stocked("skills", "show", "csv-sumary", "--json").out) == {
        "error": "No skill 'csv-sumary'.",
        "hint": "Did you mean 'csv-summary'?",
    }


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"---\nname: x\n", "never closed"),
        (b"---\n- a\n---\n", "is a list, not fields"),
        (b"---\nname: x\n---\n\x00", "NUL byte"),
        (b"plain \x00 text", "NUL byte"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"x" * (1024 * 1024 + 1), "SKILL.md may have 1,048,576"),
        (b"---\nname: x\ndescription: " + b"[" * 100_000 + b"\n---\n", "nested more than 50 deep"),
    ],
)
def test_a_file_that_is_no_skill_is_refused_and_nothing_is_written(
    direct: Direct, tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "given.md"
    path.write_bytes(content)
    ran = direct("skills", "new", "x", "--file", str(path))
    assert ran.code == 1
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert direct.own() == []


@pytest.mark.req("SK-02")
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("bad/SKILL.md", b"no frontmatter"),
        ("bad/SKILL.md", b"---\nunclosed"),
        ("bad/SKILL.md", b"---\n- a\n---\n"),
        ("bad/SKILL.md", b"\xff"),
        ("bad/SKILL.md", b"\x00"),
        ("bad/SKILL.md", b"---\nname: bad\n---\n" + b"x" * 1024 * 1024),
        ("bad/SKILL.md", b"---\na: " + b"[" * 100_000 + b"\n---\n"),
        ("bad/SKILL.md", b"---\na: !!bool x\nb: !!binary eA==\nc: !!timestamp y\n---\n"),
        ("bad/SKILL.md/file", b""),
        ("bad/notes.md", b"no SKILL.md here"),
        ("bad\udcff/SKILL.md", b"---\nname: bad\ndescription: d\n---\nb"),
        ("bad/\udcfe.txt", b"a file with an odd name"),
        ("Bad Name/SKILL.md", b"---\nname: bad\ndescription: d\n---\nb"),
    ],
)
def test_a_bad_file_never_hides_its_neighbours(stocked: Direct, path: str, content: bytes) -> None:
    bad = stocked.home / "skills" / path
    bad.parent.mkdir(parents=True)
    bad.write_bytes(content)
    listed = {item["name"]: item["state"] for item in stocked.own()}
    assert listed.pop("csv-summary") == "ok"
    assert len(listed) == 1
    assert bad.read_bytes() == content


@pytest.mark.req("SK-04")
def test_a_link_out_of_the_root_is_broken_not_followed(stocked: Direct, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "SKILL.md").write_text("---\nname: out\ndescription: d\n---\nb")
    (stocked.home / "skills" / "out").symlink_to(tmp_path / "outside")
    listed = {item["name"]: item["state"] for item in stocked.own()}
    assert listed == {"csv-summary": "ok", "out": "broken"}


def test_a_home_that_cannot_be_one_is_said_in_one_line(direct: Direct) -> None:
    shutil.rmtree(direct.home)
    direct.home.write_text("I am a file")
    for home in (str(direct.home), str(direct.home / "below"), "/proc/habitus", "x" * 300, "~nobody-here/x"):
        ran = direct("--home", home, "skills", "list")
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("habitus: ")
        assert ran.err.count("\n") == 1
        assert "Internal error" not in ran.err
    assert direct.home.read_text() == "I am a file"


def test_odd_settings_are_said_and_wrong_ones_stop(stocked: Direct) -> None:
    toml = stocked.home / "habitus.toml"
    toml.write_text("disabled_skils = ['csv-summary']")
    ran = stocked("skills", "list", "--json")
    assert ran.code == 0
    assert "csv-summary" in [item["name"] for item in json.loads(ran.out)["skills"]]
    assert "Did you mean 'disabled_skills'?" in ran.err
    toml.write_text("look_every = 'often'")
    assert stocked("skills", "list").code == 1
    assert "look_every" in stocked("skills", "list").err
    toml.write_text("database_url = 'mysql://x'")
    assert "unknown key 'database_url' is ignored. Did you mean 'database'?" in stocked("skills", "list").err
    toml.write_text("database = 'mysql://x'")
    ran = stocked("skills", "list")
    assert (ran.code, ran.err.count("\n")) == (1, 1)


@pytest.mark.req("SK-15")
def test_gates_show_in_the_listing_with_what_opens_them(stocked: Direct) -> None:
    toml = stocked.home / "habitus.toml"
    toml.write_text("disabled_skills = ['CSV_Summary']")
    (item,) = stocked.own()
    assert (item["state"], item["reason"]) == ("disabled", "switched off in the settings")
    toml.write_text("[users.bea]\nadmin = true\n")
    path = stocked.skill_file("csv-summary")
    path.write_text("---\nname: csv-summary\ndescription: D\nadmin_only: true\nexperimental: true\n---\n\nB\n")
    (item,) = stocked.own()
    opens = "for administrators only; experimental; add 'skill_csv_summary' to [experimental] features"
    assert (item["state"], item["reason"]) == ("gated", opens)
