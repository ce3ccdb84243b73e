"""What failed and what worked next, as a person with another agent sees it: `habitus learn`, and the next failure."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.learning import find_known_remedy_for_failure
from habitus.cli import main
from habitus.operating_system import get_account_name
from tests.cli.conftest import Direct
from tests.learning.logs import Line, asked, came, used, write

NOT_FOUND = "Exit code 127\n/bin/bash: line 1: pytest: command not found"
LESSON = "In this project run `uv run pytest`; `pytest` alone is not found."
RULE = "Don't ever force-push to main."
NO = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"


def session(number: int, project: Path, *, rule: bool = False) -> list[Line]:
    """One in which the tests are first run as they can't be."""
    where = {"cwd": str(project), "uuid": ""}

    def at(minute: int) -> dict[str, Any]:
        return {**where, "timestamp": f"2026-05-{number:02}T10:{minute:02}:00Z"}

    lines = [
        asked("run the tests", **at(0)),
        used("a", "Bash", {"command": "pytest -q"}, **at(1)),
        came("a", NOT_FOUND, is_error=True, **at(1)),
        used("b", "Bash", {"command": "ls"}, **at(2)),
        came("b", "README.md", **at(2)),
        used("c", "Bash", {"command": "uv run pytest -q"}, **at(3)),
        came("c", "3 passed", **at(3)),
    ]
    if rule:
        lines += [
            used("d", "Bash", {"command": "git push --force"}, **at(4)),
            came("d", f"{NO}no, don't ever force-push to main", is_error=True, **at(4)),
        ]
    return lines


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    return tmp_path / "shop"


@pytest.fixture
def folder(direct: Direct, project: Path) -> Path:
    root = direct.cli.user_home / ".claude" / "projects" / "shop"
    write(root / "one.jsonl", session(1, project))
    write(root / "two.jsonl", session(2, project, rule=True), tail='{"type": "assistant", "mess')
    return root


def known(direct: Direct, project: Path) -> str:
    with Habitus.open(read_settings(direct.home, direct.cli.environ())) as habitus:
        return find_known_remedy_for_failure(
            habitus, "Bash", {"command": "cd src && pytest -x"}, NOT_FOUND, str(project)
        )


@pytest.mark.req("EL-08", "EL-10")
def test_without_files_the_agents_on_this_machine_are_read_and_nothing_is_written(
    direct: Direct, folder: Path, project: Path
) -> None:
    said = direct.ok("learn").splitlines()
    assert said[:7] == [
        "Recurring failures, costliest first:",
        "  pytest -q: <path>: line <num>: pytest: command not found "
        f"(2 sessions, 2 failed calls, 4 min lost; {project})",
        "What worked next:",
        f"  {LESSON} (2 sessions, last in May; {project})",
        "Your corrections:",
        f"  {RULE} (said after something was refused, last in May; {project})",
        "2 failed calls in 2 sessions: 0 part of the work or transient, 2 with a known remedy, "
        "2 covered by the lessons above.",
    ]
    assert said[-1] == "This run: nothing was sent or spent, nothing was written; --apply saves the lessons."
    assert direct.json("learn", "--since", "last")["unchanged"] == 0  # not even how far it was read
    assert direct.json("lessons", "list")["lessons"] == []
    assert known(direct, project) == ""


@pytest.mark.req("EL-10", "SC-04")
def test_apply_keeps_the_remedy_for_its_project_and_leaves_the_rule_to_the_person(
    direct: Direct, folder: Path, project: Path
) -> None:
    assert "Lessons: 1 stored, 1 pending." in direct("learn", "--apply").out
    (lesson,) = direct.json("lessons", "list")["lessons"]
    assert (lesson["text"], lesson["scope"], lesson["trust"]) == (LESSON, "project", "automatic")
    assert lesson["evidence"]["trace"] == "two.jsonl turn 1"
    (pending,) = json.loads(direct("review", "list", "--json").out)["proposals"]  # a reminder stands beside
    assert (pending["text"], pending["reasons"]) == (
        RULE,
        ["it would be a standing rule, which only a person can approve"],
    )
    assert known(direct, project) == LESSON
    assert known(direct, project.parent) == ""  # of another project
    assert "Lessons: nothing new." in direct.ok("learn", "--apply")


