"""The model that follows a script."""

from __future__ import annotations

import asyncio

import pytest

from habitus.errors import HabitusError
from habitus.events import ToolCall
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    CompletionResult,
    ContextOverflowError,
    PersonMessage,
    ProviderError,
    StopReason,
    StreamPiece,
    TextContent,
    TextDelta,
    TokenUsage,
    ToolCallStarted,
    fetch_answer,
)
from habitus.llm.scripted import ScriptedModel, build_call, calls, cut_off_reply, failing_reply, hanging_reply, says

ASK = CompletionRequest(system="Be brief.", messages=(PersonMessage(parts=(TextContent(text="Sum up the file."),)),))


async def heard(model: ScriptedModel, ask: CompletionRequest = ASK) -> list[StreamPiece]:
    return [piece async for piece in model.stream(ask)]


async def test_text_comes_in_pieces_and_ends_with_the_whole() -> None:
    model = ScriptedModel([says("It has  two\nlines.")])
    pieces = await heard(model)
    assert pieces[:-1] == [
        TextDelta(text="It "),
        TextDelta(text="has  "),
        TextDelta(text="two\n"),
        TextDelta(text="lines."),
    ]
    assert pieces[-1] == CompletionResult(
        message=AssistantMessage(text="It has  two\nlines."),
        stop=StopReason.END,
        usage=TokenUsage(input_tokens=11, output_tokens=9),
    )
    assert model.asked == [ASK]


async def test_calls_get_ids_that_differ_over_the_session() -> None:
    model = ScriptedModel(
        [says("Looking.", build_call("read", {"path": "ä.csv"}), build_call("list")), calls("read", "{oops")]
    )
    first, second = await heard(model), await heard(model)
    assert first[1:3] == [ToolCallStarted(tool="read"), ToolCallStarted(tool="list")]
    assert first[-1] == CompletionResult(
        message=AssistantMessage(
            text="Looking.",
            calls=(
                ToolCall(id="call-1", name="read", arguments='{"path": "ä.csv"}'),
                ToolCall(id="call-2", name="list", arguments="{}"),
            ),
        ),
        stop=StopReason.CALLS,
        usage=TokenUsage(input_tokens=11, output_tokens=30),
    )
    assert isinstance(second[-1], CompletionResult)
    assert second[-1].message.calls == (ToolCall(id="call-3", name="read", arguments="{oops"),)


async def test_a_script_may_look_at_what_it_is_asked() -> None:
    by_question = ScriptedModel(lambda ask: says(ask.system))
    assert [(await fetch_answer(by_question, ASK)).message.text for _ in range(2)] == ["Be brief.", "Be brief."]
    mixed = ScriptedModel([says("one"), lambda ask: says(f"{len(ask.messages)} message")])
    assert [(await fetch_answer(mixed, ASK)).message.text for _ in range(2)] == ["one", "1 message"]


async def test_an_answer_can_be_cut_off() -> None:
    assert (await fetch_answer(ScriptedModel([cut_off_reply('{"a":')]), ASK)).stop is StopReason.LENGTH


@pytest.mark.parametrize("error", [ProviderError("down"), ContextOverflowError("too long"), asyncio.CancelledError()])
async def test_a_step_can_fail_before_and_in_the_middle_of_its_words(error: BaseException) -> None:
    model = ScriptedModel([error, failing_reply(error, after="Half a")])
    with pytest.raises(type(error)):
        await heard(model)
    stream = model.stream(ASK)
    pieces = [await anext(stream), await anext(stream)]
    with pytest.raises(type(error)):
        await anext(stream)
    assert pieces == [TextDelta(text="Half "), TextDelta(text="a")]


async def test_a_step_that_hangs_can_be_cancelled() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await heard(ScriptedModel([hanging_reply(after="Well")]))


async def test_a_question_after_the_end_of_the_script_says_so() -> None:
    model = ScriptedModel([says("bye")])
    await heard(model)
    with pytest.raises(HabitusError, match=r"asked once more after the 1 steps .*Sum up the file"):
        await heard(model)
