"""Forgetting a person: gone from every place that kept them, and gone again when a backup brings them back."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import pkgutil
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import habitus
from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.app.home_directory import CHAT_HISTORY_FILE, DATABASE, SESSION_PADS_DIR
from habitus.app.operating import erasure_records, jobs, personal_data
from habitus.app.review import reminding
from habitus.hosts.hook import NOTED_SESSIONS_FILE
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import LessonDraft, LessonKind, LessonProducer, LessonProvenance
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import Skill
from tests.cli.conftest import Direct
from tests.contracts import postgres
from tests.homes import furnish as make_home

USERS = "[users.ann]\nadmin = true\n[users.bob]\nadmin = false\n"
OF_ANN = ("melancholy zeppelin accounts", "zeppelins need ballast on Tuesdays", "zeppelin draft nobody approved")
OF_BOB = ("carrot harvest statistics", "carrots are pulled by hand")
REMOVED = "the zeppelin that was written and removed"
REPLACED = "the zeppelin wording before the edit"


def talk(opened: Habitus, user: str, said: str, lesson: str) -> str:
    proposed = calls("create_skill", {"name": "of-ann", "title": "", "description": "Serves.", "content": OF_ANN[2]})
    recalled = calls("recall_skill", {"name": "tea"})

    async def turn() -> str:
        script = [recalled, *([proposed] if user == "ann" else []), says("ok")]
        async with opened.session(ScriptedModel(script), user=user) as session:
            await session.turn(f"please do the {said} for me")
            assert session.last is not None
            evidence = LessonProvenance(trace=session.last.id, session=session.id, user=user)
            memory = opened.open_memory(user=user)
            memory.encode(
                LessonDraft(
                    text=lesson, kind=LessonKind.LESSON, user=user, evidence=evidence, produced_by=LessonProducer.USER
                )
            )
            opened.outcome(session.last.id, ok=True)
            return session.id

    id = asyncio.run(turn())
    opened.finder.learn_request("tea", f"please do the {said} for me")
    pad = opened.writable_dir / SESSION_PADS_DIR / id
    pad.mkdir(parents=True, exist_ok=True)
    (pad / "cells.txt").write_text(said)
    return id


def furnish(home: Path, tmp_path: Path, **environ: str) -> Habitus:
    """A home of ann's with all that can be kept of her, and of bob."""
    (make_home(home) / "habitus.toml").write_text(USERS)
    settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann", **environ})
    opened = Habitus.open(settings.model_copy(update={"durable": False}))
    for name, body in (("tea", REPLACED), ("old", REMOVED)):
        opened.skills.create(Skill(name=name, description="Brews.", body=body), opened.build_author(OF_ANN[0]))
    opened.skills.edit("tea", TextEdit(operation=EditOperation.REPLACE, content="1. Boil."), opened.build_author())
    opened.skills.remove("old", opened.build_author())
    talk(opened, "ann", *OF_ANN[:2])
    talk(opened, "bob", *OF_BOB)
    (home / NOTED_SESSIONS_FILE).write_text(json.dumps({"session": "s", "transcript": OF_ANN[0], "cwd": "/"}))
    (home / CHAT_HISTORY_FILE).write_text(f"+{OF_ANN[0]}\n")
    queue = jobs.open_job_queue(opened)
    jobs.submit_job(opened, queue, "learn", [f"/{OF_ANN[0]}.jsonl"])
    reminding.count_pending_items_once_a_day(opened)  # so that no command says it
    return opened


@pytest.fixture
def ann(direct: Direct) -> Direct:
    """The command line as ann has it, whatever account runs the tests."""
    return replace(direct, cli=replace(direct.cli, env={"HABITUS_USER": "ann"}))


@pytest.fixture(scope="module")
def anns_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ann")
    with furnish(place / "home", place):
        return place / "home"


@pytest.fixture
def furnished(ann: Direct, anns_home: Path) -> Direct:
    shutil.rmtree(ann.home)
    shutil.copytree(anns_home, ann.home)
    return ann


def places_of(home: Path, words: tuple[str, ...]) -> Iterator[str]:
    """Files that hold one of these, as they lie on the disk; free pages of the database are among them."""
    for path in home.rglob("*"):
        if path.is_file() and any(word.encode() in path.read_bytes() for word in words):
            yield str(path.relative_to(home))


