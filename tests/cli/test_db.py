"""`habitus db`: a database as it stands, brought up to date, and copied whole."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import DATABASE, Habitus, read_settings
from habitus.app.sharing.copying import MACHINE_TABLES
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import Skill
from tests.cli.conftest import Direct
from tests.contracts import postgres
from tests.contracts.stores import load_all_entries
from tests.homes import furnish
from tests.usage import record_use

MADE_OF_OTHERS = {
    *("agent_skills", "agent_skill_files", "blobs", "sequences", "memory_revision", "skill_intents"),
    "evidence_sums",
}
NOT_CONTENT = {"alembic_version", "schema_compatibility"}


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with postgres.schema(postgres_server) as address:
        yield address


def tables(engine: sa.Engine) -> dict[str, sa.Table]:
    found = sa.MetaData()
    # An index is never copied, only what search learned.
    found.reflect(engine, only=lambda name, _: name == "search_learned" or not name.startswith("search_"))
    return {table.name: table for table in found.sorted_tables}


def value(column: sa.Column[Any], number: int) -> Any:
    """Something that fits a column."""
    if column.foreign_keys:
        return value(next(iter(column.foreign_keys)).column, number)
    match column.type:
        case sa.Boolean():
            return bool(number % 2)
        case sa.Integer():
            return number
        case sa.Float():
            return number / 8
        case sa.LargeBinary():
            return bytes([number, 0, 255])
        case _ if column.name.endswith("_on") or column.name == "at":
            return f"2030-01-0{number}T00:00:00.000000+00:00"
        case _:
            return {"layer": "user", "root": "approved", "tree": "{}"}.get(column.name, f"'{number}' «ß» 日本")


def fill(engine: sa.Engine) -> None:
    """Two rows in every table that is nobody else's business."""
    with engine.begin() as connection:
        for name, table in tables(engine).items():
            if name not in MACHINE_TABLES | MADE_OF_OTHERS | NOT_CONTENT:
                rows = [{column.name: value(column, number) for column in table.columns} for number in (1, 2)]
                if name == "evidence_seed":
                    rows = rows[:1]
                connection.execute(table.insert(), rows)