@pytest.mark.req("EL-08", "EL-10")
def test_since_last_goes_on_from_there_even_when_the_agent_has_deleted_what_it_wrote(
    direct: Direct, folder: Path, project: Path
) -> None:
    (folder / "two.jsonl").unlink()
    assert direct.json("learn", "--apply")["remedies"]["lessons"] == []
    (folder / "one.jsonl").unlink()
    write(folder / "three.jsonl", session(3, project))
    told = direct.json("learn", "--since", "last", "--apply")
    assert [file["path"] for file in told["files"]] == [str(folder / "three.jsonl")]
    assert [(each["text"], each["sessions"]) for each in told["remedies"]["lessons"]] == [(LESSON, 2)]
    assert direct.json("learn", "--since", "last")["unchanged"] == 1
    old = direct.json("learn", str(folder), "--since", "2026-05-02")["remedies"]
    assert old["coverage"]["sessions"] == 2  # with the one that is known from before


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.req("EL-08", "EL-10")
def test_a_person_decides_about_each_lesson_and_is_asked_once(
    direct: Direct, folder: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in direct.cli.environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["habitus", "learn", "--apply"])
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"n\ne\nNever push with force.\n")))
    with pytest.raises(SystemExit):
        main.run()
    said = direct.capture.readouterr().out
    assert f"{LESSON} (2 sessions, last in May)\nSave it? [y]es, [n]o, [e]dit [y]:" in said
    (rule,) = direct.json("lessons", "list")["lessons"]
    assert (rule["text"], rule["kind"], rule["trust"]) == ("Never push with force.", "never", "user")
    assert "Lessons: nothing new." in direct.ok("learn", "--apply")  # what was rejected is not kept later


@pytest.mark.req("EL-10", "CL-07")
def test_our_own_journal_teaches_too_and_the_remedy_is_said_beside_the_next_failure(direct: Direct) -> None:
    environ = {**direct.cli.environ(), "USER": get_account_name()}
    settings = read_settings(direct.home, environ)
    with Habitus.open(settings) as habitus:
        for number in (1, 2):
            with habitus.turn("run the tests", conversation=f"loop-{number}", tools=["shell"]) as turn:
                assert turn.observe("shell", {"cmd": "pytest -q"}, NOT_FOUND, ok=False) == ""
                assert turn.observe("shell", {"cmd": "uv run pytest -q"}, "3 passed") == ""
                turn.done("they pass")
    told = direct.json("learn", "--apply")
    assert (told["own_sessions"], [each["text"] for each in told["remedies"]["lessons"]]) == (
        2,
        ["Run `uv run pytest`; `pytest` alone is not found."],
    )
    with Habitus.open(settings) as habitus, habitus.turn("tests, please", tools=["shell"]) as turn:
        said = [turn.observe("shell", {"cmd": f"pytest -x {name}"}, NOT_FOUND, ok=False) for name in "ab"]
        turn.done("no")
    assert said[0] == "[Habitus remedy] Run `uv run pytest`; `pytest` alone is not found."
    assert "remedy" not in said[1]  # once a turn


@pytest.mark.req("EL-10", "LA-03")
def test_what_another_agent_did_again_and_again_is_proposed_as_a_skill(direct: Direct) -> None:
    logs = direct.cli.cwd / "logs"
    for number in range(4):
        ran = ["cat README.md", "ls -la", "git status"][: number % 3]
        ran += ["git fetch origin", "git rebase origin/main", "make test", f"git push origin feature-{number}"]
        lines = [asked(f"bring branch {number} up to date")]
        for at, command in enumerate(ran):
            lines += [used(f"{at}", "Bash", {"command": command}), came(f"{at}", "ok")]
        write(logs / f"{number}.jsonl", lines)
        write(logs / f"other-{number}.jsonl", [asked("look"), used("x", "Bash", {"command": "ls"}), came("x", "a")])
    (found,) = direct.json("skills", "recipes", "mine", str(logs))["suggestions"]
    assert (found["kind"], found["proposal"]) == ("steps", None)
    assert [command for command in ("git rebase origin/main", "make test") if command not in found["text"]] == []
    assert direct("skills", "recipes", "mine", str(logs), "--apply").code == 0
    assert found["skill"] in direct.ok("review", "list")
    for path in sorted(logs.iterdir())[:4]:
        path.unlink()
    assert (
        direct.json("skills", "recipes", "mine", str(logs))["suggestions"] == []
    )  # known, and too few sessions are left
