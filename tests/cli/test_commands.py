"""Every command, its JSON, its exit code, and the line that takes it back."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.cli.commands import HELP_SECTIONS, build_commands
from habitus.journal.model import UseManner
from habitus.operating_system import get_account_name
from tests.cli.conftest import Direct
from tests.homes import furnish
from tests.usage import record_use

pytestmark = pytest.mark.req("CL-01")

_OF_SKILLS = "list show new edit enable disable remove restore history diff rollback lint stats"
COMMANDS = [
    *((name,) for name in ("tour", "doctor", "skills")),
    *(("learn", name) for name in ("learn", "pause", "resume", "curate", "dream")),
    ("undo", "since"),
    *(("skills", name) for name in _OF_SKILLS.split()),
    *(("tools", name) for name in ["new", "list", "show", "run", "test", "remove", "restore"]),
    *(("tools", "scratchpad", name) for name in ["exec", "list", "view", "reset", "remove"]),
]


@pytest.mark.parametrize("asked", [(), ("--help",)])
def test_habitus_alone_explains_itself_on_one_screen_by_what_one_wants(direct: Direct, asked: tuple[str, ...]) -> None:
    ran = direct(*asked)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    titles = [line.partition(" (")[0] for line in lines[2:-3] if not line.startswith(" ")]
    assert titles == [title for title, _, _ in HELP_SECTIONS]
    explained = [line.split()[0] for line in lines if line.startswith("  ")]
    assert len(explained) <= 12
    others = [name for found in re.findall(r"\(also: (.*)\)", ran.out) for name in found.split(", ")]
    # Hidden ones count as well: there are none.
    assert sorted(explained + others) == sorted(command.name or "" for command in build_commands())
    assert len(explained + others) <= 22


def test_every_command_explains_itself(direct: Direct) -> None:
    def explain(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
        yield words
        for name, below in getattr(command, "commands", {}).items():
            yield from explain(below, *words, name)

    for command in build_commands():
        for words in explain(command, command.name or ""):
            ran = direct(*words, "--help")
            assert (ran.code, ran.err) == (0, ""), words
            assert ran.out.startswith(f"Usage: habitus {' '.join(words)}"), words
            assert "--json" in ran.out or words not in COMMANDS or words == ("skills",), words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("review approve zzz", "There is no proposal or lesson 'zzz'. See 'habitus review list'."),
        ("skills new a --description ''", "A skill needs a description. Say in one sentence what it does."),
        ("tools run NOSUCH x", "There is no tool 'NOSUCH'. See 'habitus tools list'."),
        ("skills recipes run NOSUCH x", "There is no recipe 'NOSUCH'. See 'habitus skills recipes list'."),
    ],
)
def test_an_error_names_the_thing_that_is_missing(direct: Direct, words: str, said: str) -> None:
    ran = direct(*shlex.split(words))
    assert (ran.code, ran.err) == (1, f"habitus: {said}\n")


def test_a_new_skill_is_listed_with_name_and_state(stocked: Direct) -> None:
    (item,) = stocked.own()
    wanted = {
        "name": "csv-summary",
        "state": "ok",
        "layer": "user",
        "version": 1,
        "description": "Sums up a CSV file.",
        "when_to_use": "Totals are asked for",
        "tags": ["data"],
        "source": "user",
        "enabled": True,
        "hidden": [],
        "diagnostics": [],
        "manifest": {},
    }
    assert {key: item[key] for key in wanted} == wanted
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", item["created_on"])


@pytest.mark.full
def test_a_listing_can_be_narrowed(stocked: Direct) -> None:
    stocked.ok("skills", "new", "other", "-d", "Other.")
    stocked.ok("skills", "disable", "other")

    def names(*options: str) -> list[str]:
        return [item["name"] for item in stocked.own(*options)]

    assert names() == ["csv-summary", "other"]
    assert names("--tag", "data") == ["csv-summary"]
    assert names("--state", "disabled") == ["other"]
    assert stocked.json("skills", "list", "--layer", "claude")["skills"] == []
    assert "No matches." in stocked.ok("skills", "list", "--tag", "nothing")


def test_new_without_a_file_writes_a_skeleton_and_reads_no_input(direct: Direct) -> None:
    made = direct.json("skills", "new", "My_Skill", stdin="not for you", env={"EDITOR": "/bin/false"})
    directory = str(direct.home / "skills" / "my-skill")
    undo = ["undo", "my-skill@user:1"]
    assert made == {"name": "my-skill", "version": 1, "layer": "user", "directory": directory, "undo": undo}
    text = direct.skill_file("my-skill").read_text()
    assert "# My skill" in text
    assert "not for you" not in text


def test_new_takes_the_steps_from_a_file_and_its_fields_from_options(direct: Direct) -> None:
    path = direct.cli.cwd / "given.md"
    path.write_text("---\nname: other\ndescription: From the file.\ntags: [x]\n---\n\n1. Do it.\n")
    direct.ok("skills", "new", "given", "--file", str(path), "--when", "Now")
    shown = direct.json("skills", "show", "given")
    assert [shown[key] for key in ("name", "description", "when_to_use", "tags", "body")] == [
        "given",
        "From the file.",
        "Now",
        ["x"],
        "1. Do it.",
    ]
    direct.ok("skills", "new", "piped", "-d", "D", "--file", "-", stdin="Only steps.\n")
    assert direct.json("skills", "show", "piped")["body"] == "Only steps."


@pytest.mark.req("SK-09", "SK-10")
def test_edit_by_each_flag(stocked: Direct) -> None:
    def edited(*flags: str, stdin: str = "") -> str:
        stocked.ok("skills", "edit", "csv-summary", *flags, stdin=stdin)
        body: str = stocked.json("skills", "show", "csv-summary")["body"]
        return body

    assert edited("--replace", "one two one") == "one two one"
    assert edited("--append", r"$& \1") == "one two one\n$& \\1"
    assert edited("--prepend", "zero") == "zero\none two one\n$& \\1"
    assert edited("--delete", "\n$& \\1") == "zero\none two one"
    assert edited("--find", "one", "--with", "1") == "zero\n1 two one"
    assert edited("--find", "o", "--with", "0", "--all") == "zer0\n1 tw0 0ne"
    assert edited("--replace", "-", stdin="from a pipe\n") == "from a pipe"
    assert edited("--title", "T", "-d", "New.", "-w", "Soon", "--tags", "a, b") == "from a pipe"
    shown = stocked.json("skills", "show", "csv-summary")
    assert [shown[key] for key in ("title", "description", "when_to_use", "tags", "version")] == [
        "T", "New.", "Soon", ["a", "b"], 9,
    ]  # fmt: skip
    assert "is unchanged (version 9)" in stocked.ok("skills", "edit", "csv-summary", "--title", "T")


@pytest.mark.req("SK-10")
def test_an_edit_made_with_another_version_in_mind_is_refused_with_the_current_one(stocked: Direct) -> None:
    stocked.ok("skills", "edit", "csv-summary", "--append", "x")
    ran = stocked("skills", "edit", "csv-summary", "--append", "y", "--expect", "1")
    assert (ran.code, ran.out) == (1, "")
    assert (
        ran.err == "habitus: 'csv-summary' is at version 2 now, not 1. Read it again and repeat the change on that.\n"
    )


def _body(direct: Direct, name: str = "csv-summary") -> str | None:
    ran = direct("skills", "show", name, "--json")
    return None if ran.code else str(json.loads(ran.out)["body"])


def _undo(direct: Direct, out: str) -> None:
    lines = re.findall(r"^Undo: habitus (.*)$", out, re.MULTILINE)
    assert lines, out
    for line in reversed(lines):
        direct.ok(*shlex.split(line))


@pytest.mark.full
@pytest.mark.req("SK-11", "SK-12")
def test_the_undo_line_of_a_change_takes_it_back(direct: Direct) -> None:
    # A home that is named on the command line, and has a blank, is named in the undo line too.
    at = ["--home", str(furnish(direct.cli.cwd / "another home"))]
    for name in ("csv-summary", "second"):
        direct.ok(*at, "skills", "new", name, "-d", "D")
    direct.ok(*at, "skills", "edit", "csv-summary", "--append", "more")
    before = direct.json(*at, "skills", "show", "csv-summary")["body"]
    for change in (
        ("skills", "edit", "csv-summary", "--replace", "gone"),
        ("skills", "remove", "csv-summary"),
        ("skills", "remove", "csv-summary", "second"),
        ("skills", "rollback", "csv-summary", "--to", "1"),
        ("undo", "since", "1w", "--yes"),
    ):
        _undo(direct, direct.ok(*at, *change))
        assert direct.json(*at, "skills", "show", "csv-summary")["body"] == before, change
        assert len(direct.json(*at, "skills", "list", "--layer", "user")["skills"]) == 2, change


@pytest.mark.full
def test_the_undo_lines_of_new_and_restore_remove(direct: Direct) -> None:
    _undo(direct, direct.ok("skills", "new", "csv-summary", "-d", "D"))
    assert _body(direct) is None
    _undo(direct, direct.ok("skills", "restore", "csv-summary"))
    assert _body(direct) is None


def test_disable_and_enable_make_no_version_and_undo_each_other(stocked: Direct) -> None:
    out = stocked.ok("skills", "disable", "CSV_Summary")
    (item,) = stocked.own()
    assert (item["state"], item["reason"], item["version"]) == ("disabled", "switched off", 1)
    _undo(stocked, out)
    assert stocked.own()[0]["state"] == "ok"
    done = stocked.json("skills", "disable", "csv-summary")
    assert (done["skills"][0]["enabled"], done["undo"]) == (False, ["skills", "enable", "csv-summary@user"])


@pytest.mark.req("SK-12")
def test_remove_and_restore(stocked: Direct) -> None:
    assert stocked.ok("skills", "restore") == "The archive is empty.\n"
    gone = stocked.json("skills", "remove", "csv_summary", "--reason", "old")
    (entry,) = stocked.json("skills", "restore", "--list")["archived"]
    undo = ["skills", "restore", f"csv-summary@user#{entry['id']}"]
    assert gone == {"skills": [{"name": "csv-summary", "layer": "user", "uncovers": None, "undo": undo}], "undo": undo}
    assert (entry["name"], entry["version"], entry["author"]["reason"]) == ("csv-summary", 1, "old")
    assert f"#{entry['id']}" in stocked.ok("skills", "restore")
    back = stocked.json("skills", "restore", f"#{entry['id']}", "--as", "again")
    assert back == {"name": "again", "layer": "user", "undo": ["skills", "remove", "again@user"]}
    assert [item["name"] for item in stocked.own()] == ["again"]


@pytest.mark.req("SK-11")
def test_history_diff_and_rollback(stocked: Direct) -> None:
    stocked.ok("skills", "edit", "csv-summary", "--append", "added line", "--reason", "asked for")
    versions = stocked.json("skills", "history", "csv-summary")["versions"]
    assert [(v["number"], v["author"]["actor"], v["author"]["name"], v["author"]["reason"]) for v in versions] == [
        (1, "user", get_account_name(), "new"),
        (2, "user", get_account_name(), "asked for"),
    ]
    assert "+added line\n" in stocked.ok("skills", "diff", "csv-summary")
    assert "-added line" in stocked.json("skills", "diff", "csv-summary", "2", "1")["diff"]
    assert stocked.ok("skills", "diff", "csv-summary", "2", "2") == "No differences.\n"
    assert stocked.json("skills", "rollback", "csv-summary", "--to", "1")["version"] == 3
    assert "added line" not in (_body(stocked) or "")
    assert "added line" in stocked.ok("skills", "show", "csv-summary", "--version", "2")
    assert stocked.json("skills", "show", "csv-summary", "--version", "1")["version"] == 1


@pytest.mark.req("SK-22")
def test_pause_resume_and_rollback_of_everything(stocked: Direct) -> None:
    assert stocked.json("learn", "pause")["paused"]["by"] == get_account_name()
    assert "paused since" in stocked.ok("doctor")
    assert stocked.json("learn", "resume") == {"paused": None, "undo": ["learn", "pause"]}
    assert stocked.ok("learn", "resume") == "Nothing was paused.\n"
    planned = stocked.json("undo", "since", "2 days ago", "--dry-run")
    assert [(step["name"], step["action"]) for step in planned["steps"]] == [("csv-summary", "archive")]
    assert planned["undo"] == []
    assert len(stocked.own()) == 1
    done = stocked.json("undo", "since", "yesterday")
    assert stocked.own() == []
    stocked.ok(*done["undo"])
    assert len(stocked.own()) == 1
    assert "Nothing has changed" in stocked.ok("undo", "since", "now")


@pytest.mark.full
def test_lint_names_every_problem_with_its_hint_and_fails_on_broken_ones(stocked: Direct) -> None:
    assert stocked.ok("skills", "lint").endswith("1 skill checked, 0 with findings, 0 can't be loaded.\n")
    stocked.skill_file("csv-summary").write_text("no frontmatter")
    ran = stocked("skills", "lint")
    assert ran.code == 1
    assert "error: csv-summary: There is no frontmatter. Begin the file with" in ran.out
    assert stocked("skills", "lint", "csv-summary").code == 1
    (report,) = json.loads(stocked("skills", "lint", "--json").out)["skills"]
    assert (report["name"], report["diagnostics"][0]["severity"]) == ("csv-summary", "error")


def test_lint_looks_at_directories_outside_the_library(direct: Direct) -> None:
    folder = direct.cli.cwd / "some" / "good"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: good\ndescription: D\n---\n\nB\n")
    assert direct.json("skills", "lint", "some")["skills"] == [{"name": "good", "diagnostics": []}]
    assert direct.json("skills", "lint", "./some/good")["skills"] == [{"name": "good", "diagnostics": []}]


@pytest.mark.req("SK-02")
def test_a_broken_skill_is_shown_as_it_is_with_what_is_wrong(stocked: Direct) -> None:
    stocked.skill_file("csv-summary").write_text("---\nunclosed: yes\n")
    (item,) = stocked.own()
    assert (item["name"], item["state"]) == ("csv-summary", "broken")
    assert "never closed" in item["reason"]
    ran = stocked("skills", "show", "csv-summary")
    assert (ran.code, ran.out) == (0, "---\nunclosed: yes\n")
    assert "never closed" in ran.err
    shown = stocked.json("skills", "show", "csv-summary")
    assert (shown["state"], shown["files"]) == ("broken", ["SKILL.md"])


@pytest.mark.req("SK-06")
def test_stats_are_per_stage(stocked: Direct) -> None:
    assert stocked.ok("skills", "stats") == "No uses yet.\n"
    assert stocked.json("skills", "stats") == {"stats": [], "trials": []}


@pytest.mark.req("SK-11")
def test_the_counters_of_a_skill_stand_in_list_show_and_stats(stocked: Direct) -> None:
    assert "\nused " not in stocked.ok("skills", "show", "csv-summary")
    with Habitus.open(read_settings(stocked.home, stocked.cli.environ())) as habitus:
        record_use(habitus, "csv-summary", manner=UseManner.ASKED)
    assert "shown 1 time, used 1: succeeded 0, failed 0, no feedback 1, last " in stocked.ok(
        "skills", "show", "csv-summary"
    )
    assert stocked.ok("skills", "stats").splitlines()[1].endswith("no feedback")
    assert stocked.json("skills", "stats")["stats"][0]["reliability"] is None
    with Habitus.open(read_settings(stocked.home, stocked.cli.environ())) as habitus:
        record_use(habitus, "csv-summary", succeeded=True)
    assert "used 2: succeeded 1, failed 0, no feedback 1, last " in stocked.ok("skills", "show", "csv-summary")
    header, row = stocked.ok("skills", "list", "--layer", "user").splitlines()
    assert (header.split()[:5], row.split()[:5]) == (
        ["name", "state", "layer", "version", "used"],
        ["csv-summary", "ok", "user", "v1", "2"],
    )
    assert "last used" in stocked.ok("skills", "list", "--wide").splitlines()[0]
    counters = stocked.own()[0]["counters"]
    assert (counters["recommended"], counters["used"], counters["succeeded"], counters["failed"]) == (1, 2, 1, 0)
    assert stocked.json("skills", "show", "csv-summary")["counters"] == counters


def test_the_doctor_says_what_is_broken_and_fails_then(stocked: Direct) -> None:
    checks = stocked.json("doctor")["checks"]
    assert {"python", "home", "database", "layer user"} <= {check["name"] for check in checks}
    assert {check["state"] for check in checks} <= {"ok", "missing"}
    stocked.skill_file("csv-summary").write_bytes(b"\xff")
    ran = stocked("doctor", "--json")
    assert ran.code == 1
    assert [c["hint"] for c in json.loads(ran.out)["checks"] if c["state"] == "broken"] == [
        "Run 'habitus skills list --state broken'."
    ]


@pytest.mark.req("AG-06", "SK-11")
def test_the_identity_is_shown_and_changed_with_a_history(direct: Direct) -> None:
    assert direct.ok("lessons", "identity").startswith("You are {BOT_NAME}, ")
    said = direct.ok("lessons", "identity", "--set", "You are Ada. You answer in verse.")
    assert said.splitlines() == [
        "You are Ada. You answer in verse.",
        "Undo: habitus undo identity@prompt:1",
    ]
    direct.ok("lessons", "identity", "--set", "You are Ada. You answer in prose.")
    assert direct.json("lessons", "identity") == {"text": "You are Ada. You answer in prose.", "version": 2, "undo": []}
    direct.ok("skills", "rollback", "identity@prompt", "--to", "1")
    assert direct.json("lessons", "identity")["text"].endswith("in verse.")
    assert "identity" not in direct.ok("skills", "list")
    assert direct("lessons", "identity", "--set", " ").err == (
        "habitus: The identity can't be empty. Describe the assistant in one sentence.\n"
    )


@pytest.mark.req("OP-02")
def test_the_doctor_says_which_model_would_answer(direct: Direct) -> None:
    def model(**env: str) -> dict[str, str]:
        checks = json.loads(direct("doctor", "--json", env=env).out)["checks"]
        return next(
            {"state": c["state"], "detail": c["detail"], "hint": c["hint"]} for c in checks if c["name"] == "model"
        )

    assert model(HABITUS_MODEL="ollama:llama3") == {"state": "ok", "detail": "ollama:llama3", "hint": ""}
    assert model()["state"] == "missing"
    assert model(HABITUS_MODEL="anthropic:x")["hint"] == "Set it: export ANTHROPIC_API_KEY=…"


def test_the_tour_runs_and_leaves_the_home_alone(direct: Direct) -> None:
    before = (direct.home / "habitus.db").read_bytes()
    assert len(direct.json("tour")["steps"]) >= 6
    assert "Everything but the model was real." in direct.ok("tour")
    assert {path: path.read_bytes() for path in direct.home.iterdir()} == {direct.home / "habitus.db": before}


@pytest.mark.full
@pytest.mark.req("EL-09", "SE-09")
def test_the_tour_leaves_its_lesson_skill_and_tool_in_the_home_it_is_given(direct: Direct) -> None:
    direct.ok("tour", "--home", str(direct.home))
    direct.ok("tour", "--home", str(direct.home))
    lessons = direct.json("lessons", "list", "--scope", "all")["lessons"]
    assert [lesson["evidence"]["detector"] for lesson in lessons].count("repeated_error_signature") == 1
    names = {skill["name"] for skill in direct.json("skills", "list")["skills"]}
    assert {"revenue-by-region", "read-amount"} <= names


@pytest.mark.req("SK-13")
def test_names_take_a_layer_and_the_hidden_copy_stays_reachable(stocked: Direct) -> None:
    other = stocked.cli.user_home / ".claude" / "skills" / "csv-summary"
    other.mkdir(parents=True)
    (other / "SKILL.md").write_text("---\nname: csv-summary\ndescription: Claude's.\n---\n\nB\n")
    assert stocked.json("skills", "show", "csv-summary@claude")["description"] == "Claude's."
    assert stocked.json("skills", "show", "csv-summary")["hidden"] == ["claude"]
    stocked.ok("skills", "edit", "csv-summary@claude", "--append", "more")
    assert (other / "SKILL.md").read_text().endswith("B\nmore\n")
