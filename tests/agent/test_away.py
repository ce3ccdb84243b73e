"""Never in the way: a server that is slow or cut off, a process that starts meanwhile, and what waits on the disk."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from habitus.agent.session import Session
from habitus.agent.stream import NoticeEvent
from habitus.app import Habitus, read_settings
from habitus.app.home_directory import DATABASE, OUTBOX_DIR
from habitus.errors import DatabaseUnavailable
from habitus.journal.outbox import JournalOutbox
from habitus.llm.scripted import ScriptedModel, says
from habitus.memory.model import LessonDraft, LessonProducer
from habitus.redact import Redactor
from habitus.skills.model import Skill
from tests.agent.conftest import Talk
from tests.contracts import postgres
from tests.contracts.lines import line_to
from tests.planted import KEYS

RULE = "Never pour before the water boils."


def spool_of(habitus: Habitus) -> JournalOutbox:
    return JournalOutbox(habitus.writable_dir / OUTBOX_DIR, habitus.redactor)


async def notices(session: Session, text: str) -> list[str]:
    return [event.text async for event in session.turn_stream(text) if isinstance(event, NoticeEvent)]


@pytest.mark.full
@pytest.mark.req("OP-03")
async def test_a_server_that_stalls_or_is_cut_off_takes_down_no_turn_and_no_new_process(
    home: Path, tmp_path: Path, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("habitus.sql.outage.PROBE_TIMEOUT_S", 1.0)  # a busy machine is not a slow server
    with postgres.schema(postgres_server) as direct, line_to(direct) as line:
        settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann", "HABITUS_DATABASE": line.url})
        model = ScriptedModel([says("one"), says("two"), says("three"), says("four"), says("five")])
        with Habitus.open(settings) as habitus:
            habitus.skills.create(
                Skill(name="brew-tea", description="How tea is brewed", body="."), habitus.build_author()
            )
            habitus.memory.encode(LessonDraft(text=RULE, kind="always", produced_by=LessonProducer.USER, user="ann"))
            async with habitus.session(model, id="first") as session:
                assert await notices(session, "the first thing") == []
            async with habitus.session(model, id="second") as session:
                line.stall()
                (said,) = await notices(session, "the second thing")
                assert said.startswith(
                    "The database is unreachable (no answer within 1000 ms). This turn used the last known state"
                )
                assert await notices(session, "the third thing") == []  # it was said
                line.cut()
        with Habitus.open(settings) as habitus:
            async with habitus.session(model, id="third") as session:
                (said,) = await notices(session, "the fourth thing")
                assert said.startswith("The database is unreachable. This turn used the last known state")
                prompt = "\n".join(section.text for section in session.sections())
                assert RULE in prompt
                assert "brew-tea" in prompt
            with pytest.raises(DatabaseUnavailable, match="Changes are possible again when it is back"):
                habitus.skills.remove("brew-tea", habitus.build_author())
            assert spool_of(habitus).pending_count >= 3
        line.restore()
        with Habitus.open(settings) as habitus:
            async with habitus.session(model, id="fourth") as session:
                assert await notices(session, "the fifth thing") == []
            kept = [
                turn for id in ("first", "second", "third", "fourth") for turn in habitus.journal.list_session_turns(id)
            ]
            words = ("first", "second", "third", "fourth", "fifth")
            assert [turn.request for turn in kept] == [f"the {word} thing" for word in words]
            assert all(turn.ended_on and turn.outcomes for turn in kept)
            assert (spool_of(habitus).pending_count, habitus.is_offline) == (0, False)


@pytest.mark.req("OP-03")
async def test_turns_wait_on_the_disk_and_what_is_damaged_there_is_set_aside(
    talk: Talk, habitus: Habitus, caplog: pytest.LogCaptureFixture
) -> None:
    session, _ = talk([says(word) for word in ("one", "two", "three", "four")])
    await session.turn("the first thing")
    await session.wait_for_learning()
    habitus.local.dispose()  # its connections would keep the file
    database = habitus.settings.home / DATABASE
    away = database.rename(database.with_name("elsewhere.db"))
    database.mkdir()  # so that nobody makes a new one in its place
    await session.turn("the second thing, key " + KEYS["anthropic"])
    await session.turn("the third thing")
    replaying, waiting = (habitus.settings.home / OUTBOX_DIR / name for name in ("replaying", "waiting"))
    second, third = waiting.read_bytes().splitlines(keepends=True)
    assert (KEYS["anthropic"].encode() in second, waiting.stat().st_mode & 0o077) == (False, 0)
    replaying.write_bytes(second)  # as a killed process leaves it
    waiting.write_bytes(b"half a li\n" + third.replace(b"third", b"bird!") + second)
    database.rmdir()
    away.rename(database)
    with caplog.at_level(logging.WARNING):
        await session.turn("the fourth thing")
    kept = [turn.request[:16] for turn in habitus.journal.list_session_turns(session.id)]
    assert kept == ["the first thing", "the second thing", "the fourth thing"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("2 lines of") and "unreadable" in said  # noqa: PT018
    assert (habitus.settings.home / OUTBOX_DIR / "unreadable").read_bytes().count(b"\n") == 2


@pytest.mark.req("OP-03")
async def test_what_finds_no_room_is_counted(talk: Talk, habitus: Habitus) -> None:
    session, _ = talk([says("one")])
    await session.turn("the first thing")
    (turn,) = habitus.journal.list_session_turns(session.id)
    spool = JournalOutbox(habitus.settings.home / "small", Redactor(()), max_bytes=100)
    assert (spool.add_turn(turn), spool.is_empty, spool.pending_count, spool.dropped_count) == (False, True, 0, 1)
