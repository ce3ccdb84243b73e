"""The same conversation with each provider: what is sent to it, and what is made of its stream."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from pydantic_ai.messages import ToolCallPart, ToolReturnPart

from habitus.events import ToolCall
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    CompletionResult,
    Image,
    PersonMessage,
    ProviderError,
    StopReason,
    StreamPiece,
    TextContent,
    TextDelta,
    ToolCallStarted,
    ToolResultMessage,
    ToolSpec,
    fetch_answer,
)
from habitus.llm.providers import ProviderModel, open_provider_model
from habitus.llm.providers.wire import to_provider_messages
from tests.fake_provider import FakeProvider, Reply
from tests.llm import recordings

pytestmark = pytest.mark.req("AG-02")

PICTURE = b"\x89PNG..."
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
ASK = CompletionRequest(
    system="You are Habitus.",
    messages=(
        PersonMessage(parts=(TextContent(text="What is in it?"), Image(data=PICTURE, media_type="image/png"))),
        AssistantMessage(
            text="Let me see.",
            calls=(
                ToolCall(id="call_a", name="read", arguments='{"path": "x.csv"}'),
                ToolCall(id="call_b", name="read", arguments="{oops"),
            ),
        ),
        ToolResultMessage(call="call_a", tool="read", content="1,2,3"),
        ToolResultMessage(call="call_b", tool="read", content="The arguments are not JSON."),
        PersonMessage(parts=(TextContent(text="Go on."),)),
    ),
    tools=(ToolSpec(name="read", description="Reads a file.", parameters=PARAMETERS),),
    max_tokens=500,
)


class Detour(httpx2.AsyncBaseTransport):
    """Brings what is meant for a provider to the server of the test."""

    def __init__(self, address: str) -> None:
        self._to = httpx2.URL(address)
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(scheme="http", host=self._to.host, port=self._to.port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    name: str
    reply: Reply
    environ: Mapping[str, str]
    key_header: str
    path: str
    address_in: str = ""
    address_path: str = ""
    costs: bool = True
    context: int | None = None
    sees: bool = True
    sent: dict[str, Any] = field(default_factory=dict)  # key of the body → what must be there


CALL_B = {"not_an_object": "{oops"}
ENCODED = base64.b64encode(PICTURE).decode()
DATA_URL = f"data:image/png;base64,{ENCODED}"

CHAT_SENT = {
    "messages": [
        {"role": "system", "content": "You are Habitus."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is in it?"},
                {"type": "image_url", "image_url": {"url": DATA_URL}},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "call_a", "type": "function", "function": {"name": "read", "arguments": '{"path": "x.csv"}'}},
                {"id": "call_b", "type": "function", "function": {"name": "read", "arguments": json.dumps(CALL_B)}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_a", "content": "1,2,3"},
        {"role": "tool", "tool_call_id": "call_b", "content": "The arguments are not JSON."},
        {"role": "user", "content": "Go on."},
    ],
    "max_tokens": 500,
}
CHAT_TOOL = {"name": "read", "description": "Reads a file.", "parameters": PARAMETERS}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}

DIALECTS = {
    "openai": Dialect(
        name="openai:gpt-5-mini",
        reply=recordings.OPENAI,
        environ={"OPENAI_API_KEY": "sk-secret"},
        key_header="authorization",
        path="/v1/responses",
        context=400_000,
        sent={
            "instructions": "You are Habitus.",
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is in it?"},
                        {"type": "input_image", "image_url": DATA_URL, "detail": "auto"},
                    ],
                },
                {"role": "assistant", "content": "Let me see."},
                {"type": "function_call", "call_id": "call_a", "name": "read", "arguments": '{"path": "x.csv"}'},
                {"type": "function_call", "call_id": "call_b", "name": "read", "arguments": json.dumps(CALL_B)},
                {"type": "function_call_output", "call_id": "call_a", "output": "1,2,3"},
                {"type": "function_call_output", "call_id": "call_b", "output": "The arguments are not JSON."},
                {"role": "user", "content": "Go on."},
            ],
            "tools": [{"type": "function", **CHAT_TOOL, "strict": False}],
            "max_output_tokens": 500,
            "store": False,
        },
    ),
    "compatible": Dialect(
        name="openai:some-model",
        reply=recordings.CHAT,
        environ={"OPENAI_API_KEY": "sk-secret"},
        key_header="authorization",
        path="/v1/chat/completions",
        address_in="OPENAI_BASE_URL",
        address_path="/v1",
        costs=False,
        sees=False,
        sent={**CHAT_SENT, "tools": [{"type": "function", "function": CHAT_TOOL}]},
    ),
    "ollama": Dialect(
        name="ollama:qwen3-vl",
        reply=recordings.CHAT,
        environ={"OLLAMA_API_KEY": "sk-secret"},
        key_header="authorization",
        path="/v1/chat/completions",
        address_in="OLLAMA_HOST",
        costs=False,
        sent={**{key: CHAT_SENT[key] for key in ("messages",)}, "tools": [{"type": "function", "function": CHAT_TOOL}]},
    ),
    "anthropic": Dialect(
        name="anthropic:claude-sonnet-5-5",
        reply=recordings.ANTHROPIC,
        environ={"ANTHROPIC_API_KEY": "sk-secret"},
        key_header="authorization",
        path="/v1/messages",
        address_in="ANTHROPIC_BASE_URL",
        context=1_000_000,
        sent={
            "system": [{"type": "text", "text": "You are Habitus.", **CACHED}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is in it?"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": ENCODED},
                        },
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Let me see."},
                        {"type": "tool_use", "id": "call_a", "name": "read", "input": {"path": "x.csv"}},
                        {"type": "tool_use", "id": "call_b", "name": "read", "input": CALL_B},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_a",
                            "content": [{"type": "text", "text": "1,2,3"}],
                            "is_error": False,
                        },
                        {
                            "type": "tool_result",
                            "tool_use_id": "call_b",
                            "content": [{"type": "text", "text": "The arguments are not JSON."}],
                            "is_error": False,
                        },
                        {"type": "text", "text": "Go on."},
                    ],
                },
            ],
            "tools": [{"name": "read", "description": "Reads a file.", "input_schema": PARAMETERS, **CACHED}],
            "max_tokens": 500,
        },
    ),
    "google": Dialect(
        name="google:gemini-2.5-flash",
        reply=recordings.GOOGLE,
        environ={"GEMINI_API_KEY": "sk-secret"},
        key_header="x-goog-api-key",
        path="/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        address_in="GOOGLE_GEMINI_BASE_URL",
        context=1_048_576,
        sent={
            "systemInstruction": {"parts": [{"text": "You are Habitus."}], "role": "user"},
            "tools": [
                {
                    "functionDeclarations": [
                        {"name": "read", "description": "Reads a file.", "parameters_json_schema": PARAMETERS}
                    ]
                }
            ],
            "generationConfig": {"maxOutputTokens": 500, "responseModalities": ["TEXT"]},
        },
    ),
}


@asynccontextmanager
async def opened(
    dialect: Dialect, provider: FakeProvider, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> AsyncIterator[ProviderModel]:
    environ = dict(dialect.environ)
    if dialect.address_in:
        environ[dialect.address_in] = provider.address + dialect.address_path
    transport = None if dialect.address_in else Detour(provider.address)
    model = open_provider_model(dialect.name, environ, sleep=sleep, transport=transport)
    try:
        yield model
    finally:
        await model.close()


@pytest.fixture(params=list(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


@pytest.mark.some(1)
async def test_a_stream_becomes_words_calls_and_one_answer(dialect: Dialect, provider: FakeProvider) -> None:
    provider.gives(dialect.reply)
    async with opened(dialect, provider) as model:
        pieces: list[StreamPiece] = [piece async for piece in model.stream(ASK)]
    *spoken, last = pieces
    assert spoken == [TextDelta(text="Hel"), TextDelta(text="lo"), ToolCallStarted(tool="read")]
    assert isinstance(last, CompletionResult)
    assert last.message == AssistantMessage(
        text="Hello", calls=(ToolCall(id="call_1", name="read", arguments=recordings.ARGUMENTS),)
    )
    assert last.stop is StopReason.CALLS
    assert (last.usage.input_tokens, last.usage.output_tokens, last.usage.cached_tokens) == (50, 7, 20)
    assert (last.usage.cost is not None) is dialect.costs
    assert last.usage.cost is None or 0 < last.usage.cost < 0.01


async def test_the_whole_conversation_is_sent(dialect: Dialect, provider: FakeProvider) -> None:
    provider.gives(dialect.reply)
    async with opened(dialect, provider) as model:
        await fetch_answer(model, ASK)
    (request,) = provider.requests
    assert request.path.endswith(dialect.path)
    assert request.headers[dialect.key_header] in ("sk-secret", "Bearer sk-secret")
    assert {key: _parsed(request.body[key]) for key in dialect.sent} == _parsed(dialect.sent)
    assert "sk-secret" not in json.dumps(request.body)


async def test_google_is_sent_pictures_calls_and_results(provider: FakeProvider) -> None:
    """Its parts carry more than we say, so the parts are looked at one by one."""
    provider.gives(recordings.GOOGLE)
    async with opened(DIALECTS["google"], provider) as model:
        await fetch_answer(model, ASK)
    contents = provider.asked["contents"]
    assert contents[0]["parts"] == [
        {"text": "What is in it?"},
        {"inlineData": {"data": ENCODED, "mime_type": "image/png"}},
    ]
    calls = [part["functionCall"] for part in contents[1]["parts"] if "functionCall" in part]
    assert [(each["name"], each["args"]) for each in calls] == [("read", {"path": "x.csv"}), ("read", CALL_B)]
    results = [part["functionResponse"] for each in contents for part in each["parts"] if "functionResponse" in part]
    assert [each["response"]["return_value"] for each in results] == ["1,2,3", "The arguments are not JSON."]
    assert contents[-1]["parts"][-1] == {"text": "Go on."}


def _parsed(value: Any) -> Any:
    """Arguments are JSON in text: how it is spaced does not count."""
    match value:
        case dict():
            return {
                key: json.loads(item) if key == "arguments" and isinstance(item, str) else _parsed(item)
                for key, item in value.items()
            }
        case list():
            return [_parsed(item) for item in value]
        case _:
            return value


@pytest.mark.req("SK-23")
async def test_a_picture_that_a_tool_shows_reaches_every_provider(dialect: Dialect, provider: FakeProvider) -> None:
    provider.gives(dialect.reply)
    shown = ToolResultMessage(
        call="call_a", tool="read", content="x.png:", images=(Image(data=PICTURE, media_type="image/png"),)
    )
    asked = AssistantMessage(calls=(ToolCall(id="call_a", name="read", arguments='{"path": "x.png"}'),))
    async with opened(dialect, provider) as model:
        await fetch_answer(
            model, replace(ASK, messages=(PersonMessage(parts=(TextContent(text="Look."),)), asked, shown))
        )
    sent = json.dumps(provider.asked)
    assert sent.count(ENCODED) == 1
    assert "x.png:" in sent


SHAPES = {
    "openai": ("text", {"format": {"type": "json_schema", "name": "answer"}}),
    "compatible": ("response_format", {"type": "json_schema", "json_schema": {"name": "answer"}}),
    "ollama": ("response_format", {"type": "json_schema", "json_schema": {"name": "answer"}}),
    "anthropic": ("output_config", {"format": {"type": "json_schema"}}),
    "google": ("generationConfig", {"responseMimeType": "application/json"}),
}


@pytest.mark.req("AG-03")
@pytest.mark.parametrize("name", list(SHAPES))
async def test_a_shape_is_asked_for_in_the_provider_s_own_way(name: str, provider: FakeProvider) -> None:
    provider.gives(DIALECTS[name].reply)
    async with opened(DIALECTS[name], provider) as model:
        await fetch_answer(model, replace(ASK, schema=SCHEMA, tools=(), messages=ASK.messages[:1]))
    key, expected = SHAPES[name]
    assert _is_within(expected, provider.asked[key]), provider.asked
    assert '"required": ["name"]' in json.dumps(provider.asked[key])


def _is_within(expected: Any, found: Any) -> bool:
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(_is_within(item, found.get(key)) for key, item in expected.items())
    return bool(expected == found)


@pytest.mark.req("AG-03")
async def test_a_model_that_can_t_hold_a_shape_gives_it_as_a_call(provider: FakeProvider) -> None:
    """Google can't do both, a shape and tools: the shape becomes a tool, and its call the answer."""
    body = recordings.GOOGLE.body.replace(b'"name": "read"', b'"name": "answer"')
    provider.gives(replace(recordings.GOOGLE, body=body))
    async with opened(DIALECTS["google"], provider) as model:
        pieces = [piece async for piece in model.stream(replace(ASK, schema=SCHEMA))]
    last = pieces[-1]
    assert isinstance(last, CompletionResult)
    assert json.loads(last.message.text) == {"path": "a.csv"}
    assert (last.message.calls, last.stop) == ((), StopReason.END)
    assert ToolCallStarted(tool="answer") not in pieces
    names = [each["name"] for each in provider.asked["tools"][0]["functionDeclarations"]]
    assert names == ["read", "answer"]


