"""What goes wrong at a provider: waited out while nothing was said, and one clear line when it can't be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace

import pytest

from habitus.errors import HabitusError, NotFound, Refused
from habitus.llm.model import (
    CompletionRequest,
    ContextOverflowError,
    PersonMessage,
    ProviderError,
    StreamPiece,
    TextContent,
    TextDelta,
    fetch_answer,
)
from habitus.llm.providers import ProviderModel, open_provider_model
from habitus.llm.providers.known_providers import ClassifiedFault, RetryAndTimeoutPolicy
from tests.fake_provider import FakeProvider, Reply, fails, sse
from tests.llm.recordings import ANTHROPIC_START, chat_text

pytestmark = pytest.mark.req("AG-02")

ASK = CompletionRequest(system="Be brief.", messages=(PersonMessage(parts=(TextContent(text="Hello?"),)),))
KEY = "sk-very-secret-0123456789"
GOOD = chat_text("Hi")
SSE = {"Content-Type": "text/event-stream"}

Opener = Callable[..., ProviderModel]


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
async def opened(provider: FakeProvider, pauses: list[float]) -> AsyncIterator[Opener]:
    models: list[ProviderModel] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    def open_one(name: str = "openai:m", **patience: float) -> ProviderModel:
        environ = {
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{provider.address}/v1",
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": provider.address,
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": provider.address,
        }
        waits = replace(RetryAndTimeoutPolicy(spread=lambda: 1.0), **patience)  # type: ignore[arg-type]  # every field given is a float
        models.append(open_provider_model(name, environ, patience=waits, sleep=pause))
        return models[-1]

    yield open_one
    for model in models:
        await model.close()


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
ANTHROPIC = "anthropic:claude-sonnet-5-5"
GOOGLE = "google:gemini-2.5-flash"

PASSING = {
    "rate limit": fails(429, {"error": {"message": "Slow down"}}),
    "server error": fails(500, {"error": {"message": "Oops"}}),
    "bad gateway": Reply(status=502, body=b"<html>Bad gateway</html>"),
    "unavailable": fails(503, {"error": {"message": "Busy"}}),
    "broken connection": Reply(headers=SSE, body=b"", then="drop"),
    "no JSON": Reply(headers=SSE, body=b"data: {oops\n\n"),
    "no stream": Reply(headers={"Content-Type": "text/html"}, body=b"<html>Log in</html>"),
    "nothing": Reply(headers=SSE, body=b""),
    "a stream without an end": sse(
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
    ),
}


@pytest.mark.some(8)
@pytest.mark.parametrize("reply", PASSING.values(), ids=PASSING.keys())
async def test_a_fault_that_passes_is_waited_out(
    reply: Reply, opened: Opener, provider: FakeProvider, pauses: list[float]
) -> None:
    provider.gives(reply, reply, GOOD)
    assert (await fetch_answer(opened(), ASK)).message.text == "Hi"
    assert pauses == [1.0, 2.0]


@pytest.mark.parametrize("reply", PASSING.values(), ids=PASSING.keys())
async def test_a_fault_that_stays_becomes_one_line(reply: Reply, opened: Opener, provider: FakeProvider) -> None:
    provider.gives(reply)
    with pytest.raises(ProviderError) as caught:
        await fetch_answer(opened(), ASK)
    assert len(provider.requests) == 4
    assert_is_one_line(caught.value)


def assert_is_one_line(error: HabitusError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    assert KEY not in str(error)
    assert "Traceback" not in str(error)


@pytest.mark.full
async def test_anthropic_overloaded_inside_its_stream_is_waited_out(
    opened: Opener, provider: FakeProvider, pauses: list[float]
) -> None:
    provider.gives(fails(529, OVERLOADED), sse(ANTHROPIC_START, ("error", OVERLOADED)))
    with pytest.raises(ProviderError, match=f"{ANTHROPIC} is overloaded: Overloaded"):
        await fetch_answer(opened(ANTHROPIC), ASK)
    assert len(pauses) == 3


@pytest.mark.parametrize(("after", "expected"), [("7", [7.0]), ("0", [0.0])])
async def test_a_provider_that_says_when_is_believed(
    after: str, expected: list[float], opened: Opener, provider: FakeProvider, pauses: list[float]
) -> None:
    provider.gives(fails(429, {"error": {"message": "Slow down"}}, Retry_After=after), GOOD)
    await fetch_answer(opened(), ASK)
    assert pauses == expected


async def test_a_provider_that_says_tomorrow_is_not_waited_for(
    opened: Opener, provider: FakeProvider, pauses: list[float]
) -> None:
    provider.gives(fails(429, {"error": {"message": "Slow down"}}, Retry_After="3600"))
    with pytest.raises(ProviderError, match=r"openai:m is over its rate limit: Slow down\."):
        await fetch_answer(opened(), ASK)
    assert pauses == []


def test_pauses_grow_are_spread_and_end() -> None:
    fault = ClassifiedFault(error=ProviderError("down"), is_transient=True)
    patience = RetryAndTimeoutPolicy(attempts=9, spread=lambda: 0.0)
    assert [patience.get_seconds_until_retry(fault, attempt) for attempt in range(1, 10)] == [
        0.5,
        1,
        2,
        4,
        8,
        16,
        30,
        30,
        None,
    ]
    assert RetryAndTimeoutPolicy().get_seconds_until_retry(replace(fault, is_transient=False), 1) is None
    drawn = {RetryAndTimeoutPolicy().get_seconds_until_retry(fault, 1) for _ in range(20)}
    assert len(drawn) > 1
    assert all(pause is not None and 0.5 <= pause <= 1 for pause in drawn)


@pytest.mark.parametrize("then", ["drop", ""])
async def test_words_that_were_heard_are_not_said_twice(then: str, opened: Opener, provider: FakeProvider) -> None:
    said = GOOD.body.partition(b'"finish_reason": "stop"')[0]
    said = said[: said.rfind(b"data:")]  # whole events up to the last
    provider.gives(Reply(headers=SSE, body=said, then=then), GOOD)
    heard: list[StreamPiece] = []

    async def listen() -> None:
        async for piece in opened().stream(ASK):
            heard.append(piece)

    with pytest.raises(ProviderError) as caught:
        await listen()
    assert heard == [TextDelta(text="Hi")]
    assert len(provider.requests) == 1
    assert_is_one_line(caught.value)


OVERFLOWS = {
    "openai:m": {
        "error": {"code": "context_length_exceeded", "message": "This model's maximum context length is 8 tokens"}
    },
    ANTHROPIC: {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}},
    GOOGLE: {
        "error": {
            "code": 400,
            "status": "INVALID_ARGUMENT",
            "message": "The input token count (9) exceeds the maximum number of tokens allowed (8).",
        }
    },
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", OVERFLOWS)
async def test_too_much_to_read_is_an_overflow(
    name: str, opened: Opener, provider: FakeProvider, pauses: list[float]
) -> None:
    provider.gives(fails(400, OVERFLOWS[name]))
    with pytest.raises(ContextOverflowError, match=f"The request is larger than {name} can read: "):
        await fetch_answer(opened(name), ASK)
    assert pauses == []


async def test_a_wrong_key_says_which_variable_holds_it(opened: Opener, provider: FakeProvider) -> None:
    provider.gives(fails(401, {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}))
    with pytest.raises(Refused, match=r"openai:m refused the key in OPENAI_API_KEY.* Check it") as caught:
        await fetch_answer(opened(), ASK)
    assert_is_one_line(caught.value)


async def test_google_s_way_to_refuse_a_key_is_understood(opened: Opener, provider: FakeProvider) -> None:
    body = {
        "error": {
            "code": 400,
            "message": "API key not valid. Please pass a valid API key.",
            "status": "INVALID_ARGUMENT",
        }
    }
    provider.gives(fails(400, body))
    with pytest.raises(Refused, match="refused the key in GEMINI_API_KEY"):
        await fetch_answer(opened(GOOGLE), ASK)


async def test_a_wrong_name_is_met_with_the_names_of_the_server(opened: Opener, provider: FakeProvider) -> None:
    provider.models = ["qwen3-8b", "llama-4"]
    provider.gives(fails(404, {"error": {"message": "model not found", "code": "model_not_found"}}))
    with pytest.raises(NotFound, match=r"openai has no model 'qwen3-9b' at .*\. Did you mean 'qwen3-8b'\?"):
        await fetch_answer(opened("openai:qwen3-9b"), ASK)
    with pytest.raises(NotFound, match=r"It has llama-4, qwen3-8b\."):
        await fetch_answer(opened("openai:something-else"), ASK)


async def test_a_wrong_name_is_met_with_the_names_that_are_known(opened: Opener, provider: FakeProvider) -> None:
    body = {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-sonet-5-5"}}
    provider.gives(fails(404, body))
    with pytest.raises(
        NotFound, match=r"anthropic has no model 'claude-sonet-5-5'.* Did you mean '.*claude-sonnet-5-5'\?"
    ):
        await fetch_answer(opened("anthropic:claude-sonet-5-5"), ASK)


async def test_no_quota_and_refused_requests_are_not_tried_again(
    opened: Opener, provider: FakeProvider, pauses: list[float]
) -> None:
    provider.gives(fails(429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}))
    with pytest.raises(ProviderError, match="openai:m has no quota left: You exceeded your current quota"):
        await fetch_answer(opened(), ASK)
    provider.gives(fails(400, {"error": {"message": f"Bad tool.\nYour key is {KEY}"}}))
    with pytest.raises(
        ProviderError, match=r"openai:m refused the request: Bad tool\. Your key is \[redacted"
    ) as caught:
        await fetch_answer(opened(), ASK)
    assert_is_one_line(caught.value)
    assert pauses == []


async def test_a_withheld_answer_says_so(opened: Opener, provider: FakeProvider) -> None:
    provider.gives(chat_text(finish="content_filter"))
    with pytest.raises(ProviderError, match=r"openai:m withheld its answer"):
        await fetch_answer(opened(), ASK)
    assert len(provider.requests) == 1


async def test_nobody_at_home_says_how_to_start_the_server(pauses: list[float]) -> None:
    model = open_provider_model("ollama:qwen3", {"OLLAMA_HOST": "127.0.0.1:9"})
    with pytest.raises(
        ProviderError, match=r"Nothing answers at http://127\.0\.0\.1:9/v1 for ollama:qwen3\. Start it: ollama serve"
    ):
        await fetch_answer(model, ASK)
    await model.close()


async def test_silence_is_waited_out_and_then_given_up(
    opened: Opener, provider: FakeProvider, pauses: list[float]
) -> None:
    provider.gives(Reply(headers=SSE, then="hang"))
    with pytest.raises(ProviderError, match=r"openai:m said nothing for 0\.1 seconds"):
        await fetch_answer(opened(silence=0.1, attempts=2), ASK)
    assert pauses == [1.0]
    with pytest.raises(ProviderError, match=r"openai:m did not finish in 0\.1 seconds"):
        await fetch_answer(opened(total=0.1), ASK)


@pytest.mark.parametrize("way", ["cancel", "leave"])
async def test_whoever_goes_in_the_middle_closes_the_connection(
    way: str, opened: Opener, provider: FakeProvider
) -> None:
    said = GOOD.body[: GOOD.body.index(b'"finish_reason": "stop"')]
    provider.gives(Reply(headers=SSE, body=said[: said.rfind(b"data:")], then="hang"))
    heard = asyncio.Event()

    async def listen() -> None:
        async with aclosing(opened().stream(ASK)) as pieces:
            async for _ in pieces:
                heard.set()
                if way == "leave":
                    return

    task = asyncio.create_task(listen())
    await heard.wait()
    if way == "cancel":
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() is (way == "cancel")
    assert await asyncio.to_thread(provider.was_left.wait, 5)
