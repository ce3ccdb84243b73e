"""An agent of pydantic-ai with our capability: its runs are turns like any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from habitus import Habitus, Skill, read_settings
from habitus.app.home import Home
from habitus.app.use_cases.skills import show_stats
from habitus.events import OutcomeKind
from habitus.integrations.pydantic_ai import HabitusCapability
from habitus.journal.model import SkillPlacementKind, Turn
from habitus.journal.usage import get_deciding_or_heaviest_outcome


@pytest.fixture
def brewing(home: Path, tmp_path: Path) -> Iterator[Habitus]:
    settings = read_settings(home, {"HOME": str(tmp_path), "USER": "ann", "HABITUS_ACC_MODE": "active"})
    tea = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil.")
    with Habitus.open(settings) as habitus:
        habitus.skills.create(tea, habitus.build_author())
        yield habitus


class Scripted:
    """A model that answers from a list and keeps what it was asked."""

    def __init__(self, *answers: ToolCallPart | str) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[ModelMessage], AgentInfo]] = []

    def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked.append((list(messages), info))
        answer = self.answers.pop(0)
        return ModelResponse(parts=[TextPart(answer) if isinstance(answer, str) else answer])


def contexts(messages: list[ModelMessage]) -> list[str]:
    said = [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]
    return [content for content in said if isinstance(content, str) and content.startswith("<habitus-context>")]


def turns(habitus: Habitus) -> list[Turn]:
    return [
        turn for session in habitus.journal.list_sessions() for turn in habitus.journal.list_session_turns(session.id)
    ]


@pytest.mark.full
@pytest.mark.req("CL-07", "LA-06")
async def test_a_run_is_shown_the_menu_runs_our_tools_and_is_journalled(brewing: Habitus) -> None:
    model = Scripted(ToolCallPart("recall_skill", {"name": "brew-tea"}), "Boil it.")
    agent = Agent(FunctionModel(model), capabilities=[HabitusCapability(user="ana", habitus=brewing)])
    result = await agent.run("how is tea brewed?")
    assert result.output == "Boil it."
    first, second = model.asked
    assert "brew-tea" in (first[1].instructions or "")
    assert len(contexts(first[0])) == 1
    assert "1. Boil." in repr(second[0])
    assert contexts(second[0]) == contexts(first[0])
    (turn,) = turns(brewing)
    assert (turn.user, turn.request) == ("ana", "how is tea brewed?")
    assert ("brew-tea", SkillPlacementKind.LOADED) in {(entry.name, entry.place) for entry in turn.selected}
    again = await agent.run("and again?", message_history=result.all_messages(), model=TestModel(call_tools=[]))
    assert again.output
    assert [turn.request for turn in turns(brewing)] == ["how is tea brewed?", "and again?"]
    # Nobody judged it, so it ran without an error, and is no success.
    (row,) = show_stats(cast("Home", brewing), name="brew-tea").stats
    assert (row.used, row.succeeded, row.failed, row.no_feedback, row.reliability) == (1, 0, 0, 1, None)
    assert row.ran_without_error == 1


@pytest.mark.req("CL-07", "EL-01")
async def test_tools_of_the_agent_are_observed_and_a_nudge_stands_beside_their_result(brewing: Habitus) -> None:
    calls = [ToolCallPart("get_weather", {"day": f"{day}."}) for day in range(4)]
    model = Scripted(*calls, "No weather.")
    agent = Agent(FunctionModel(model), capabilities=[HabitusCapability(habitus=brewing)], retries=9)

    @agent.tool_plain
    def get_weather(day: str) -> str:
        raise ModelRetry("KeyError: 'day'")

    await agent.run("what is the weather?")
    (turn,) = turns(brewing)
    seen = [event.detail for event in turn.events if event.kind.value == "tool_result"]
    assert [event.get("success") for event in seen] == [False] * 4
    assert "repeated_error_signature" in repr(model.asked[-1][0])
    judged = get_deciding_or_heaviest_outcome(turn.outcomes)
    assert judged is not None
    assert judged.kind is OutcomeKind.FAILED


@pytest.mark.full
@pytest.mark.req("CL-07")
async def test_a_run_that_breaks_off_is_nobodys_mistake_and_runs_side_by_side_do_not_meet(brewing: Habitus) -> None:
    def break_off(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ConnectionError("no route")

    agent = Agent(FunctionModel(break_off), capabilities=[HabitusCapability(habitus=brewing)])
    with pytest.raises(ConnectionError):
        await agent.run("anything")
    results = await asyncio.gather(*(agent.run(f"say {n}", model=TestModel(call_tools=[])) for n in range(4)))
    assert len({result.run_id for result in results}) == 4
    judged = {turn.request: get_deciding_or_heaviest_outcome(turn.outcomes) for turn in turns(brewing)}
    assert {request: outcome and outcome.kind.value for request, outcome in judged.items()} == {
        "anything": "infra",
        **{f"say {n}": "ok" for n in range(4)},
    }


@pytest.mark.req("CL-07")
async def test_without_a_habitus_the_home_is_open_for_runs_side_by_side_and_as_long_as_the_agent(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HABITUS_HOME", str(home))
    monkeypatch.setenv("HOME", str(tmp_path))
    agent = Agent(TestModel(call_tools=[]), capabilities=[HabitusCapability(user="ana")])

    def open_homes() -> int:
        return [thread.name for thread in threading.enumerate()].count("habitus-turns")

    await asyncio.gather(*(agent.run(f"say {n}", conversation_id=f"talk {n}/ü") for n in range(3)))
    assert open_homes() == 0
    async with agent:
        await agent.run("say 3")
        assert open_homes() == 1
        await agent.run("say 4")
    assert open_homes() == 0
    with Habitus.open(read_settings(home)) as habitus:
        assert sorted(turn.request for turn in turns(habitus)) == [f"say {n}" for n in range(5)]
        assert {turn.user for turn in turns(habitus)} == {"ana"}