async def test_what_a_model_can_do_is_known_from_its_name(dialect: Dialect, provider: FakeProvider) -> None:
    async with opened(dialect, provider) as model:
        assert (model.name, model.context_tokens, model.sees_images) == (dialect.name, dialect.context, dialect.sees)


async def test_an_answer_without_room_for_its_end_says_so(provider: FakeProvider) -> None:
    provider.gives(recordings.chat_text("Hel", finish="length"))
    async with opened(DIALECTS["compatible"], provider) as model:
        assert (await fetch_answer(model, ASK)).stop is StopReason.LENGTH


async def test_half_a_stream_is_never_taken_for_a_whole_one(dialect: Dialect, provider: FakeProvider) -> None:
    """The connection ends well, and only the last events are missing."""
    events = dialect.reply.body.rstrip().split(b"\n\n")
    ended = next(at for at, event in enumerate(events) if any(mark in event for mark in ENDS))
    provider.gives(replace(dialect.reply, body=b"\n\n".join(events[:ended]) + b"\n\n"))
    async with opened(dialect, provider) as model:
        with pytest.raises(ProviderError, match=f"{dialect.name} broke off its answer"):
            await fetch_answer(model, ASK)


ENDS = (b'"finish_reason": "tool_calls"', b'"message_delta"', b'"finishReason"', b'"response.completed"')
ODD = [
    b"[]",
    b"null",
    b"7",
    b'"text"',
    b"{}",
    b'{"choices": null}',
    b'{"choices": [{"delta": 3}]}',
    b'{"candidates": [{"content": {"parts": [5]}}]}',
    b'{"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta"}}',
    b'{"type": "response.completed", "response": []}',
    b"\xff\xfe",
]


