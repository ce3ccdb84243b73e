"""Budgets asked before every request: tokens, dollars and minutes, whatever came back of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from habitus.errors import Invalid
from habitus.learning.budget import Budget, CapReached, Limits
from habitus.llm.model import (
    Answer,
    Answered,
    Ask,
    Asked,
    ProviderFault,
    StopReason,
    Streamed,
    Text,
    TryingAgain,
    Usage,
    answer,
)
from habitus.llm.scripted import ScriptedModel, says
from tests.learning.keeper import spending

ASK = Ask(system="Be brief.", messages=(Asked(parts=(Text(text="word " * 800),)),), max_tokens=1_000)  # ~1,000 to read


class Stubborn(ScriptedModel):
    """A provider that is asked again and again inside one request."""

    def __init__(self, pieces: Sequence[Streamed]) -> None:
        super().__init__([])
        self._pieces = pieces

    async def stream(self, ask: Ask) -> AsyncIterator[Streamed]:
        for piece in self._pieces:
            yield piece
        raise ProviderFault("down")


@pytest.mark.req("IM-06")
async def test_tokens_are_asked_for_before_each_request_and_count_after_it() -> None:
    said = Answer(
        message=Answered(text="Yes."), stop=StopReason.END, usage=Usage(input_tokens=1_500, output_tokens=500)
    )
    model, day = ScriptedModel([said, ProviderFault("down"), said]), spending()
    budget = Budget(Limits(tokens=5_500), day=day)
    paid = budget.model(model)
    await answer(paid, ASK)
    assert (budget.tokens, budget.requests, day.today().tokens) == (2_000, 1, 2_000)
    with pytest.raises(ProviderFault, match="down"):
        await answer(paid, ASK)
    assert 2_900 < budget.tokens < 3_200  # what was sent, by an estimate
    assert day.today().tokens == budget.tokens
    with pytest.raises(CapReached, match=r"are left\. 3,0\d\d tokens spent in 2 requests\.$"):
        await answer(budget.model(model), Ask(system="x" * 8_000, messages=()))
    assert (len(model.asked), budget.is_reached) == (2, True)
    await answer(paid, ASK)  # what is smaller still fits, with less room for its answer
    assert (model.asked[2].max_tokens or 1_000) < 1_000


@pytest.mark.req("IM-06")
async def test_a_request_that_is_made_again_is_another_request() -> None:
    budget = Budget(Limits(tokens=4_000))
    with pytest.raises(CapReached):
        await answer(budget.model(Stubborn([TryingAgain()] * 9)), ASK)
    assert (budget.requests, 2_000 < budget.tokens <= 4_000) == (2, True)


@pytest.mark.req("IM-06")
async def test_dollars_and_minutes_end_a_run_as_tokens_do() -> None:
    model = ScriptedModel(lambda ask: says("word " * 400), name="openai:gpt-4o")
    dear = Budget(Limits(dollars=0.02)).model(model)
    for _ in range(2):
        await answer(dear, ASK)
    with pytest.raises(CapReached, match="are left"):
        await answer(dear, ASK)
    assert dear.budget.requests == 2
    assert 0.01 < (dear.budget.usage.cost or 0) <= 0.02
    with pytest.raises(Invalid, match="Nobody knows what scripted:model costs"):
        Budget(Limits(dollars=1)).model(ScriptedModel([]))
    with pytest.raises(Invalid, match="Nobody knows what codex costs"):
        Budget(Limits(dollars=1)).model(ScriptedModel([], name="codex"))
    agent = Budget(Limits(dollars=1)).model(ScriptedModel([says("Yes.")], name="claude-code"))  # it says what it took
    agent.budget.usage = Usage(cost=1.2)
    with pytest.raises(CapReached):
        await answer(agent, ASK)
    now = [0.0]
    timed = Budget(Limits(minutes=2), clock=lambda: now[0]).model(model)
    await answer(timed, ASK)
    now[0] = 121.0
    with pytest.raises(CapReached, match="Its time is up"):
        await answer(timed, ASK)


@pytest.mark.req("IM-06")
def test_a_budget_is_read_as_people_write_it() -> None:
    assert Limits.parse("") == Limits()
    assert Limits.parse("50000") == Limits.parse("50k") == Limits.parse("50000 tokens") == Limits(tokens=50_000)
    assert Limits.parse("1.5k, 30m, $2") == Limits(tokens=1_500, minutes=30, dollars=2)
    for wrong in ("0", "-5", "$2k", "5 miles", "1e9", "k"):
        with pytest.raises(Invalid, match="is no budget"):
            Limits.parse(wrong)
