"""What a turn adds to the database: its menu once, and only what differs from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.events import OutcomeKind
from habitus.journal.journal import Journal
from habitus.journal.menus import join_selection_from_menu_and_rows, split_selection_into_menu_and_rows
from habitus.journal.model import (
    ExposureAssignment,
    JudgementSourceKind,
    SelectedSkill,
    SkillPlacementKind,
    Turn,
    TurnOutcome,
)
from habitus.journal.tables import exposures, menu_exposures, selections, turn_menus
from habitus.llm.scripted import ScriptedModel, says
from habitus.redact import Redactor
from habitus.skills.model import Skill
from tests.homes import furnish

NOW = datetime(2030, 1, 1, tzinfo=UTC)
STEADY = tuple(
    ExposureAssignment(
        kind="skill", item=f"s{n}@user", version=1, is_steady=True, is_offered=n != 3, propensity=0.9, tokens=n
    )
    for n in range(30)
)


def _journal(engine: sa.Engine, now: datetime = NOW) -> Journal:
    return Journal(engine, clock=lambda: now, redactor=Redactor([]), retention=timedelta(days=30))


def _turn(number: int, *used: ExposureAssignment) -> Turn:
    started = NOW + timedelta(minutes=number)
    began = STEADY if number == 1 else ()
    return Turn(id=f"t{number}", session="s", request="x", started_on=started, user="ann", exposures=(*began, *used))


def _count(engine: sa.Engine, table: sa.Table) -> int:
    with sql.read_transaction(engine) as conn:
        return int(conn.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


_placed = st.builds(
    SelectedSkill,
    name=st.sampled_from("abcdef"),
    layer=st.sampled_from(["user", "project"]),
    version=st.integers(0, 2),
    place=st.sampled_from([place for place in SkillPlacementKind if place is not SkillPlacementKind.LOADED]),
    reason=st.sampled_from(["eligible", "no room"]),
)


@pytest.mark.req("PF-05", "SE-06")
@given(st.lists(_placed, unique_by=lambda one: (one.name, one.layer)), st.sets(st.sampled_from("abcdef")))
def test_a_selection_is_split_and_joined_without_loss(placed: list[SelectedSkill], loaded: set[str]) -> None:
    selected = [
        *placed,
        *(SelectedSkill(name=name, place=SkillPlacementKind.LOADED, reason="asked") for name in loaded),
    ]
    menu, own = split_selection_into_menu_and_rows(selected)
    assert Counter(join_selection_from_menu_and_rows(menu, own)) == Counter(selected)


@pytest.mark.req("PF-05", "LA-05")
def test_steady_exposures_are_one_row_and_are_counted_like_rows_of_their_own() -> None:
    engine = sql.create_in_memory_engine()
    book = _journal(engine)
    used = replace(STEADY[5], is_used=True)
    for turn in (_turn(1), _turn(1), _turn(2, used)):
        book.record_complete_turn(turn)
    book.record_outcome(
        "t1", TurnOutcome(kind=OutcomeKind.FAILED, weight=1, source="user", source_kind=JudgementSourceKind.PERSON)
    )
    assert (_count(engine, menu_exposures), _count(engine, exposures), _count(engine, turn_menus)) == (1, 1, 1)
    found = book.load_scored_exposures()
    assert {one.exposure for one in found} == {*STEADY, used} - {STEADY[5]}
    # What is used only later began with the others, so it is judged by the same turns.
    assert {(one.turn, one.at, one.explicit_scores) for one in found} == {("t1", NOW + timedelta(minutes=1), (0.0,))}
    assert [one.exposure for one in book.load_scored_exposures(["s3@user"], user="ann")] == [STEADY[3]]
    assert book.load_scored_exposures(user="bob") == []
    assert set(book.get_turn("t1").exposures) == {*STEADY, used} - {STEADY[5]}
    assert book.erase_user_evidence("ann") >= 3
    assert (_count(engine, menu_exposures), _count(engine, turn_menus), book.load_scored_exposures()) == (0, 0, [])


@pytest.mark.req("PF-05")
def test_a_menu_goes_when_no_turn_refers_to_it() -> None:
    engine = sql.create_in_memory_engine()
    menu = tuple(SelectedSkill(name=f"s{n}", place=SkillPlacementKind.MENU, reason="eligible") for n in range(9))
    _journal(engine).record_complete_turn(replace(_turn(2), selected=menu))
    assert _journal(engine, NOW + timedelta(days=29)).prune_turns() == 0
    assert _count(engine, turn_menus) == 1
    assert _journal(engine, NOW + timedelta(days=31)).prune_turns() == 1
    assert _count(engine, turn_menus) == 0


@pytest.mark.req("PF-05")
async def test_a_turn_among_two_hundred_skills_keeps_at_most_six_kilobytes(tmp_path: Path) -> None:
    home = furnish(tmp_path / "home")
    settings = read_settings(home, {"HOME": str(home), "USER": "ann"})
    with Habitus.open(settings) as habitus:
        for n in range(200):
            skill = Skill(name=f"task-{n}", description=f"Does the work number {n}.", body="1. Do it.")
            habitus.skills.create(skill, habitus.build_author())
        await _take_turns(habitus, 2)
        before, rows = _measure_size(habitus), _count(habitus.shared, selections)
        await _take_turns(habitus, 20)
        assert (_measure_size(habitus) - before) / 20 <= 6000
        assert (_count(habitus.shared, selections) - rows) / 20 <= 10
        # Every past turn can still be explained, also what was only a line of the menu or had no room.
        last = habitus.journal.list_latest_turns_of_all_conversations(limit=1)[0]
        known = {one.name for one in habitus.journal.get_turn(last.id).selected}
        assert known >= {f"task-{n}" for n in range(200)}


async def _take_turns(habitus: Habitus, count: int) -> None:
    for number in range(0, count, 2):
        async with habitus.session(ScriptedModel([says("done"), says("done")])) as session:
            for request in (f"Do the work number {number}", f"Do the task {7 * number} again"):
                await session.turn(request)


def _measure_size(habitus: Habitus) -> int:
    with sql.read_transaction(habitus.shared) as conn:
        pages, free, size = (
            int(conn.execute(sa.text(f"PRAGMA {name}")).scalar_one())
            for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size