@pytest.mark.full
@pytest.mark.req("OP-04")
def test_somebody_who_is_forgotten_is_nowhere_and_the_others_stay(furnished: Direct) -> None:
    told = furnished.json("users", "forget", "ann", "--dry-run")
    kept = {"turns", "evidence", "lessons", "proposals", "learned requests", "archived skills", "files", "jobs"}
    assert kept <= set(told["erased"])
    assert told["erased"]["past versions of skills"] == 1
    assert set(places_of(furnished.home, OF_ANN)) >= {
        DATABASE,
        CHAT_HISTORY_FILE,
        NOTED_SESSIONS_FILE,
        "memory/lessons.md",
    }
    done = furnished.json("users", "forget", "ann", "--yes")
    assert (done["erased"], done["in_use"], done["left"]) == (told["erased"], ["tea"], [])
    assert list(places_of(furnished.home, (*OF_ANN, REMOVED, "ann (claimed)"))) == []
    assert furnished.json("users", "forget", "ann", "--dry-run")["erased"] == {}
    assert "ann" not in (furnished.home / erasure_records.FILE).read_text()
    assert [entry["author"]["name"] for entry in furnished.json("skills", "history", "tea")["versions"]] == [
        "forgotten"
    ]
    bobs = furnished.json("sessions", "list", "--all-users")["sessions"]
    assert [session["user"] for session in bobs] == ["bob"]
    assert OF_BOB[0] in bobs[0]["title"]
    mine = furnished.json("sessions", "list")
    assert (mine["sessions"], mine["hidden"]) == ([], 1)
    assert "1 session of other users: --all-users, or --user NAME." in furnished.ok("sessions", "list")
    assert furnished.json("sessions", "list", "--user", "bob")["sessions"] == bobs
    assert "1. Boil." in furnished.ok("skills", "show", "tea")


