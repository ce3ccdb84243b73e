"""Budgets asked before every request: tokens, dollars and minutes, whatever came back of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from habitus.errors import Invalid
from habitus.learning.budget import BudgetReachedError, RunBudget, RunLimits
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    CompletionResult,
    PersonMessage,
    ProviderError,
    RetryStreamMarker,
    StopReason,
    StreamPiece,
    TextContent,
    TokenUsage,
    fetch_answer,
)
from habitus.llm.scripted import ScriptedModel, says
from tests.learning.keeper import spending

ASK = CompletionRequest(
    system="Be brief.", messages=(PersonMessage(parts=(TextContent(text="word " * 800),)),), max_tokens=1_000
)  # ~1,000 to read


class Stubborn(ScriptedModel):
    """A provider that is asked again and again inside one request."""

    def __init__(self, pieces: Sequence[StreamPiece]) -> None:
        super().__init__([])
        self._pieces = pieces

    async def stream(self, ask: CompletionRequest) -> AsyncIterator[StreamPiece]:
        for piece in self._pieces:
            yield piece
        raise ProviderError("down")


@pytest.mark.req("IM-06")
async def test_tokens_are_asked_for_before_each_request_and_count_after_it() -> None:
    said = CompletionResult(
        message=AssistantMessage(text="Yes."),
        stop=StopReason.END,
        usage=TokenUsage(input_tokens=1_500, output_tokens=500),
    )
    model, day = ScriptedModel([said, ProviderError("down"), said]), spending()
    budget = RunBudget(RunLimits(tokens=5_500), day=day)
    paid = budget.wrap_model(model)
    await fetch_answer(paid, ASK)
    assert (budget.tokens, budget.requests, day.get_usage_today().tokens) == (2_000, 1, 2_000)
    with pytest.raises(ProviderError, match="down"):
        await fetch_answer(paid, ASK)
    assert 2_900 < budget.tokens < 3_200  # what was sent, by an estimate
    assert day.get_usage_today().tokens == budget.tokens
    with pytest.raises(BudgetReachedError, match=r"are left\. 3,0\d\d tokens spent in 2 requests\.$"):
        await fetch_answer(budget.wrap_model(model), CompletionRequest(system="x" * 8_000, messages=()))
    assert (len(model.asked), budget.is_reached) == (2, True)
    await fetch_answer(paid, ASK)  # what is smaller still fits, with less room for its answer
    assert (model.asked[2].max_tokens or 1_000) < 1_000


@pytest.mark.req("IM-06")
async def test_a_request_that_is_made_again_is_another_request() -> None:
    budget = RunBudget(RunLimits(tokens=4_000))
    with pytest.raises(BudgetReachedError):
        await fetch_answer(budget.wrap_model(Stubborn([RetryStreamMarker()] * 9)), ASK)
    assert (budget.requests, 2_000 < budget.tokens <= 4_000) == (2, True)


@pytest.mark.req("IM-06")
async def test_dollars_and_minutes_end_a_run_as_tokens_do() -> None:
    model = ScriptedModel(lambda ask: says("word " * 400), name="openai:gpt-4o")
    dear = RunBudget(RunLimits(dollars=0.02)).wrap_model(model)
    for _ in range(2):
        await fetch_answer(dear, ASK)
    with pytest.raises(BudgetReachedError, match="are left"):
        await fetch_answer(dear, ASK)
    assert dear.budget.requests == 2
    assert 0.01 < (dear.budget.usage.cost or 0) <= 0.02
    with pytest.raises(Invalid, match="The price of scripted:model is unknown"):
        RunBudget(RunLimits(dollars=1)).wrap_model(ScriptedModel([]))
    with pytest.raises(Invalid, match="The price of codex is unknown"):
        RunBudget(RunLimits(dollars=1)).wrap_model(ScriptedModel([], name="codex"))
    agent = RunBudget(RunLimits(dollars=1)).wrap_model(
        ScriptedModel([says("Yes.")], name="claude-code")
    )  # it says what it took
    agent.budget.usage = TokenUsage(cost=1.2)
    with pytest.raises(BudgetReachedError):
        await fetch_answer(agent, ASK)
    now = [0.0]
    timed = RunBudget(RunLimits(minutes=2), clock=lambda: now[0]).wrap_model(model)
    await fetch_answer(timed, ASK)
    now[0] = 121.0
    with pytest.raises(BudgetReachedError, match="Its time is up"):
        await fetch_answer(timed, ASK)


@pytest.mark.req("IM-06")
def test_a_budget_is_read_as_people_write_it() -> None:
    assert RunLimits.parse("") == RunLimits()
    assert (
        RunLimits.parse("50000")
        == RunLimits.parse("50k")
        == RunLimits.parse("50000 tokens")
        == RunLimits(tokens=50_000)
    )
    assert RunLimits.parse("1.5k, 30m, $2") == RunLimits(tokens=1_500, minutes=30, dollars=2)
    for wrong in ("0", "-5", "$2k", "5 miles", "1e9", "k"):
        with pytest.raises(Invalid, match="is no budget"):
            RunLimits.parse(wrong)
