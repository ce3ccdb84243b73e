"""The journal: whole turns in, whole turns out, no secrets, and outcomes that may come later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.errors import NotFound
from habitus.events import AgentEvent, EventKind, OutcomeKind
from habitus.journal.journal import Journal, list_chosen_non_sticky_skills_of_turn
from habitus.journal.model import ExposureAssignment, SelectedSkill, SkillPlacementKind, Turn, TurnMessage, TurnOutcome
from habitus.journal.usage import get_deciding_or_heaviest_outcome
from habitus.redact import Redactor

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def journal() -> Journal:
    return _on(sql.create_in_memory_engine())


def _on(engine: sa.Engine, clock: Callable[[], datetime] = lambda: NOW) -> Journal:
    return Journal(engine, clock=clock, redactor=Redactor(["hunter2-secret"]), retention=timedelta(days=30))


TURN = Turn(
    id="t1",
    session="s1",
    request="sum the csv",
    started_on=NOW,
    ended_on=NOW + timedelta(seconds=3),
    caller_id="ticket-7",
    conversation="c1",
    messages=(TurnMessage(role="user", content="sum the csv"), TurnMessage(role="assistant", content=[{"text": "42"}])),
    events=(AgentEvent(kind=EventKind.TOOL_CALL, detail={"name": "x"}, severity=1, round_idx=0),),
    selected=(
        SelectedSkill(name="csv", place=SkillPlacementKind.EAGER, reason="always_include", layer="user", version=2),
        SelectedSkill(name="kept", place=SkillPlacementKind.STICKY, reason="sticky=t0"),
        SelectedSkill(name="asked-for", place=SkillPlacementKind.LOADED, reason="recall_skill"),
        SelectedSkill(name="other", place=SkillPlacementKind.MENU, reason="menu"),
    ),
    exposures=(ExposureAssignment(item="csv", kind="skill", version=2, tokens=120, propensity=0.9),),
    outcomes=(TurnOutcome(kind=OutcomeKind.OK, weight=0.2, source="signal", reason="no complaint", at=NOW),),
    usage={"input_tokens": 10},
)


@pytest.mark.req("AG-10")
def test_a_turn_is_read_as_it_was_written() -> None:
    book = journal()
    book.record_complete_turn(TURN)
    assert book.get_turn("t1") == TURN
    book.record_complete_turn(TURN)
    assert book.get_turn("t1") == TURN
    assert book.list_session_turns("s1") == [TURN]


@pytest.mark.req("AG-10", "SB-14")
def test_secrets_are_found_nowhere() -> None:
    engine = sql.create_in_memory_engine()
    book = _on(engine)
    leak = "use hunter2-secret please"
    book.record_complete_turn(
        replace(
            TURN,
            request=leak,
            messages=(TurnMessage(role="user", content={"deep": [leak]}),),
            events=(AgentEvent(kind=EventKind.TOOL_CALL, detail={"args_summary": leak}),),
        )
    )
    with engine.connect() as connection:
        raw = "".join(connection.connection.driver_connection.iterdump())  # type: ignore[union-attr]  # sqlite3 has it
    assert "hunter2" not in raw
    assert "[redacted" in raw


@pytest.mark.req("AG-10")
def test_an_outcome_may_come_later_under_the_callers_id_and_be_corrected() -> None:
    book = journal()
    book.record_complete_turn(TURN)
    book.record_outcome("ticket-7", TurnOutcome(kind=OutcomeKind.OK, weight=1.0, source="api"))
    book.record_outcome("ticket-7", TurnOutcome(kind=OutcomeKind.FAILED, weight=1.0, source="api", reason="wrong sum"))
    found = book.get_turn("t1").outcomes
    assert [(outcome.source, outcome.kind) for outcome in found] == [
        ("signal", OutcomeKind.OK),
        ("api", OutcomeKind.FAILED),
    ]
    final = get_deciding_or_heaviest_outcome(found)
    assert final is not None
    assert (final.source, final.reason) == ("api", "wrong sum")
    book.record_complete_turn(TURN)
    assert len(book.get_turn("t1").outcomes) == 2
    with pytest.raises(NotFound, match="no turn 'nothing'"):
        book.record_outcome("nothing", TurnOutcome(kind=OutcomeKind.OK, weight=1.0, source="api"))


@pytest.mark.req("AG-10")
def test_a_weak_signal_never_outweighs_a_word() -> None:
    word = TurnOutcome(kind=OutcomeKind.FAILED, weight=1.0, source="user", at=NOW)
    later = TurnOutcome(kind=OutcomeKind.OK, weight=0.2, source="signal", at=NOW + timedelta(days=1))
    assert get_deciding_or_heaviest_outcome([word, later]) == word
    assert get_deciding_or_heaviest_outcome([]) is None


@pytest.mark.req("SE-03")
def test_what_was_only_sticky_is_not_carried_on() -> None:
    assert list_chosen_non_sticky_skills_of_turn(TURN) == ("csv", "asked-for")


@pytest.mark.req("AG-10")
def test_conversations_and_sessions_are_listed_newest_first() -> None:
    book = journal()
    for number in range(4):
        book.record_complete_turn(
            replace(TURN, id=f"t{number}", session=f"s{number % 2}", started_on=NOW + timedelta(minutes=number))
        )
    assert [turn.id for turn in book.list_recent_turns_of_conversation("c1", limit=2)] == ["t3", "t2"]
    assert [(session.id, session.turns) for session in book.list_sessions()] == [("s1", 2), ("s0", 2)]
    with pytest.raises(NotFound):
        book.get_turn("t9")


@pytest.mark.req("AG-10", "PF-04")
def test_old_turns_go_and_sessions_are_listed_in_one_statement_each_whatever_their_number() -> None:
    engine = sql.create_in_memory_engine()
    book = _on(engine, lambda: NOW + timedelta(days=31))
    for number in range(30):
        started = NOW + timedelta(days=number % 2 * 2)
        book.record_complete_turn(replace(TURN, id=f"t{number}", session=f"s{number}", started_on=started))
    asked: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    assert book.prune_turns() == 15
    assert book.list_session_ids() == {f"s{number}" for number in range(1, 30, 2)}
    assert {session.title for session in book.list_sessions()} == {TURN.request}
    assert [text.split()[0] for text in asked if not text.startswith("BEGIN")] == [
        "DELETE",
        "DELETE",
        "SELECT",
        "SELECT",
    ]


@pytest.mark.req("SK-16")
def test_what_a_user_has_seen_is_kept_per_user() -> None:
    book = journal()
    assert book.get_hashes_of_seen_skills("ada") is None
    book.store_hashes_of_seen_skills("ada", {"a": "1"})
    book.store_hashes_of_seen_skills("ada", {"a": "2"})
    assert (book.get_hashes_of_seen_skills("ada"), book.get_hashes_of_seen_skills("bob")) == ({"a": "2"}, None)