@pytest.mark.full
@pytest.mark.req("OP-04")
def test_what_others_keep_of_them_is_named_even_where_it_is_compressed(furnished: Direct) -> None:
    quoted = f"please do the {OF_ANN[0]} for me"
    with Habitus.open(read_settings(furnished.home, {"HOME": str(furnished.home), "USER": "ann"})) as opened:
        bob = opened.build_author(user="bob")
        opened.skills.create(Skill(name="minutes", description="Notes.", body=f"As ann said: {quoted}"), bob)
        opened.skills.edit("minutes", TextEdit(operation=EditOperation.REPLACE, content="1. Write."), bob)
    with zipfile.ZipFile(furnished.home / "skills" / "minutes" / "old.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("minutes.txt.gz", gzip.compress(quoted.encode() * 20))
    ran = furnished("users", "forget", "ann", "--yes", "--json")
    assert ran.code == 1
    assert {"blobs (sqlite)", "skills/minutes/old.zip"} <= set(json.loads(ran.out)["left"])


@pytest.mark.req("OP-04")
def test_a_backup_put_back_by_hand_does_not_bring_them_back(furnished: Direct, tmp_path: Path) -> None:
    with closing(sqlite3.connect(furnished.home / DATABASE)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    backup = shutil.copy(furnished.home / DATABASE, tmp_path / "backup.db")
    furnished.ok("users", "forget", "ann", "--yes")
    shutil.copy(backup, furnished.home / DATABASE)
    furnished.ok("skills", "list")  # any command will do
    assert list(places_of(furnished.home, OF_ANN)) == []
    assert furnished.json("users", "forget", "ann", "--dry-run")["erased"] == {}
    assert len(furnished.json("sessions", "list", "--all-users")["sessions"]) == 1


@pytest.mark.req("OP-04")
def test_nobody_is_forgotten_by_accident_or_by_whom_it_does_not_concern(ann: Direct) -> None:
    (ann.home / "habitus.toml").write_text(USERS)
    for words, code, said in (
        (("ann",), 1, "Only an admin may erase 'ann'."),
        (("bob",), 2, "This can't be undone. There is no terminal to ask at: review first, then add --yes."),
    ):
        ran = ann("users", "forget", *words, env={"HABITUS_USER": "bob"})
        assert (ran.code, said in ran.err) == (code, True)
    assert not (ann.home / erasure_records.FILE).exists()
    assert ann.ok("users", "forget", "nobody-here", "--yes").startswith("Nothing is stored about 'nobody-here'.")


@pytest.mark.full
@pytest.mark.req("OP-04")
def test_what_still_tells_of_them_is_said_and_fails(furnished: Direct) -> None:
    furnished.ok("skills", "edit", "tea", "--append", f"As in: please do the {OF_ANN[0]} for me")
    ran = furnished("users", "forget", "ann", "--yes")
    assert ran.code == 1
    assert "still there: skills/tea/SKILL.md" in ran.err


@pytest.mark.full
@pytest.mark.req("OP-04")
def test_on_a_shared_database_every_host_forgets(ann: Direct, tmp_path: Path, postgres_server: str) -> None:
    with postgres.schema(postgres_server) as url:
        other = tmp_path / "other"
        shutil.copytree(ann.home, other)
        with furnish(ann.home, tmp_path, HABITUS_DATABASE=url):
            pass
        shared = {"HABITUS_DATABASE": url}
        with Habitus.open(read_settings(other, {"HOME": str(tmp_path), "USER": "ann", **shared})) as there:
            there.memory.sync_pages()
        assert set(places_of(other, OF_ANN)) >= {"memory/lessons.md"}
        done = ann.json("users", "forget", "ann", "--yes", env=shared)
        assert (done["left"], done["erased"]["turns"]) == ([], 1)
        assert list(places_of(ann.home, OF_ANN)) == []
        with Habitus.open(read_settings(other, {"HOME": str(tmp_path), "USER": "ann", **shared})):
            assert list(places_of(other, OF_ANN)) == []


def test_every_table_is_known_to_hold_something_of_a_person_or_nothing() -> None:
    for module in pkgutil.walk_packages(habitus.__path__, "habitus."):
        if not module.name.startswith(("habitus.migrations", "habitus.__main__", "habitus.integrations")):
            importlib.import_module(module.name)
    listed = [
        {rows.table.name for rows in personal_data.PERSONAL_ROWS},
        set(personal_data.ERASED_ELSEWHERE),
        set(personal_data.NOT_PERSONAL),
    ]
    assert sorted(name for names in listed for name in names) == sorted(sql.metadata.tables)


GREET = "import json, sys\nprint(json.dumps({'hello': json.loads(sys.argv[1])['name']}))\n"
TAKES = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


@pytest.mark.req("SB-06", "OP-04")
def test_calls_that_tools_keep_go_with_the_person_who_made_them_wherever_that_was(ann: Direct) -> None:
    (ann.home / "habitus.toml").write_text(USERS)
    bob = replace(ann, cli=replace(ann.cli, env={"HABITUS_USER": "bob"}))
    made = {"name": "greet", "description": "Greets.", "parameters_schema": TAKES, "python_code": GREET}
    settings = read_settings(ann.home, ann.cli.environ({"HABITUS_USER": "ann"}))
    with Habitus.open(settings) as opened, opened.turn("make a tool that greets", conversation="with-ann") as turn:
        turn.run("create_tool", {**made, "test_payload": {"name": "Erika Mustermann"}})
        turn.done("It waits.", ok=True)
    bob.ok("review", "approve", "1")  # which makes the version bob's, and the call no less ann's
    code = ann.cli.cwd / "hand.py"
    code.write_text(GREET)
    new = ("tools", "new", "hand", "-d", "Greets.", "--code", str(code), "-s", json.dumps(TAKES), "-p")
    for person, name in ((ann, "Annegret Mustermann"), (bob, "Robert Beispielmann"), (bob, "Roberta Beispielmann")):
        person.ok(*new, json.dumps({"name": name}))

    told = ann.json("users", "forget", "ann", "--dry-run")["erased"]
    assert (told["recorded cases of tools"], told["past versions of skills"]) == (2, 2)
    gone = ann.json("users", "forget", "ann", "--yes")
    assert (gone["erased"], gone["left"]) == (told, [])
    kept = {
        name: [
            case["payload"]["name"]
            for case in json.loads(ann.skill_file(name).with_name("tool.json").read_text())["cases"]
        ]
        for name in ("greet", "hand")
    }
    assert kept == {"greet": [], "hand": ["Robert Beispielmann", "Roberta Beispielmann"]}
    assert list(places_of(ann.home, ("Erika Mustermann", "Annegret Mustermann"))) == []
    assert ann.ok("tools", "run", "hand", '{"name": "you"}') == '{"hello": "you"}\n'


@pytest.mark.req("SB-06", "OP-04")
def test_a_kept_call_that_somebody_else_repeats_is_named_as_left(ann: Direct) -> None:
    (ann.home / "habitus.toml").write_text(USERS)
    bob = replace(ann, cli=replace(ann.cli, env={"HABITUS_USER": "bob"}))
    code = ann.cli.cwd / "hand.py"
    code.write_text(GREET)
    for person, name in ((ann, "hand"), (bob, "other")):
        new = ("tools", "new", name, "-d", "Greets.", "--code", str(code), "-s", json.dumps(TAKES))
        person.ok(*new, "-p", '{"name": "Erika Mustermann"}')
    ran = ann("users", "forget", "ann", "--yes", "--json")
    assert (ran.code, "skills/other/tool.json" in json.loads(ran.out)["left"]) == (1, True)