@pytest.mark.some(1)
async def test_an_odd_event_is_a_fault_and_asked_again(dialect: Dialect, provider: FakeProvider) -> None:
    for number, event in enumerate(ODD, 1):
        body = b"event: content_block_delta\ndata: " + event + b"\n\n"
        provider.gives(replace(dialect.reply, body=body), dialect.reply)
        async with opened(dialect, provider, sleep=_at_once) as model:
            assert (await fetch_answer(model, ASK)).message.text == "Hello", event
        assert len(provider.requests) == 2 * number, event


async def _at_once(seconds: float) -> None:
    assert 0 < seconds < 10


def test_one_model_serves_one_event_loop_after_the_other(provider: FakeProvider) -> None:
    provider.gives(recordings.CHAT)
    model = open_provider_model("openai:m", {"OPENAI_BASE_URL": provider.address})

    async def ask() -> str:
        said = (await fetch_answer(model, ASK)).message.text
        await model.close()
        return said

    assert [asyncio.run(ask()), asyncio.run(ask())] == ["Hello", "Hello"]


@pytest.mark.parametrize("called", ["functions.read", "", "größe", "x" * 200])
def test_a_name_that_no_tool_can_have_is_sent_back_as_one_that_providers_take(called: str) -> None:
    wired = to_provider_messages(
        (
            AssistantMessage(calls=(ToolCall(id="a", name=called, arguments="{}"),)),
            ToolResultMessage(call="a", tool=called, content="?"),
        )
    )
    sent = [
        part.tool_name for message in wired for part in message.parts if isinstance(part, ToolCallPart | ToolReturnPart)
    ]
    assert len(sent) == 2
    assert len(set(sent)) == 1
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", sent[0])
