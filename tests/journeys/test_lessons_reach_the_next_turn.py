"""From three failures to a lesson in the right place: session, learner, memory and prompt together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from habitus.agent.stream import NudgeEvent
from habitus.app import Habitus, read_settings
from habitus.learning.detectors.rules import RULES
from habitus.llm.model import CompletionRequest
from habitus.llm.scripted import ScriptedModel, calls, says
from habitus.memory.model import LessonKind, LessonProducer, LessonScope
from habitus.settings import DetectorActivityMode, Settings

LESSON = "When a divisor comes from data, look for zeros before dividing by it."
RULE = RULES["repeated_error_signature"][1]


@pytest.fixture
def habitus_settings(habitus_settings: Settings) -> Settings:
    return habitus_settings.model_copy(update={"acc_mode": DetectorActivityMode.ACTIVE})


def divide(number: int) -> Any:
    return calls("scratchpad", {"action": "exec", "code": f"{number} / 0", "one_line_description": "share the costs"})


def failing() -> ScriptedModel:
    return ScriptedModel([divide(1), divide(2), divide(3), says("I can't.")])


def told(ask: CompletionRequest) -> str:
    return ask.system + repr(ask.messages)


@pytest.mark.req("EL-01", "EL-05", "EL-06", "EL-07", "ME-06")
async def test_what_failed_three_times_is_a_nudge_then_a_rule_then_counted_when_it_is_broken(habitus: Habitus) -> None:
    cheap = ScriptedModel([says(json.dumps({"lessons": [LESSON]})), says('{"lessons": []}')])
    model = failing()
    async with habitus.session(model, cheap=cheap) as session:
        seen = [event async for event in session.turn_stream("share the costs")]
    nudges = [event.text for event in seen if isinstance(event, NudgeEvent)]
    assert any(nudge.startswith("[Habitus self-check — repeated_error_signature]") for nudge in nudges)
    assert len(nudges) == len({nudge.split("]")[0] for nudge in nudges})  # each detector once

    kept = {engram.text: engram for engram in habitus.memory.list_lessons("all")}
    assert (kept[RULE].scope, kept[RULE].produced_by) == (LessonScope.GLOBAL, LessonProducer.DETECTOR)
    assert (kept[LESSON].kind, kept[LESSON].topic, kept[LESSON].scope) == (
        LessonKind.LESSON,
        "scratchpad",
        LessonScope.PROJECT,
    )

    again = failing()
    async with habitus.session(again, cheap=cheap) as session:
        await session.turn("share the costs again, please")
    first = again.asked[0]
    assert RULE in first.system
    pad = next(tool for tool in first.tools if tool.name == "scratchpad")
    assert LESSON in pad.description
    assert LESSON not in told(first)
    assert habitus.memory.get(kept[RULE].id).counters.ignored == 1
    assert habitus.memory.get(kept[RULE].id).counters.retrievals == 1


@pytest.mark.req("EL-05", "AG-09")
async def test_in_the_same_session_the_rule_stands_beside_the_next_request(habitus: Habitus) -> None:
    model = failing()
    async with habitus.session(model) as session:
        await session.turn("share the costs")
        await session.wait_for_learning()
        model.follow_script([says("Better now.")])
        await session.turn("share the costs of another trip")
    assert model.asked[-1].system == model.asked[0].system
    assert RULE in repr(model.asked[-1].messages[-1])


@pytest.mark.req("EL-01", "EL-07", "ME-03")
async def test_a_clean_turn_and_a_memory_that_is_off_make_no_learning_call(tmp_path: Path, habitus: Habitus) -> None:
    cheap = ScriptedModel([])
    clean = ScriptedModel([calls("scratchpad", {"action": "exec", "code": "print(1)"}), says("1")])
    async with habitus.session(clean, cheap=cheap) as session:
        await session.turn("print one")
    with Habitus.open(read_settings(tmp_path / "off", {"HOME": str(tmp_path), "HABITUS_MEMORY": "off"})) as silent:
        async with silent.session(failing(), cheap=cheap) as session:
            await session.turn("share the costs")
        assert silent.memory.list_lessons("all") == ()
    assert cheap.asked == []
