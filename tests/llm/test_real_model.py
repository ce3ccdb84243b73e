"""A real model over a real wire: streaming, a shape that holds, cancelling, time-outs, and too much to read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from habitus.llm.model import (
    CompletionRequest,
    CompletionResult,
    ContextOverflowError,
    PersonMessage,
    ProviderError,
    StopReason,
    TextContent,
    TextDelta,
    fetch_answer,
)
from habitus.llm.providers import ProviderModel, open_provider_model
from habitus.llm.providers.known_providers import RetryAndTimeoutPolicy
from habitus.llm.structured import ask_structured

pytestmark = pytest.mark.req("AG-02")


def question(text: str, *, max_tokens: int = 8) -> CompletionRequest:
    return CompletionRequest(
        system="You are brief.", messages=(PersonMessage(parts=(TextContent(text=text),)),), max_tokens=max_tokens
    )


@pytest.fixture
async def model(real_address: str) -> AsyncIterator[ProviderModel]:
    model = open_provider_model("llamacpp:smollm2", {"LLAMACPP_BASE_URL": real_address})
    yield model
    await model.close()


@pytest.mark.full
async def test_words_come_as_they_are_made(model: ProviderModel) -> None:
    pieces = [piece async for piece in model.stream(question("Tell me a story about a fox."))]
    *words, last = pieces
    assert isinstance(last, CompletionResult)
    assert len(words) > 2
    assert "".join(piece.text for piece in words if isinstance(piece, TextDelta)) == last.message.text
    assert 0 < last.usage.output_tokens <= 8
    assert last.usage.input_tokens > 5
    assert last.usage.cost is None


@pytest.mark.full
async def test_an_answer_without_room_for_its_end_says_so(model: ProviderModel) -> None:
    got = await fetch_answer(model, question("Tell me a long story.", max_tokens=4))
    assert (got.stop, got.usage.output_tokens) == (StopReason.LENGTH, 4)


class Draft(BaseModel):
    name: str = Field(min_length=3, max_length=12)
    steps: list[Annotated[str, Field(max_length=12)]] = Field(min_length=1, max_length=2)
    is_safe: bool


@pytest.mark.full
@pytest.mark.req("AG-03")
async def test_even_a_model_that_understands_nothing_gives_the_shape(model: ProviderModel) -> None:
    """It does not know what a skill is; the server holds it to the schema while it writes."""
    messages = (PersonMessage(parts=(TextContent(text="Draft a skill that sums a CSV file."),)),)
    got = await ask_structured(model, Draft, system="You draft skills.", messages=messages, max_tokens=200)
    assert isinstance(got.value, Draft)
    assert got.usage.output_tokens > 0


async def test_a_model_that_was_cancelled_in_the_middle_answers_again(model: ProviderModel) -> None:
    started = asyncio.Event()

    async def listen() -> None:
        async with aclosing(model.stream(question("Tell me a very long story.", max_tokens=1900))) as pieces:
            async for _ in pieces:
                started.set()

    task = asyncio.create_task(listen())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await fetch_answer(model, question("Hello", max_tokens=2))


async def test_an_answer_that_takes_too_long_is_given_up(real_address: str) -> None:
    model = open_provider_model(
        "llamacpp:smollm2", {"LLAMACPP_BASE_URL": real_address}, patience=RetryAndTimeoutPolicy(total=0.5, attempts=1)
    )
    with pytest.raises(ProviderError, match=r"llamacpp:smollm2 did not finish in 0\.5 seconds"):
        await fetch_answer(model, question("Tell me a very long story.", max_tokens=1500))
    await model.close()


async def test_more_than_it_can_read_is_an_overflow(model: ProviderModel) -> None:
    with pytest.raises(ContextOverflowError, match=r"larger than llamacpp:smollm2 can read: .*2048"):
        await fetch_answer(model, question("word " * 4000))
