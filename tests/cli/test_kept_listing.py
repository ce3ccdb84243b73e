"""The listing that is kept answers as the command does, or not at all."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from habitus.app import Habitus
from habitus.cli import cached_answers
from habitus.settings import load
from habitus.skills.model import Stage
from tests.cli.conftest import Direct

QUESTIONS = (("skills", "list"), ("skills", "list", "--json"), ("skills", "list", "--wide"))
NAME = "csv-summary"
SHOWN = (("skills", "show", NAME), ("skills", "show", NAME, "--json"))
SOUGHT = tuple(("skills", "search", "sum up a csv file", *more) for more in ((), ("--json",), ("-k", "1", "--wide")))
SKILL = "---\nname: {name}\ndescription: {what}\n---\n1. Do it.\n"


def early(direct: Direct, *words: str) -> str | None:
    """What is said before the commands are imported; None where nothing is."""
    with direct.patch.context() as patch:
        for name, value in direct.cli.environ().items():
            patch.setenv(name, value)
        patch.chdir(direct.cli.cwd)
        direct.capture.readouterr()
        code = cached_answers.answer(words)
        said = direct.capture.readouterr()
    assert code in (0, None)
    assert said.err == ""
    return None if code is None else said.out


def settle(direct: Direct) -> None:
    """List until what is kept is answered from: what was written a moment ago may change without a new time."""
    for _ in range(200):
        direct("skills", "list")
        if early(direct, "skills", "list") is not None:
            return
    raise AssertionError("no listing was kept")


def put(folder: Path, what: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(SKILL.format(name=folder.name, what=what))


def changes(direct: Direct) -> dict[str, Callable[[], object]]:
    skills, cli = direct.home / "skills", direct.cli
    database, elsewhere = direct.home / "habitus.db", cli.user_home / "elsewhere" / "linked"
    put(elsewhere, "Linked.")

    def count() -> None:
        with Habitus.open(load(cli.environ(), cli.cwd)) as habitus:
            habitus.skills.count_use("csv-summary", stage=Stage.STEPS, succeeded=True)

    def put_database_back() -> None:
        with closing(sqlite3.connect(database)) as old, closing(sqlite3.connect(direct.home / "saved")) as new:
            old.backup(new)
        direct("skills", "disable", "csv-summary")
        settle(direct)
        shutil.copyfile(direct.home / "saved", database)
        direct("skills", "disable", "by-hand")

    return {
        "edited by a command": lambda: direct("skills", "edit", "csv-summary", "--append", "Then stop."),
        "edited by hand": lambda: put(skills / "csv-summary", "Sums up."),
        "edited by another program in place": lambda: subprocess.run(
            [sys.executable, "-c", "import sys; open(sys.argv[1], 'a').write('more')", skills / "csv-summary/SKILL.md"],
            check=True,
        ),
        "a file came to it": lambda: (skills / "csv-summary" / "notes.txt").write_text("a note"),
        "new by hand": lambda: put(skills / "by-hand", "New."),
        "of another agent": lambda: put(cli.user_home / ".claude" / "skills" / "theirs", "Theirs."),
        "linked to elsewhere": lambda: (cli.user_home / ".claude" / "skills" / "linked").symlink_to(elsewhere),
        "what is linked changed": lambda: put(elsewhere, "Changed."),
        "of a project": lambda: put(cli.cwd / ".habitus" / "skills" / "of-the-project", "Its own."),
        "trusted": lambda: direct("trust", "--yes"),
        "broken": lambda: (skills / "by-hand" / "SKILL.md").write_text("---\nname: by-hand"),
        "mended": lambda: put(skills / "by-hand", "Mended."),
        "switched off": lambda: direct("skills", "disable", "by-hand"),
        "switched on": lambda: direct("skills", "enable", "by-hand"),
        "switched off in the settings": lambda: direct("config", "set", "disabled_skills", "by-hand"),
        "the settings by hand": lambda: (direct.home / "habitus.toml").write_text('layers = ["user"]\n'),
        "no settings": lambda: (direct.home / "habitus.toml").unlink(),
        "a variable": lambda: cli.env.update(HABITUS_DISABLED_SKILLS="csv-summary"),  # type: ignore[attr-defined]
        "used": count,
        "another database": put_database_back,
        "spelled in two ways": lambda: shutil.copytree(skills / "csv-summary", skills / "CSV_Summary"),
        "removed by hand": lambda: shutil.rmtree(skills / "by-hand"),
        "removed": lambda: direct("skills", "remove", "CSV_Summary"),
        "all of them gone": lambda: shutil.rmtree(skills),
    }


@pytest.mark.full
@pytest.mark.req("PF-04")
def test_no_change_from_anywhere_is_hidden_by_the_listing_that_is_kept(stocked: Direct) -> None:
    for said, change in changes(stocked).items():
        settle(stocked)
        before = early(stocked, "skills", "list", "--json")
        change()
        asked = (("skills", "list", "--json"), ("skills", "show", NAME), SOUGHT[1])
        found = {words: early(stocked, *words) for words in asked}
        now = {words: stocked(*words).out for words in found}
        assert all(answer in (None, now[words]) for words, answer in found.items()), said
        assert before not in now.values(), said


@pytest.mark.req("PF-04")
def test_what_is_kept_is_said_as_the_command_says_it(stocked: Direct) -> None:
    put(stocked.cli.user_home / ".claude" / "skills" / "csv-summary", "The one below.")
    put(stocked.home / "skills" / "größe", "Not ASCII: ü, 中文.")
    settle(stocked)
    for words in (*QUESTIONS, *SHOWN):
        assert early(stocked, *words) == stocked(*words).out, words
    assert early(stocked, "--home", str(stocked.home), *SHOWN[0]) is not None
    for words in (
        ("skills", "list", "--layer", "user"),
        ("skills", "show", "nobody"),
        ("skills", "show", "hello@user"),
    ):
        assert early(stocked, *words) is None


@pytest.mark.req("PF-04")
def test_skills_are_found_as_the_command_finds_them(stocked: Direct) -> None:
    put(stocked.home / "skills" / "größe", "Not ASCII: ü, 中文.")
    settle(stocked)
    assert early(stocked, *SOUGHT[0]) is None  # nothing is indexed yet
    stocked(*SOUGHT[0])
    for words in SOUGHT:
        assert early(stocked, *words) == stocked(*words).out, words
    with Habitus.open(load(stocked.cli.environ(), stocked.cli.cwd)) as habitus:
        habitus.finder.learn("größe", "sum up a csv file")
    assert early(stocked, *SOUGHT[1]) == stocked(*SOUGHT[1]).out
    stocked("skills", "edit", NAME, "--append", "Then count the cells of a csv file.")
    stocked(*SOUGHT[1])
    settle(stocked)
    assert early(stocked, *SOUGHT[1]) == stocked(*SOUGHT[1]).out
    for words in (("skills", "search"), ("skills", "search", "a", "b"), (*SOUGHT[0], "-k", "0")):
        assert early(stocked, *words) is None


@pytest.mark.req("PF-04", "SC-02")
def test_a_damaged_index_is_not_searched(stocked: Direct) -> None:
    settle(stocked)
    wanted = stocked(*SOUGHT[1]).out
    [file] = (stocked.home / "cache").glob("index-*.bin")
    whole = file.read_bytes()
    middle = len(whole) // 2
    for damaged in (b"", whole[:middle], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        file.write_bytes(damaged)
        assert early(stocked, *SOUGHT[1]) is None
        assert stocked(*SOUGHT[1]).out == wanted
    assert early(stocked, *SOUGHT[1]) == wanted  # the command has written it anew


@pytest.mark.req("PF-04", "SC-02")
def test_what_can_not_be_believed_is_not(stocked: Direct) -> None:
    settle(stocked)
    file = max((stocked.home / "cache").glob("listing-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], whole.replace(b"[", b"(", 1), whole[whole.index(b"\n") :]):
        file.write_bytes(damaged)
        assert early(stocked, *QUESTIONS[0]) is None
    settle(stocked)
    stocked.home.chmod(0o755)
    assert early(stocked, *QUESTIONS[0]) is None  # the command makes it private again
    settle(stocked)
    with closing(sqlite3.connect(stocked.home / "habitus.db")) as database:
        database.execute("INSERT INTO skill_intents (layer, plan) VALUES ('user', '{}')")
        database.commit()
        assert early(stocked, *QUESTIONS[0]) is None


@pytest.mark.req("PF-01", "PF-04")
def test_a_kept_listing_is_read_without_the_databases_toolkit(stocked: Direct) -> None:
    settle(stocked)
    code = (
        "import sys; sys.argv[0] = 'habitus'\n"
        "from habitus.cli import start\n"
        "try: start.run()\n"
        "except SystemExit as done: assert not done.code\n"
        "heavy = {'sqlalchemy', 'pydantic', 'typer', 'rich', 'asyncio'} & sys.modules.keys()\n"
        "heavy |= {'numpy'} & sys.modules.keys() if 'search' not in sys.argv else set()\n"
        "assert not heavy, heavy\n"
    )
    stocked(*SOUGHT[0])
    for words in (QUESTIONS[0], SHOWN[0], SOUGHT[0]):
        command = [sys.executable, "-c", code, *words]
        done = subprocess.run(command, capture_output=True, cwd=stocked.cli.cwd, env=stocked.cli.environ(), check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode() == stocked(*words).out


def in_python(direct: Direct, code: str) -> str:
    """What a program prints that uses Habitus itself."""
    command = [sys.executable, "-c", code]
    environ = direct.cli.environ()
    done = subprocess.run(command, capture_output=True, text=True, cwd=direct.cli.cwd, env=environ, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.req("PF-01", "PF-04")
def test_a_program_lists_without_the_databases_toolkit_and_then_uses_all_of_it(stocked: Direct) -> None:
    stocked("trust", "--yes")
    settle(stocked)
    assert in_python(
        stocked,
        "import os, sys\n"
        "from habitus import Habitus\n"
        "with Habitus.open() as habitus:\n"
        "    first = habitus.skills.listing()\n"
        "    assert not {'sqlalchemy', 'pydantic', 'asyncio', 'numpy'} & sys.modules.keys()\n"
        "    os.chdir('/')\n"
        "    os.environ['HABITUS_HOME'] = '/nowhere'\n"
        "    kept = habitus.skills\n"
        "    assert first == kept.listing() == habitus.skills.listing() and first\n"
        "    habitus.skills.remove('csv-summary', habitus.person())\n"
        "    assert [one.name for one in kept.listing()] == [one.name for one in first if one.name != 'csv-summary']\n"
        "    try: habitus.nothing\n"
        "    except AttributeError as error: print(error)\n",
    ).startswith("'Habitus' object has no attribute 'nothing'")


@pytest.mark.req("PF-04")
def test_a_program_that_lists_keeps_the_listing_and_sees_every_change(stocked: Direct) -> None:
    listed = (
        "import sys\n"
        "from habitus import Habitus\n"
        "with Habitus.open() as habitus: print(*(one.name for one in habitus.skills.listing()))\n"
        "print('opened' if 'sqlalchemy' in sys.modules else 'kept')\n"
    )
    for _ in range(200):  # what was written a moment ago may change without a new time
        names, way = in_python(stocked, listed).splitlines()
        if way == "kept":
            break
    assert way == "kept"
    put(stocked.home / "skills" / "by-hand", "New.")
    now, way = in_python(stocked, listed).splitlines()
    assert (sorted(now.split()), way) == (sorted([*names.split(), "by-hand"]), "opened")
