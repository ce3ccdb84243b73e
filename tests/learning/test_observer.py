"""The learner of a session: the laws of learning, each through the observer that a session would have."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from habitus.events import (
    OK,
    AgentEvent,
    EventKind,
    FinishedTurnDetails,
    build_event,
    build_tool_call_event,
    build_tool_result_event,
)
from habitus.learning.detectors.rules import RULES
from habitus.learning.observer import SessionErrorLearner
from habitus.llm.model import ProviderError
from habitus.llm.scripted import Script, ScriptedModel, hanging_reply, says
from habitus.memory.model import HIGH_CONFIDENCE, LessonDraft, LessonProducer, LessonProvenance
from habitus.sandbox.model import Cell
from tests.learning.keeper import RecordingKeeper, spending

FAILED = Cell(code="1/0", description="divide", error="ZeroDivisionError: division by zero")
REPEATED = RULES["repeated_tool_error"][1]
LESSON = "When a divisor comes from data, check it for zero before dividing."


def ended(turn: str = "t1", rules: Sequence[str] = ()) -> FinishedTurnDetails:
    return FinishedTurnDetails(turn=turn, request="go", outcome=OK, user="ann", project="/work", rules=tuple(rules))


def learner(
    script: Script = (), *, mode: str = "passive", keeper: RecordingKeeper | None = None, **more: Any
) -> tuple[SessionErrorLearner, ScriptedModel, RecordingKeeper]:
    keeper = keeper or RecordingKeeper()
    model = ScriptedModel(script)
    return SessionErrorLearner(keeper, model, spending=spending(), mode=mode, **more), model, keeper


def failing_twice() -> list[AgentEvent]:
    return [
        made
        for number in (1, 2)
        for made in (
            build_tool_call_event("save", {"to": number}, round_idx=number),
            build_tool_result_event("save", success=False, error=f"no disk '{number}'", round_idx=number),
        )
    ]


def watch(seen: SessionErrorLearner, events: Sequence[AgentEvent] = (), cells: Sequence[Cell] = ()) -> None:
    for each in events:
        seen.observe(each)
    for cell in cells:
        seen.on_pre_execute(cell)
        seen.on_post_execute(cell)


def lessons(*texts: str) -> Any:
    return says(json.dumps({"lessons": list(texts)}))


@pytest.mark.req("EL-05")
async def test_two_silent_kills_teach_one_rule_and_none_that_contradicts_it() -> None:
    seen, _, keeper = learner(mode="active")
    said: list[str] = []
    for number in (1, 2):
        killed = {"name": "train", "reason": "silence"}
        made = [
            build_tool_call_event("scratchpad", {"code": number}, round_idx=number),
            build_event(EventKind.SCRATCHPAD_KILLED, killed, round_idx=number),
            build_tool_result_event("scratchpad", success=False, error="killed: no output", round_idx=number),
        ]
        watch(seen, made)
        said += await seen.list_new_advice()
    rule = RULES["kill_loop:silence"][1]
    assert said == [f"[Habitus self-check — kill_loop] {rule}"]
    await seen.learn(ended())
    assert [draft.text for draft in keeper.learned] == [rule]


@pytest.mark.req("EL-05", "ME-01")
async def test_a_detectors_lesson_reaches_memory_as_a_rule_of_its_kind() -> None:
    seen, model, keeper = learner()
    watch(seen, failing_twice())
    await seen.learn(ended())
    assert keeper.learned == [
        LessonDraft(
            text=REPEATED,
            kind="when",
            scope="global",
            confidence=HIGH_CONFIDENCE,
            source="consolidation",
            produced_by=LessonProducer.DETECTOR,
            evidence=LessonProvenance(detector="repeated_tool_error", error_signature="no disk <str>", trace="t1"),
            user="ann",
            project="/work",
        )
    ]
    assert model.asked == []


@pytest.mark.req("EL-05")
async def test_what_memory_knows_is_not_told_again() -> None:
    seen, _, keeper = learner(keeper=RecordingKeeper(known=[REPEATED]))
    watch(seen, failing_twice())
    await seen.learn(ended())
    assert keeper.learned == []


@pytest.mark.req("EL-06")
async def test_a_rule_in_the_prompt_whose_detector_fires_again_is_ignored() -> None:
    seen, _, keeper = learner(keeper=RecordingKeeper(known=[REPEATED]))
    watch(seen, failing_twice())
    await seen.learn(ended(rules=["Be kind.", REPEATED.replace(" ", "\n", 1)]))
    assert keeper.broken == [REPEATED.replace(" ", "\n", 1)]
    watch(seen, [build_tool_call_event("save", {}), build_tool_result_event("save", success=True)])
    await seen.learn(ended(rules=[REPEATED]))
    assert len(keeper.broken) == 1


@pytest.mark.req("EL-05")
async def test_nudges_come_in_active_mode_only_and_once_a_turn() -> None:
    active, _, _ = learner(mode="active", keeper=RecordingKeeper(known=[REPEATED]))
    passive, _, _ = learner(mode="passive")
    for seen in (active, passive):
        watch(seen, failing_twice())
    assert await active.list_new_advice() == [f"[Habitus self-check — repeated_tool_error] {REPEATED}"]
    assert (await active.list_new_advice(), await passive.list_new_advice()) == ([], [])
    await active.learn(ended())
    watch(active, failing_twice())
    assert len(await active.list_new_advice()) == 1


@pytest.mark.req("EL-05", "ME-03")
@pytest.mark.parametrize("switch", ["acc", "memory"])
async def test_off_makes_no_call_and_keeps_nothing(switch: str) -> None:
    keeper = RecordingKeeper(is_on=switch != "memory")
    seen, model, _ = learner(mode="off" if switch == "acc" else "active", keeper=keeper)
    watch(seen, failing_twice(), [FAILED])
    await seen.learn(ended(rules=[REPEATED]))
    assert (model.asked, keeper.learned, keeper.broken) == ([], [], [])


@pytest.mark.req("EL-01", "EL-07")
async def test_a_clean_turn_makes_no_call_even_when_cells_of_an_earlier_one_wait() -> None:
    seen, model, keeper = learner([ProviderError("down"), lessons(LESSON)])
    watch(seen, cells=[FAILED])
    await seen.learn(ended("t1"))
    watch(
        seen,
        [build_tool_call_event("save", {}), build_tool_result_event("save", success=True)],
        [Cell(code="1", stdout="1")],
    )
    await seen.learn(ended("t2"))
    assert len(model.asked) == 1
    watch(seen, cells=[FAILED])
    await seen.learn(ended("t3"))
    assert len(model.asked) == 2
    assert [each.text for each in keeper.learned] == [LESSON]


@pytest.mark.req("EL-07")
async def test_learning_takes_its_turn_at_once_and_leaves_the_next_one_alone() -> None:
    seen, model, keeper = learner([lessons(), lessons()])
    watch(seen, failing_twice(), [FAILED])
    waiting = seen.learn(ended("t1"))
    watch(seen, [build_event(EventKind.CAP_EXHAUSTED, {})], [FAILED, FAILED])
    await waiting
    assert [each.evidence.detector for each in keeper.learned] == ["repeated_tool_error"]
    await seen.learn(ended("t2"))
    assert [each.evidence.detector for each in keeper.learned] == ["repeated_tool_error", "cap_exhausted"]
    assert [repr(ask.messages).count("ZeroDivisionError") for ask in model.asked] == [1, 2]


@pytest.mark.req("EL-07")
async def test_a_cancelled_turn_is_forgotten() -> None:
    seen, model, keeper = learner()
    watch(seen, failing_twice(), [FAILED])
    seen.drop_cancelled_turn()
    await seen.learn(ended())
    assert (model.asked, keeper.learned) == ([], [])


@pytest.mark.req("EL-07")
@pytest.mark.parametrize(
    "script", [[says(""), says("")], [says("{]"), says("[1]")], [hanging_reply()], [RuntimeError("bug")]]
)
async def test_a_cheap_model_that_is_of_no_use_fails_nothing(script: Any, caplog: pytest.LogCaptureFixture) -> None:
    seen, _, keeper = learner(script, patience_s=0.05)
    watch(seen, failing_twice(), [FAILED])
    with caplog.at_level(logging.WARNING):
        await seen.learn(ended())
    assert [each.produced_by for each in keeper.learned] == [LessonProducer.DETECTOR]
    assert len(caplog.records) == 1


@pytest.mark.req("EL-07")
async def test_a_memory_that_fails_is_logged_and_cells_are_still_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    seen, model, _ = learner([lessons()], keeper=RecordingKeeper(raises=True))
    watch(seen, failing_twice(), [FAILED])
    with caplog.at_level(logging.WARNING):
        await seen.learn(ended())
    assert len(model.asked) == 1
    assert "The lesson of repeated_tool_error could not be stored." in caplog.text


@pytest.mark.req("EL-05", "EL-07")
async def test_one_rule_that_can_not_be_stored_does_not_lose_the_others(caplog: pytest.LogCaptureFixture) -> None:
    seen, _, keeper = learner(keeper=RecordingKeeper(stumbles_at=REPEATED))
    watch(seen, [*failing_twice(), build_event(EventKind.CAP_EXHAUSTED, {})])
    await seen.learn(ended())
    assert [each.evidence.detector for each in keeper.learned] == ["cap_exhausted"]


@pytest.mark.req("EL-07")
async def test_stopping_a_flush_keeps_its_cells() -> None:
    seen, model, keeper = learner([hanging_reply(), lessons(LESSON)])
    watch(seen, cells=[FAILED])
    flush = asyncio.create_task(seen.learn(ended()))
    while not model.asked:
        await asyncio.sleep(0.01)
    flush.cancel()
    await asyncio.wait([flush])
    assert flush.cancelled()
    watch(seen, cells=[FAILED])
    await seen.learn(ended("t2"))
    assert [each.text for each in keeper.learned] == [LESSON]


@pytest.mark.req("SB-14", "EL-05")
async def test_the_evidence_of_a_lesson_holds_no_secret() -> None:
    secret = "ghp_" + "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzCaa"
    seen, _, keeper = learner()
    watch(seen, [build_event(EventKind.SCRATCHPAD_RESULT, {"success": False, "error": f"denied {secret}"})] * 3)
    await seen.learn(ended())
    assert [each.evidence.error_signature for each in keeper.learned] == ["denied [redacted:github]"]


@pytest.mark.req("EL-07", "ME-03")
async def test_a_memory_that_can_not_say_whether_it_is_on_makes_no_call(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RecordingKeeper):
        def is_learning_enabled(self) -> bool:
            raise OSError("disk")

    seen, model, keeper = learner(keeper=Broken())
    watch(seen, failing_twice(), [FAILED])
    await seen.learn(ended())
    assert (model.asked, keeper.learned) == ([], [])
    assert "turn t1 teaches none" in caplog.text
