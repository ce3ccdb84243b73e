"""Answers of a given shape."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, Field

from habitus.llm.model import ChatMessage, PersonMessage, ProviderError, TextContent, TokenUsage, UnusableAnswerError
from habitus.llm.scripted import ScriptedModel, cut_off_reply, says
from habitus.llm.structured import ask_structured

pytestmark = pytest.mark.req("AG-03")


class Draft(BaseModel):
    name: str = Field(pattern="^[a-z-]+$")
    steps: list[str] = []


GOOD = '{"name": "csv-summary", "steps": ["read", "sum"]}'
VALUE = Draft(name="csv-summary", steps=["read", "sum"])
MESSAGES: tuple[ChatMessage, ...] = (PersonMessage(parts=(TextContent(text="Draft a skill."),)),)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here it is:\n\n```\n{json.dumps(json.loads(GOOD), indent=2)}\n```\nAnything else?",
        f"Sure! {GOOD} Good luck.",
    ],
)
async def test_json_is_found_in_what_the_model_wraps_around_it(text: str) -> None:
    model = ScriptedModel([says(text)])
    got = await ask_structured(model, Draft, system="You draft.", messages=MESSAGES)
    assert got.value == VALUE
    assert (model.asked[0].schema, model.asked[0].max_tokens) == (Draft.model_json_schema(), 2000)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("I can't.", "the answer is plain text where JSON was asked for"),
        ('{"name": "CSV"}', "name: String should match pattern '^[a-z-]+$'"),
        ('{"steps": 3}', "name: Field required; steps: Input should be a valid list"),
        ("[]", "the answer: Input should be a JSON object"),
        ("[" * 100_000, "recursion"),
    ],
)
async def test_a_broken_answer_is_asked_for_again_with_what_was_wrong(bad: str, problem: str) -> None:
    model = ScriptedModel([says(bad), says(GOOD)])
    got = await ask_structured(model, Draft, system="You draft.", messages=MESSAGES)
    assert got.value == VALUE
    first, answered, correction = model.asked[1].messages
    assert first == MESSAGES[0]
    assert answered == says(bad)
    assert isinstance(correction, PersonMessage)
    assert isinstance(correction.parts[0], TextContent)
    assert problem.lower() in correction.parts[0].text.lower()
    assert got.usage.input_tokens > len(bad) // 4  # both attempts count


async def test_an_empty_answer_leaves_no_empty_message() -> None:
    model = ScriptedModel([says(" "), says(GOOD)])
    await ask_structured(model, Draft, system="You draft.", messages=MESSAGES)
    assert [type(message) for message in model.asked[1].messages] == [PersonMessage, PersonMessage]


async def test_a_truncated_answer_gets_more_room_and_the_same_question() -> None:
    model = ScriptedModel([cut_off_reply(GOOD[:20]), cut_off_reply(GOOD[:30]), says(GOOD)], context_tokens=3000)
    got = await ask_structured(model, Draft, system="You draft.", messages=MESSAGES, max_tokens=1000)
    assert got.value == VALUE
    assert [ask.max_tokens for ask in model.asked] == [1000, 2000, 3000]
    assert {ask.messages for ask in model.asked} == {MESSAGES}


async def test_a_whole_value_counts_though_the_room_was_used_up() -> None:
    got = await ask_structured(ScriptedModel([cut_off_reply(GOOD)]), Draft, system="You draft.", messages=MESSAGES)
    assert got.value == VALUE


async def test_it_gives_up_and_knows_what_was_spent() -> None:
    model = ScriptedModel([says("no")] * 3)
    with pytest.raises(
        UnusableAnswerError,
        match="scripted:model gave a malformed answer: the answer is plain text where JSON was asked for",
    ) as caught:
        await ask_structured(model, Draft, system="You draft.", messages=MESSAGES)
    assert caught.value.usage.output_tokens == 15
    assert len(model.asked) == 3


async def test_it_stops_at_the_limit_of_the_model() -> None:
    model = ScriptedModel([cut_off_reply("{")] * 3, context_tokens=1000)
    with pytest.raises(UnusableAnswerError, match="cut off after 1000 tokens"):
        await ask_structured(model, Draft, system="You draft.", messages=MESSAGES, max_tokens=1000)
    assert len(model.asked) == 1


async def test_a_fault_of_the_provider_passes_through() -> None:
    with pytest.raises(ProviderError, match="down"):
        await ask_structured(ScriptedModel([ProviderError("down")]), Draft, system="", messages=MESSAGES)


def test_costs_add_up_where_they_are_known() -> None:
    assert TokenUsage(cost=0.5, output_tokens=1) + TokenUsage(cached_tokens=2) == TokenUsage(
        cost=0.5, output_tokens=1, cached_tokens=2
    )