def contents(address: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of what is copied, without the numbers and stamps that a copy has anew."""
    engine = sql.create_engine(address)
    apart = {
        "skills": {"generation", "stamp", "archived_as"},
        "engrams": {"revision"},
        "search_learned": {"generation"},
    }
    found = {}
    with engine.connect() as connection:
        for name, table in tables(engine).items():
            if name not in MACHINE_TABLES | NOT_CONTENT | MADE_OF_OTHERS - {"blobs"}:
                columns = [column for column in table.columns if column.name not in apart.get(name, set())]
                found[name] = sorted(map(tuple, connection.execute(sa.select(*columns))), key=repr)
    engine.dispose()
    return found


@pytest.mark.full
@pytest.mark.req("OP-01", "SK-08")
def test_every_table_is_copied_to_postgresql_and_back(direct: Direct, tmp_path: Path, url: str) -> None:
    """Driven by the tables that there are: one that a later migration makes is in this test without a word."""
    source = sql.create_engine(f"sqlite:///{tmp_path}/shared.db")
    sql.migrate_database(source)
    fill(source)
    with source.begin() as connection:  # their files are nowhere: in the archive none are needed
        connection.execute(sa.text("UPDATE skills SET archived_on = '2030-01-03T00:00:00.000000+00:00'"))
    source.dispose()
    here, back = f"sqlite:///{tmp_path}/shared.db", f"sqlite:///{tmp_path}/back.db"
    told = direct.json("db", "copy", here, url)
    assert told["not_copied"] == {}
    assert {table["table"]: table["rows"] for table in told["tables"]} == {
        name: len(rows) for name, rows in contents(here).items() if name != "blobs"
    }
    assert contents(url) == contents(here)
    again = direct.json("db", "copy", url, back)
    assert contents(back) == contents(here)
    assert [table["checksum"] for table in again["tables"]] == [table["checksum"] for table in told["tables"]]


def opened(home: Path, url: str | None = None) -> Habitus:
    environ = {"HOME": str(home.parent), "USER": "ann"} | ({"HABITUS_DATABASE": url} if url else {})
    return Habitus.open(read_settings(home, environ))


def furnish_with_skills(home: Path) -> None:
    with opened(home) as habitus:
        me, create = habitus.build_author(), habitus.skills.create
        for name in ("tidy-inbox", "old-habit", "switched-off"):
            create(Skill(name=name, description="Does it.", body="1. Do."), me)
        habitus.skills.edit("tidy-inbox", TextEdit(operation=EditOperation.APPEND, content="2. Archive."), me)
        record_use(habitus, "tidy-inbox", succeeded=True)
        habitus.skills.remove("old-habit", me)
        habitus.skills.set_enabled("switched-off", False, me)
        habitus.memory.add("Dates are day-first.")
        habitus.finder.learn_request("tidy-inbox", "sweep the mails of last week away")
    script = home / "skills" / "tidy-inbox" / "scripts" / "sweep.py"
    script.parent.mkdir()
    script.write_bytes(b"#!/bin/sh\n" + b"x" * 2_000_000)  # more than the history keeps of a file
    script.chmod(0o755)


def seen(home: Path, url: str | None = None) -> tuple[Any, ...]:
    with opened(home, url) as habitus:
        store = habitus.skills.get_layer("user").store
        return (
            load_all_entries(store),
            habitus.skills.read_all_counters(),
            [(version.number, version.author, version.tree_hash) for version in store.list_versions("tidy-inbox")],
            [(item.name, item.version, item.author) for item in store.list_archived()],
            [(engram.id, engram.text, engram.version) for engram in habitus.memory.list_lessons("all", limit=10)],
        )


def learned(home: Path) -> frozenset[str]:
    with opened(home) as habitus:
        return habitus.finder.list_learned_requests()


@pytest.mark.req("OP-01", "SK-06", "SK-12")
def test_a_home_moves_to_a_shared_database_and_back_with_all_it_has(direct: Direct, tmp_path: Path, url: str) -> None:
    furnish_with_skills(direct.home)
    before = seen(direct.home)
    told = "2 skills and 1 lesson of this home are not in the shared database. Copy them into an empty database with "
    said = [direct("skills", "list", env={"HABITUS_DATABASE": url}).err for _ in range(2)]
    assert (told in said[0], said[1]) == (True, "")
    direct.ok("jobs", "add", "curate")
    assert "Not copied: 1 pending jobs ('habitus jobs work --until-idle')." in direct.ok("db", "copy", "home", url)
    other, third = furnish(tmp_path / "other"), furnish(tmp_path / "third")
    assert seen(other, url) == before
    refused = direct("db", "copy", "home", url)
    assert (refused.code, "is not empty: it has 3 skills, 1 lesson" in refused.err) == (1, True)
    with opened(other, url) as habitus:
        habitus.skills.edit(
            "tidy-inbox", TextEdit(operation=EditOperation.APPEND, content="3. Done."), habitus.build_author()
        )
    direct.ok("--home", str(third), "db", "copy", url, "home")
    assert seen(third) == seen(other, url)
    assert learned(third) == learned(direct.home) != frozenset()
    sweep = (third / "skills" / "tidy-inbox" / "scripts" / "sweep.py").stat()
    assert (sweep.st_size, oct(sweep.st_mode)[-3:]) == (2_000_010, "700")


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_a_copy_that_was_killed_leaves_nothing_and_is_run_again(direct: Direct, url: str, python: str) -> None:
    furnish_with_skills(direct.home)
    own = sql.create_engine(sql.build_sqlite_url(direct.home / DATABASE))
    with own.begin() as connection:
        turns = tables(own)["turns"]
        rows = [{column.name: str(number) for column in turns.columns} for number in range(2500)]
        connection.execute(turns.insert(), rows)
    own.dispose()
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from habitus.app import read_settings; from habitus.app.sharing import database\n"
        "def die(done):\n"
        "    if done > 2000: os.kill(os.getpid(), signal.SIGKILL)\n"
        "settings = read_settings(Path(sys.argv[1]), {'HOME': sys.argv[1]})\n"
        "database.copy_database_by_address(settings, 'home', sys.argv[2], progress=die)\n"
    )
    killed = subprocess.run([python, "-c", code, str(direct.home), url], check=False)
    assert killed.returncode == 256 - signal.SIGKILL  # as the forked process tells it
    assert not any(contents(url).values())
    direct.ok("db", "copy", "home", url)
    whole, mine = contents(url), contents(sql.build_sqlite_url(direct.home / DATABASE))
    assert (whole["turns"], whole["engrams"]) == (mine["turns"], mine["engrams"])


@pytest.mark.req("OP-01", "OP-03")
def test_only_migrate_changes_the_schema_of_a_shared_database(direct: Direct, postgres_server: str) -> None:
    address = postgres.new_schema(postgres_server)
    env = {"HABITUS_DATABASE": address}
    empty = direct("db", "status", env=env)
    assert (empty.code, "no tables yet" in empty.out) == (1, True)
    direct.ok("db", "migrate", env=env)
    told = direct.json("db", "status", env=env)
    assert (told["schema"], told["is_usable"], told["rows"]["skills"]) == (sql.HEAD, True, 0)
    _at(address, "0011")
    for words in (("skills", "list"), ("db", "copy", "home", address), ("db", "migrate")):
        refused = direct(*words, env=env)
        assert (refused.code, "has schema 0011, from before the first release" in refused.err) == (1, True)
    assert direct("db", "status", env=env).code == 1
    _at(address, "9998")
    assert direct("skills", "list", env=env).code == 0  # a newer one that does not refuse older readers
    _at(address, "9999", oldest="9998")
    for words in (("skills", "list"), ("db", "migrate")):
        assert "was written by a newer Habitus (schema 9999" in direct(*words, env=env).err


def _at(address: str, schema: str, oldest: str = "") -> None:
    engine = sql.create_engine(address)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :schema"), {"schema": schema})
        if oldest:
            row = {"schema": schema, "oldest": oldest}
            connection.execute(sa.text("INSERT INTO schema_compatibility VALUES (:schema, :oldest)"), row)
    engine.dispose()


@pytest.mark.req("OP-01")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("copy",), "No database to copy to was given."),
        (("copy", "home", "home"), "can't be copied onto itself"),
        (("copy", "home", "mysql://x/y"), "does not work with a mysql database"),
        (("copy", "home", "postgresql://ann:secret@127.0.0.1:1/x?password=secret"), "The database is unreachable"),
    ],
)
def test_what_can_not_be_copied_is_said_in_one_line(direct: Direct, words: tuple[str, ...], told: str) -> None:
    ran = direct("db", *words)
    assert (ran.code, told in ran.err, "secret" in ran.err, ran.err.count("\n")) == (1, True, False, 1)
