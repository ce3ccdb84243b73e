"""A damaged home: every command says so in one line, the doctor finds what the database's own check finds."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Direct

pytestmark = pytest.mark.req("SC-01")

PAGE = 4096
COMMANDS = (("skills", "list"), ("lessons", "list"), ("sessions", "list"), ("review", "list"), ("doctor",))


@pytest.fixture
def sound(direct: Direct, tmp_path: Path) -> Path:
    """A database with something in it, whole and without a log beside it."""
    direct.ok("skills", "new", "tidy-inbox", "-d", "Tidy the inbox.", "--file", "-", stdin="1. Archive. " * 2000)
    direct.ok("lessons", "add", "Dates are day-first.")
    database = direct.home / "habitus.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return Path(shutil.copy(database, tmp_path / "sound.db"))


@pytest.mark.parametrize(
    "share", [pytest.param(share, marks=pytest.mark.full if share % 3 else ()) for share in range(12)]
)
def test_a_damaged_page_is_found_and_never_called_a_bug(direct: Direct, sound: Path, share: int) -> None:
    content = bytearray(sound.read_bytes())
    page = share * (len(content) // PAGE) // 12
    content[page * PAGE : page * PAGE + PAGE] = bytes(range(256)) * (PAGE // 256)
    for beside in direct.home.glob("habitus.db*"):
        beside.unlink()
    database = direct.home / "habitus.db"
    for command in COMMANDS:
        database.write_bytes(content)
        is_damaged = _has_damage(database)
        ran = direct(*command)
        said = [line for line in ran.err.splitlines() if "pending review" not in line]
        assert "bug in Habitus" not in ran.err + ran.out
        assert len(said) <= 1
        if command == ("doctor",) and is_damaged:
            assert ran.code == 1
            assert "is damaged" in ran.out
            assert ".recover" in ran.out


TEXTS = {
    "UPDATE skills SET summary = '{\"descr' WHERE name = 'tidy-inbox'": ("skills", "search", "tidy"),
    "UPDATE skills SET diagnostics = '7' WHERE name = 'tidy-inbox'": ("skills", "search", "tidy"),
    "UPDATE skill_versions SET tree = '[{'": ("skills", "show", "tidy-inbox", "-v", "1"),
    "UPDATE skill_versions SET tree_hash = 'x' || substr(tree_hash, 2)": ("skills", "show", "tidy-inbox", "-v", "1"),
    "UPDATE blobs SET packed = X'0102'": ("skills", "show", "tidy-inbox", "-v", "1"),
    "UPDATE skill_versions SET author = '{'": ("skills", "history", "tidy-inbox"),
    "UPDATE engrams SET definition = 'no'": ("lessons", "list"),
}


@pytest.mark.some(1)
@pytest.mark.req("OP-02")
@pytest.mark.parametrize("altered", TEXTS)
def test_a_text_that_was_altered_is_named_by_whoever_reads_it_and_by_the_doctor(
    direct: Direct, sound: Path, altered: str
) -> None:
    """The pages of the database are whole; one text in them is not the one that was written there."""
    with sqlite3.connect(direct.home / "habitus.db") as connection:
        assert connection.execute(altered).rowcount
    connection.close()
    assert not _has_damage(direct.home / "habitus.db")

    ran, checked = direct(*TEXTS[altered]), direct("doctor")

    assert (ran.code, checked.code) == (1, 1)
    (said,) = [line for line in ran.err.splitlines() if "pending review" not in line]
    assert "damaged" in said
    assert "is damaged" in checked.out


@pytest.mark.req("OP-02")
def test_the_doctor_looks_at_the_copy_of_a_shared_database_and_calls_nothing_sound_it_could_not_check(
    direct: Direct,
) -> None:
    copy = direct.home / "cache" / "shared.db"
    copy.parent.mkdir(exist_ok=True)
    copy.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 32)
    ran = direct("doctor")
    assert (ran.code, f"{copy} is damaged" in ran.out, "will be rebuilt" in ran.out) == (1, True, True)
    with sqlite3.connect(copy.with_name("whole.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    copy.with_name("whole.db").replace(copy)
    with sqlite3.connect(copy, isolation_level=None) as busy:
        busy.execute("BEGIN EXCLUSIVE")
        ran = direct("doctor")
    busy.close()
    assert (ran.code, "could not be checked (database is locked)" in " ".join(ran.out.split())) == (1, True)


def _has_damage(database: Path) -> bool:
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            return connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]
        finally:
            connection.close()
    except sqlite3.DatabaseError:
        return True


PATHS = {"nobody": "~nobody-of-that-name/x", "empty": "", "long": "x" * 5000, "nul": "a\0b"}


@pytest.mark.parametrize(
    "command",
    [
        ("--home", "PATH", "skills", "list"),
        ("skills", "import", "PATH"),
        ("skills", "add", "PATH"),
        ("skills", "export", "csv-summary", "--to", "PATH"),
        ("skills", "lint", "PATH"),
        ("skills", "new", "x", "--file", "PATH"),
        ("skills", "eval", "PATH"),
        ("tools", "new", "t", "-d", "D", "--code", "PATH", "-p", "{}"),
        ("tools", "run", "t", "PATH"),
        ("tools", "scratchpad", "exec", "p", "--file", "PATH"),
        ("learn", "PATH"),
        ("review", "trust", "PATH"),
        ("chat", "hello", "--model", "script:model.json", "--attach", "PATH"),
        ("sessions", "export", "s", "--to", "PATH"),
    ],
    ids=lambda command: "-".join(command[:2]),
)
def test_a_path_that_can_be_none_is_one_line(direct: Direct, command: tuple[str, ...]) -> None:
    (direct.cli.cwd / "model.json").write_text('[{"say": "Hello."}]')
    for kind, path in PATHS.items():
        ran = direct(*(path if word == "PATH" else word for word in command))
        assert "bug in Habitus" not in ran.err, kind
        assert len(ran.err.splitlines()) <= 1, kind
        assert len(ran.err) < 1000 or kind == "long"
        assert (kind, command[1]) != ("empty", "import") or ran.out == ""


def test_a_lock_file_nested_deeply_is_one_line(direct: Direct) -> None:
    direct.ok("skills", "list")
    (direct.home / "habitus-lock.json").write_text("[" * 100_000)
    for command in (("skills", "update"), ("doctor",), ("skills", "list")):
        ran = direct(*command)
        assert "bug in Habitus" not in ran.err
        assert len(ran.err.splitlines()) <= 1
