"""What a turn costs: the same in a large library as in a small one, and no text is paid for twice."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from habitus.agent.background import run_in_thread
from habitus.agent.library.view import LOOKED_AT_ONCE
from habitus.agent.session import Session
from habitus.app import Habitus
from habitus.llm.model import CompletionRequest, PersonMessage, TextContent, ToolResultMessage
from habitus.llm.scripted import calls, says
from habitus.memory.model import LessonDraft, LessonProducer
from habitus.skills import trees
from habitus.skills.edits import EditOperation, TextEdit
from habitus.skills.model import Manifest, Skill
from tests.agent.test_code_tools import ADD, kept

Talk = Callable[..., tuple[Session, object]]
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "session.py"
MOST, MOST_PER_CALL = 40, 8


def fill(habitus: Habitus, count: int) -> None:
    made = {
        f"s-{n:05d}": trees.update_main_file({}, skill(f"s-{n:05d}", f"1. Water flower {n}.")) for n in range(count)
    }
    habitus.skills.write_trees("user", made, habitus.build_author())


def skill(name: str, body: str, **fields: object) -> Skill:
    return Skill(name=name, description=f"Waters {name}.", body=body, manifest=Manifest(**fields))  # type: ignore[arg-type]  # the test's own


@contextmanager
def statements() -> Iterator[list[str]]:
    """What is executed, in the threads of turns."""
    seen: list[str] = []

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        if not statement.startswith(("BEGIN", "PRAGMA")) and not is_learning():
            seen.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


_LEARNING = (
    "credit_skills_and_lessons_of_turn",
    "credit_skills_and_lessons_of_request",
    "scan_directories_for_manual_changes",
    "learn",
)


def is_learning() -> bool:
    """Whether what runs now goes on after the reply, in the background."""
    return any(frame.function in _LEARNING for frame in inspect.stack(0))


@pytest.mark.full
@pytest.mark.req("PF-04")
@pytest.mark.parametrize("size", [pytest.param(5, marks=pytest.mark.full), LOOKED_AT_ONCE + 1])
async def test_a_turn_asks_the_database_no_more_in_a_large_library(talk: Talk, habitus: Habitus, size: int) -> None:
    fill(habitus, size)
    for n in range(20):
        text = f"The pump of house {n} wants oil before the flowers are watered."
        habitus.memory.encode(LessonDraft(text=text, kind="lesson", produced_by=LessonProducer.USER, user="ann"))
    recalls = [calls("recall_skill", {"name": f"s-0000{n}"}) for n in (1, 2)]
    session, _ = talk([says("one"), says("two"), *recalls, says("three")])
    await session.turn("water the flowers of house 3")
    await session.wait_for_learning()
    with statements() as seen:
        await session.turn("water the flowers of house 4")
    assert 10 < len(seen) <= MOST
    await session.wait_for_learning()
    with statements() as with_calls:
        await session.turn("oil the pump of house 5")
    assert len(with_calls) <= MOST + 2 * MOST_PER_CALL


@pytest.mark.req("PF-04", "AG-01")
async def test_no_statement_of_a_turn_runs_on_the_event_loop(talk: Talk, habitus: Habitus) -> None:
    fill(habitus, 5)
    await kept(habitus, "add-up")
    session, _ = talk(
        [
            calls("recall_skill", {"name": "s-00001"}),
            calls("list_lessons"),
            calls("add_up", {"numbers": [1, 2]}),
            calls("create_tool", {**ADD, "name": "sum"}),
            calls("sum", {"numbers": [3]}),
            calls("manage_skills", {"action": "test", "name": "add_up"}),
            says("done"),
        ]
    )
    on_the_loop: list[str] = []

    def note(connection: object, cursor: object, statement: str, *more: object) -> None:
        if threading.current_thread() is threading.main_thread():
            on_the_loop.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        await session.turn("water the flowers")
        await session.wait_for_learning()
        await session.close()
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert on_the_loop == []
    assert [message.content for message in session.history.messages if isinstance(message, ToolResultMessage)][
        2::2
    ] == [
        "3",
        "3",
    ]


@pytest.mark.full
@pytest.mark.req("PF-04", "SK-13")
async def test_a_change_made_by_hand_shows_at_the_latest_one_turn_later(talk: Talk, habitus: Habitus) -> None:
    fill(habitus, LOOKED_AT_ONCE + 1)
    seen: list[CompletionRequest] = []

    def answer(ask: CompletionRequest) -> object:
        seen.append(ask)
        return says("ok")

    session, _ = talk(answer)
    await session.turn("one")
    await session.wait_for_learning()
    by_hand = habitus.settings.home / "skills" / "aa-by-hand"
    by_hand.mkdir()
    (by_hand / "SKILL.md").write_text("---\nname: aa-by-hand\ndescription: Written by hand.\n---\n\n1. Look.\n")
    for said in ("two", "three"):
        await session.turn(said)
        await session.wait_for_learning()
    assert habitus.skills.find("aa-by-hand", at=habitus.skills.snapshot(check_disk=False)).name == "aa-by-hand"
    assert "aa-by-hand" in _context(seen[-1]) or "aa-by-hand" in seen[-1].system


def _context(ask: CompletionRequest) -> str:
    last = ask.messages[-1]
    assert isinstance(last, PersonMessage)
    return "\n".join(part.text for part in last.parts if isinstance(part, TextContent))


@pytest.mark.req("AG-12", "SE-02")
async def test_eager_text_is_shown_once_and_referred_to_afterwards(talk: Talk, habitus: Habitus) -> None:
    long = "Water the roses in the morning. " * 100
    habitus.skills.create(skill("roses", long, always_include=True), habitus.build_author())
    asks: list[CompletionRequest] = []

    def answer(ask: CompletionRequest) -> object:
        asks.append(ask)
        return says("ok")

    session, _ = talk(answer)
    for n in range(4):
        await session.turn(f"what now, hour {n}?")
    sent = [str(message) for message in asks[-1].messages]
    assert sum(text.count(long.strip()) for text in sent) == 1
    assert "### Skill: roses (always_include)" in _context(asks[-1])
    assert len({ask.system for ask in asks}) == 1
    habitus.skills.edit("roses", _append("Not at noon."), habitus.build_author())
    await session.turn("and at noon?")
    assert "Not at noon." in _context(asks[-1])


def _append(text: str) -> TextEdit:
    return TextEdit(operation=EditOperation.APPEND, content=text)


@pytest.mark.req("AG-12")
async def test_eager_text_that_left_with_the_oldest_turns_is_shown_again(talk: Talk, habitus: Habitus) -> None:
    habitus.skills.create(skill("roses", "Water the roses.", always_include=True), habitus.build_author())
    asks: list[CompletionRequest] = []

    def answer(ask: CompletionRequest) -> object:
        asks.append(ask)
        return says("x" * 4000)

    session, _ = talk(answer, model={"context_tokens": 9000})
    for n in range(12):
        await session.turn(f"what now, hour {n}?")
    shown = [n for n, ask in enumerate(asks) if "Water the roses." in _context(ask)]
    assert shown[0] == 0
    assert 1 < len(shown) < 12
    assert all("Water the roses." in "".join(map(str, ask.messages)) for ask in asks)


@pytest.mark.full
@pytest.mark.req("PF-04")
def test_the_benchmark_measures_a_session_for_each_size() -> None:
    command = [sys.executable, str(SCRIPT), "--skills", "3", "30", "--turns", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)["systems"]["habitus"]
    for size in (3, 30):
        assert found[f"statements_{size}"] <= MOST
        assert found[f"statements_per_call_{size}"] <= MOST_PER_CALL
        assert found[f"input_tokens_last_{size}"] < 2 * found[f"input_tokens_first_{size}"]
        for name in ("prepare_ms", "block_ms", "select_and_menu_ms", "close_ms", "close_statements"):
            assert found[f"{name}_{size}"] >= 0


async def test_a_cancelled_step_is_waited_for() -> None:
    release, ended = threading.Event(), []

    def step() -> None:
        release.wait()
        ended.append(True)

    task = asyncio.create_task(run_in_thread(step))
    await asyncio.sleep(0)
    task.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
