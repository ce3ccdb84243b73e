"""What a command costs in a large library: no statement a skill, nothing loaded that it has no use for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.cli.conftest import Direct
from tests.conftest import Cli
from tests.costs import assert_cheap_edit, counted_costs

UNNEEDED = (
    *("alembic", "numpy", "pydantic_ai", "rich", "sqlalchemy.dialects.postgresql", "sqlalchemy.orm"),
    "yaml",
    *("habitus.journal.journal", "habitus.learning", "habitus.llm", "habitus.memory.model", "habitus.app.sharing"),
)
COMMANDS = (("skills", "list"), ("skills", "show", "water-3"), ("skills", "search", "water the third flower"))


def _write(home: Path, numbers: range) -> None:
    for number in numbers:
        folder = home / "skills" / f"water-{number}"
        folder.mkdir(parents=True)
        text = f"---\nname: water-{number}\ndescription: Waters flower {number}.\n---\n\n1. Take can {number}.\n"
        (folder / "SKILL.md").write_text(text)


@contextmanager
def _statements() -> Iterator[list[str]]:
    seen: list[str] = []

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        seen.append(re.sub(r"IN \([?, ]+\)", "IN (…)", statement))  # for the rows that are shown

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def _of_a_look(direct: Direct, command: tuple[str, ...]) -> list[str]:
    """The statements of a command that finds nothing new; files a moment old are read once more."""
    while True:
        with _statements() as seen:
            direct.ok(*command)
        if "BEGIN IMMEDIATE" not in seen:
            return seen


@pytest.mark.req("PF-04")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[1])
def test_a_command_asks_the_database_no_more_in_a_large_library(direct: Direct, command: tuple[str, ...]) -> None:
    asked = []
    for numbers in (range(5), range(5, 60)):
        _write(direct.home, numbers)
        direct.ok("skills", "search", "water the third flower")  # notes and indexes what is new
        asked.append(_of_a_look(direct, command))
    assert asked[1] == asked[0]


@pytest.mark.req("PF-04")
def test_showing_a_skill_reads_no_row_of_another(direct: Direct) -> None:
    _write(direct.home, range(30))
    direct.ok("skills", "list")
    assert "1. Take can 3." in direct.ok("skills", "show", "water-3")
    file = direct.skill_file("water-3")
    file.write_text(file.read_text().replace("can 3", "pail 3"))
    file.with_name("spout.txt").write_text("long")
    shown = direct.ok("skills", "show", "water-3")
    assert "1. Take pail 3." in shown
    assert "spout.txt" in shown
    with sa.create_engine(f"sqlite:///{direct.home / 'habitus.db'}").begin() as connection:
        connection.execute(sa.text("UPDATE skills SET summary = 'no JSON' WHERE name != 'water-3'"))
    assert direct.ok("skills", "show", "water-3") == shown


@pytest.mark.req("SK-07")
def test_a_skill_that_was_just_put_there_by_hand_is_shown(direct: Direct) -> None:
    direct.ok("skills", "list")
    _write(direct.home, range(2))
    assert "1. Take can 1." in direct.ok("skills", "show", "water-1@user")
    assert "Did you mean 'water-1'?" in direct("skills", "show", "watr-1").err


@pytest.mark.full
@pytest.mark.req("PF-04")
def test_listing_loads_nothing_that_it_has_no_use_for(installed_cli: Cli) -> None:
    _write(installed_cli.home, range(2))
    said = []
    for _ in range(2):
        ran = _run_and_say_what_is_loaded(installed_cli, ("skills", "list"), UNNEEDED)
        assert "water-1" in ran.stdout
        said.append(ran.stderr.strip())
    assert said == ["['yaml']", "[]"]  # the first time has files to read


@pytest.mark.req("PF-05")
def test_evidence_loads_nothing_that_runs_a_turn_a_tool_or_an_improvement(installed_cli: Cli) -> None:
    unneeded = (
        "habitus.agent.recording.recorder",
        "habitus.agent.tools",
        "habitus.app.learning.improving",
        "habitus.tools",
    )
    ran = _run_and_say_what_is_loaded(installed_cli, ("skills", "evidence"), (*unneeded, "habitus.evidence.findings"))
    assert ran.stdout
    assert ran.stderr.strip() == "['habitus.evidence.findings']"


def _run_and_say_what_is_loaded(
    cli: Cli, command: tuple[str, ...], modules: tuple[str, ...]
) -> subprocess.CompletedProcess[str]:
    """Run a command in a new process, whose error output ends with the modules of these that it loaded."""
    code = (
        f"import sys; from habitus.cli import main; sys.argv = ['habitus', *{command!r}]; "
        "main._run_command_and_return_exit_code();"
        f"print([name for name in {modules!r} if name in sys.modules], file=sys.stderr)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], env=cli.environ(), cwd=cli.cwd, capture_output=True, text=True, check=True
    )


@pytest.mark.req("PF-04")
def test_an_edit_takes_few_transactions_one_look_and_one_parse_each_way(direct: Direct) -> None:
    direct.ok("skills", "new", "water", "-d", "Waters flowers.")
    direct.ok("skills", "list")  # notes what is new on disk
    for number in (2, 3):  # the second time the file is a moment old
        with counted_costs() as costs:
            said = direct.ok("skills", "edit", "water", "--append", f"{number}.", "--title", f"T{number}")
        assert f"water@user:{number}" in said
        assert_cheap_edit(costs)
