"""An agent that failed once: it is told while it fails, the lesson is kept, and clean turns cost nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from habitus.agent.session import Session
from habitus.agent.stream import NudgeEvent
from habitus.app import Habitus
from habitus.app.learning.learning import open_session_error_learner
from habitus.events import OutcomeKind
from habitus.learning.detectors.rules import RULES
from habitus.llm.model import PersonMessage, TextContent
from habitus.llm.scripted import Script, ScriptedModel, calls, hanging_reply, says
from habitus.memory.model import LessonProducer
from habitus.settings import DetectorActivityMode, MemoryLearningMode, Settings
from tests.learning.keeper import RecordingKeeper

LESSON = "When a divisor comes from data, look for zeros before dividing by it."
SIGNATURE = RULES["repeated_error_signature"][1]


@pytest.fixture
def habitus_settings(habitus_settings: Settings) -> Settings:
    return habitus_settings.model_copy(update={"acc_mode": DetectorActivityMode.ACTIVE})


class Desk:
    """A session with its models, its learner and the memory that the learner teaches."""

    def __init__(self, habitus: Habitus, script: Script, cheap: Script) -> None:
        self.keeper = RecordingKeeper()
        self.model, self.cheap = ScriptedModel(script), ScriptedModel(cheap, name="scripted:cheap")
        self.learner = open_session_error_learner(habitus, self.keeper, self.cheap)
        self.session: Session = habitus.session(self.model, learner=self.learner)

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.keeper.learned]


@pytest.fixture
async def desks() -> AsyncIterator[list[Desk]]:
    opened: list[Desk] = []
    yield opened
    for desk in opened:
        await desk.session.close()


def divide(by: int) -> Any:
    cell = {"action": "exec", "code": f"{by} / 0", "one_line_description": "share the costs"}
    return calls("scratchpad", cell)


def lessons(*texts: str) -> Any:
    return says(json.dumps({"lessons": list(texts)}))


@pytest.mark.req("EL-01", "EL-02", "EL-03", "EL-04", "EL-05", "EL-07")
async def test_a_turn_that_fails_three_times_is_nudged_and_teaches_and_a_clean_one_costs_nothing(
    habitus: Habitus, desks: list[Desk]
) -> None:
    clean = calls("scratchpad", {"action": "exec", "code": "print(6 * 7)", "one_line_description": "multiply"})
    script = [divide(1), divide(2), divide(3), says("I can't."), clean, says("Forty-two.")]
    desk = Desk(habitus, script, [lessons(LESSON)])
    desks.append(desk)

    seen = [event async for event in desk.session.turn_stream("share the costs")]
    nudges = [event.text for event in seen if isinstance(event, NudgeEvent)]
    assert f"[Habitus self-check — repeated_error_signature] {SIGNATURE}" in nudges
    assert len(nudges) == len(set(nudges))
    last = desk.model.asked[3].messages[-1]
    assert isinstance(last, PersonMessage)
    assert TextContent(text=f"[Habitus self-check — repeated_error_signature] {SIGNATURE}") in last.parts

    await _settled(desk, 2)  # the most specific of two detectors, and what the cells teach
    assert SIGNATURE in desk.texts
    assert LESSON in desk.texts
    (from_cells,) = [each for each in desk.keeper.learned if each.produced_by is LessonProducer.CEREBELLUM]
    assert (from_cells.topic, from_cells.scope, from_cells.project) == (
        "scratchpad",
        "project",
        str(habitus.settings.cwd),
    )
    assert (len(desk.cheap.asked), habitus.spending.get_usage_today().calls) == (1, 1)

    done = await desk.session.turn("six times seven?")
    await desk.session.close()
    assert done.outcome.kind is OutcomeKind.OK
    assert len(desk.cheap.asked) == 1


@pytest.mark.req("EL-05")
async def test_cells_that_are_killed_after_an_error_bring_the_advice_on_kills_alone(
    habitus: Habitus, desks: list[Desk]
) -> None:
    cell = {"action": "exec", "code": "import os; os.kill(os.getpid(), 9)", "one_line_description": "train"}
    killed = calls("scratchpad", cell)
    desks.append(desk := Desk(habitus, [divide(1), killed, killed, says("I can't.")], [lessons(LESSON)]))
    seen = [event async for event in desk.session.turn_stream("train it")]
    rule = RULES["kill_loop:heavy"][1]
    assert [event.text for event in seen if isinstance(event, NudgeEvent)] == [
        f"[Habitus self-check — kill_loop] {rule}"
    ]


async def _settled(desk: Desk, lessons: int) -> None:
    while len(desk.keeper.learned) < lessons:
        await asyncio.sleep(0.01)


@pytest.mark.full
@pytest.mark.req("EL-07")
async def test_the_reply_does_not_wait_for_a_slow_post_mortem_and_closing_is_bounded(
    habitus: Habitus, desks: list[Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("habitus.agent.background.BackgroundTasks.__init__.__kwdefaults__", {"closing_s": 0.3})
    desk = Desk(habitus, [divide(1), says("I can't.")], [hanging_reply()])
    desks.append(desk)
    assert (await desk.session.turn("share the costs")).reply == "I can't."
    await desk.session.close()
    assert desk.texts == []


@pytest.mark.some(1)
@pytest.mark.req("EL-05", "ME-03")
@pytest.mark.parametrize("off", [{"memory": MemoryLearningMode.OFF}, {"acc_mode": DetectorActivityMode.OFF}])
async def test_off_learns_nothing_and_calls_no_model(habitus: Habitus, desks: list[Desk], off: dict[str, Any]) -> None:
    habitus.settings = habitus.settings.model_copy(update=off)
    desk = Desk(habitus, [divide(1), divide(2), divide(3), says("I can't.")], [])
    desks.append(desk)
    seen = [event async for event in desk.session.turn_stream("share the costs")]
    await desk.session.close()
    assert not [event for event in seen if isinstance(event, NudgeEvent)]
    assert (desk.texts, desk.cheap.asked) == ([], [])


@pytest.mark.full
@pytest.mark.req("EL-07")
async def test_a_turn_cancelled_in_the_middle_teaches_nothing(habitus: Habitus, desks: list[Desk]) -> None:
    desk = Desk(habitus, [divide(1), divide(2), divide(3), hanging_reply(after="hm ")], [])
    desks.append(desk)
    stream = desk.session.turn_stream("share the costs")
    async for event in stream:
        if type(event).__name__ == "ReplyDelta":
            break
    await stream.aclose()
    await desk.session.close()
    assert (desk.texts, desk.cheap.asked) == ([], [])
