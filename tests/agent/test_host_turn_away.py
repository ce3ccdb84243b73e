"""A turn of somebody's loop while the database is away for real: locked against readers, moved, its server cut off."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

from habitus.agent.hosted_turn import HostTurn
from habitus.app import Habitus, read_settings
from habitus.app.home_directory import DATABASE, OUTBOX_DIR
from habitus.events import OutcomeKind
from habitus.locks import acquire_lock
from habitus.memory.model import LessonDraft, LessonProducer
from habitus.skills.model import Skill
from tests.contracts import postgres
from tests.contracts.lines import line_to

RULE = "Never pour before the water boils."


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("habitus.sql.outage.TURN_BUSY_TIMEOUT_S", 0.3)


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Nobody else can even read it."""
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def moved(database: Path) -> Iterator[None]:
    away = database.with_name("elsewhere.db")
    database.rename(away)
    database.mkdir()  # so that nobody makes a new one in its place
    yield
    database.rmdir()
    away.rename(database)


def furnished(habitus: Habitus) -> None:
    habitus.skills.create(
        Skill(name="brew-tea", description="How tea is brewed", body="1. Boil."), habitus.build_author()
    )
    habitus.memory.encode(
        LessonDraft(text=RULE, kind="always", produced_by=LessonProducer.USER, user=habitus.settings.user)
    )
    with habitus.turn("first", conversation="c1") as turn:
        assert RULE in turn.system
        turn.done("ok")
    # Waits for the background work of its turn.
    asyncio.run(habitus.hosted_conversations.end_conversation("c1"))
    for thread in threading.enumerate():
        if thread.name == "habitus-housekeeping":
            thread.join()


@contextmanager
def opened_while_away(habitus: Habitus, word: str) -> Iterator[HostTurn]:
    with habitus.turn("how is tea brewed?", conversation="c2") as turn:
        assert "brew-tea" in turn.system
        assert RULE in turn.system
        yield turn
        turn.done("Boil it.")
    assert any(word in notice for notice in turn.notices)


def goes_on(habitus: Habitus) -> None:
    """The database is back: what waited is written down, and the conversation has everything again."""
    with habitus.turn("again", conversation="c2") as turn:
        assert turn.notices == ()
        assert RULE in turn.system
        turn.done("ok")
    assert [kept.request for kept in habitus.journal.list_session_turns("c2")] == ["how is tea brewed?", "again"]


@pytest.mark.some(1)
@pytest.mark.req("CL-07", "OP-03")
@pytest.mark.parametrize(("gone", "word"), [(locked, "busy"), (moved, "can't be opened")])
def test_a_conversation_opened_without_the_database_works_from_what_was_known_and_says_so(
    home: Path, tmp_path: Path, gone: Callable[[Path], AbstractContextManager[None]], word: str
) -> None:
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})) as habitus:
        furnished(habitus)
        habitus.local.dispose()  # its connections would keep the file
        with gone(home / DATABASE):
            with opened_while_away(habitus, word) as turn:
                assert "1. Boil." in turn.run("recall_skill", {"name": "brew-tea"}).content
            habitus.local.dispose()
        goes_on(habitus)


@pytest.mark.req("OP-03")
def test_a_turn_that_ended_while_the_database_was_busy_can_be_judged_before_the_next_one(
    home: Path, tmp_path: Path
) -> None:
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})) as habitus:
        furnished(habitus)
        habitus.local.dispose()
        with locked(home / DATABASE):
            with opened_while_away(habitus, "busy") as turn:
                pass
            habitus.local.dispose()
        replaying = acquire_lock(home / OUTBOX_DIR / "lock")  # as another process does that writes what is pending
        assert replaying is not None
        done = threading.Timer(0.3, os.close, [replaying])
        done.start()
        habitus.outcome(turn.id, ok=False, by="ann")
        done.join()
        (kept,) = habitus.journal.list_session_turns("c2")
        assert ("ann", OutcomeKind.FAILED) in [(said.source, said.kind) for said in kept.outcomes]


@pytest.mark.full
@pytest.mark.req("CL-07", "OP-03")
def test_the_same_holds_for_a_server_that_is_cut_off(home: Path, tmp_path: Path, postgres_server: str) -> None:
    with postgres.schema(postgres_server) as direct, line_to(direct) as line:
        environ = {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": line.url}
        with Habitus.open(read_settings(home, environ)) as habitus:
            furnished(habitus)
            line.cut()
            with opened_while_away(habitus, "The database is unreachable") as turn:
                assert not turn.run("recall_skill", {"name": "brew-tea"}).outcome.is_ok  # its text lies on the server
            line.restore()
            goes_on(habitus)
