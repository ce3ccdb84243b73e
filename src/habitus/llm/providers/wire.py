"""Converts our messages to pydantic-ai and back. With `faults` the only module that imports it."""

from __future__ import annotations

import asyncio
import json
import re
import warnings
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from habitus.events import ToolCall
from habitus.llm.model import (
    AssistantMessage,
    ChatMessage,
    CompletionRequest,
    CompletionResult,
    Image,
    PersonMessage,
    ProviderError,
    StopReason,
    StreamPiece,
    TextContent,
    TextDelta,
    TokenUsage,
    ToolCallStarted,
    ToolResultMessage,
    ToolSpec,
)
from habitus.llm.providers.faults import PROVIDER_EXCEPTIONS, StreamInterruptedError, classify_fault
from habitus.llm.providers.known_providers import (
    AnswerTimeLimits,
    ClassifiedFault,
    ModelWithAddressAndKey,
    ProviderDialect,
)

ANSWER_TOOL = "answer"
CONNECT_SECONDS = 10.0
# Effectively unlimited: the `AnswerTimeLimits` ends a silence.
READ_SECONDS = 3600.0


class ProviderClient:
    """A connection to one model of one provider."""

    provider_exceptions: tuple[type[Exception], ...] = PROVIDER_EXCEPTIONS

    def __init__(self, choice: ModelWithAddressAndKey, *, transport: Any = None) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._choice = choice
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(READ_SECONDS, connect=CONNECT_SECONDS),
            transport=transport
            or (_create_transport_without_proxies(choice.address) if choice.is_on_this_machine else None),
        )
        self._model = _create_pydantic_ai_model(choice, self._client)

    @property
    def context_tokens(self) -> int | None:
        tokens: int | None = self._model.profile.get("context_window")
        return tokens

    async def stream(self, ask: CompletionRequest, watch: AnswerTimeLimits) -> AsyncGenerator[StreamPiece, None]:
        parameters = self._build_request_parameters(ask)
        async with AsyncExitStack() as stack:
            async with watch.limit_wait_for_next_piece():
                stream = await stack.enter_async_context(
                    model_request_stream(
                        self._model,
                        to_provider_messages(ask.messages),
                        model_settings=self._build_model_settings(ask),
                        model_request_parameters=parameters,
                    )
                )
            events = aiter(stream)
            while True:
                async with watch.limit_wait_for_next_piece():
                    event = await anext(events, None)
                if event is None:
                    break
                piece = _parse_stream_event(event)
                if piece is not None:
                    yield piece
            response = stream.get()
        # After the stream is closed: a caller that stops here leaves no open connection behind.
        yield parse_response(response, self._choice)

    async def classify_fault(self, trouble: Exception) -> ClassifiedFault:
        return await classify_fault(trouble, self._choice, self._client)

    async def close(self) -> None:
        await self._client.aclose()

    def _build_request_parameters(self, ask: CompletionRequest) -> ModelRequestParameters:
        request = ModelRequestParameters(
            function_tools=[_build_tool_definition(each) for each in ask.tools],
            instruction_parts=[InstructionPart(content=ask.system)] if ask.system else None,
        )
        if ask.schema is None:
            return request
        mode = self._choose_output_mode(ask)
        if mode == "tool":
            output = _build_tool_definition(
                ToolSpec(name=ANSWER_TOOL, description="Gives the answer.", parameters=ask.schema)
            )
            tools = [replace(output, kind="output")]
            return replace(request, output_tools=tools, output_mode=mode, allow_text_output=False)
        shape = OutputObjectDefinition(json_schema=dict(ask.schema), name=ANSWER_TOOL)
        return replace(request, output_mode=mode, output_object=shape)

    def _choose_output_mode(self, ask: CompletionRequest) -> Literal["native", "tool", "prompted"]:
        """Return the strictest way in which this model can promise the shape of its answer."""
        profile = self._model.profile
        # Google allows either a schema or tools.
        has_to_choose = bool(ask.tools) and self._choice.dialect is ProviderDialect.GOOGLE
        if profile.get("supports_json_schema_output") and not has_to_choose:
            return "native"
        return "tool" if profile.get("supports_tools", True) else "prompted"

    def _build_model_settings(self, ask: CompletionRequest) -> ModelSettings:
        # Retries are ours. The cache covers the stable prefix: tools, system prompt and earlier messages.
        settings = ModelSettings(max_retries=0, cache=True)
        if ask.max_tokens is not None:
            settings["max_tokens"] = ask.max_tokens
        if self._choice.dialect is ProviderDialect.OPENAI:
            # A setting of OpenAI's own API.
            return {**settings, "openai_store": False}
        return settings


def _create_transport_without_proxies(address: str) -> httpx2.AsyncHTTPTransport:
    """Return a transport that ignores proxies, and skips loading certificates for plain http."""
    return httpx2.AsyncHTTPTransport(verify=urlsplit(address).scheme != "http")


def _create_pydantic_ai_model(choice: ModelWithAddressAndKey, client: httpx2.AsyncClient) -> PydanticModel[Any]:
    """Create the pydantic-ai model, importing only its provider's library."""

    def provider(kind: str) -> Provider[Any]:
        if choice.dialect is ProviderDialect.CHAT:
            from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

            return OpenAICompatibleProvider(
                "openai-compatible",
                base_url=choice.address,
                api_key=choice.key or None,
                http_client=client,
                profile=None if _OPENAIS_OWN.match(choice.model) else _OLD_LIMIT,
            )
        key = "none" if choice.dialect is ProviderDialect.OLLAMA and not choice.key else choice.key
        # All of our providers accept these arguments.
        made: Any = infer_provider_class(kind)
        return made(api_key=key, base_url=choice.address or None, http_client=client)

    with warnings.catch_warnings():
        # Google's library warns about its own string literals.
        warnings.simplefilter("ignore")
        return infer_model(f"{choice.dialect.value}:{choice.model}", provider)


# Only OpenAI's own models insist on the new name of the limit; older servers know only the old one.
_OPENAIS_OWN = re.compile(r"(?:openai/)?(?:gpt-\d|o\d)")
_OLD_LIMIT = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)


def to_provider_messages(messages: Sequence[ChatMessage]) -> list[ModelMessage]:
    """Convert messages; adjacent user messages and tool results become one request."""
    wired: list[ModelMessage] = []
    for message in messages:
        match message:
            case AssistantMessage():
                parts = list(_iterate_assistant_message_parts(message))
                if parts:
                    wired.append(ModelResponse(parts=parts))
            case PersonMessage() | ToolResultMessage():
                part = _build_request_part(message)
                last = wired[-1] if wired else None
                if isinstance(last, ModelRequest):
                    last.parts = [*last.parts, part]
                else:
                    wired.append(ModelRequest(parts=[part]))
    return wired


def _build_request_part(message: PersonMessage | ToolResultMessage) -> ModelRequestPart:
    if isinstance(message, ToolResultMessage):
        content = [message.content, *map(_build_content_part, message.images)] if message.images else message.content
        return ToolReturnPart(tool_name=_sanitize_tool_name(message.tool), content=content, tool_call_id=message.call)
    match message.parts:
        case (TextContent(text=text),):
            return UserPromptPart(content=text)
        case parts:
            return UserPromptPart(content=[_build_content_part(part) for part in parts])


def _build_content_part(part: TextContent | Image) -> str | BinaryContent:
    return part.text if isinstance(part, TextContent) else BinaryContent(data=part.data, media_type=part.media_type)


def _iterate_assistant_message_parts(message: AssistantMessage) -> Iterable[TextPart | ToolCallPart]:
    if message.text:
        yield TextPart(content=message.text)
    for call in message.calls:
        yield ToolCallPart(
            tool_name=_sanitize_tool_name(call.name), args=_ensure_json_object(call.arguments), tool_call_id=call.id
        )


def _sanitize_tool_name(called: str) -> str:
    """Replace characters that no tool name can have, because providers reject the whole conversation for one."""
    return _NO_NAME.sub("_", called)[:64] or "unnamed"


_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")


def _ensure_json_object(arguments: str) -> str:
    """Return arguments as a JSON object: providers reject others, so invalid ones are wrapped for the model to see."""
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    return arguments if is_object else json.dumps({"not_an_object": arguments}, ensure_ascii=False)


def _build_tool_definition(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name, description=spec.description, parameters_json_schema=dict(spec.parameters), strict=False
    )


def _parse_stream_event(event: ModelResponseStreamEvent) -> StreamPiece | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) if text:
            return TextDelta(text=text)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return TextDelta(text=text)
        case PartStartEvent(part=ToolCallPart(tool_name=name)) if name != ANSWER_TOOL:
            return ToolCallStarted(tool=name)
        case _:
            return None


def parse_response(response: ModelResponse, choice: ModelWithAddressAndKey) -> CompletionResult:
    """Convert a response to our answer; raise a ProviderError if it is incomplete or filtered."""
    text: list[str] = []
    calls: list[ToolCall] = []
    for part in response.parts:
        match part:
            case TextPart(content=content):
                text.append(content)
            case ToolCallPart(tool_name=name) if name == ANSWER_TOOL:
                text = [part.args_as_json_str()]
            case ToolCallPart(tool_name=name, tool_call_id=call_id, args=args):
                written = args if isinstance(args, str) else json.dumps(args or {}, ensure_ascii=False)
                calls.append(ToolCall(id=call_id, name=name, arguments=written or "{}"))
            case _:
                # Reasoning is not part of the answer.
                pass
    message = AssistantMessage(text="".join(text), calls=tuple(calls))
    return CompletionResult(
        message=message, stop=_determine_stop_reason(response, message, choice), usage=_parse_usage(response)
    )


def _determine_stop_reason(
    response: ModelResponse, message: AssistantMessage, choice: ModelWithAddressAndKey
) -> StopReason:
    if response.finish_reason == "content_filter":
        raise ProviderError(f"{choice.name} withheld its answer (content filter).")
    # The library accepts a stream that merely ends as complete; only the provider's finish reason counts.
    was_ended = bool((response.provider_details or {}).get("finish_reason")) and response.state == "complete"
    if not was_ended or response.finish_reason == "error":
        raise StreamInterruptedError(f"{choice.name} broke off its answer.")
    if response.finish_reason == "length":
        return StopReason.LENGTH
    return StopReason.CALLS if message.calls else StopReason.END


def _parse_usage(response: ModelResponse) -> TokenUsage:
    used = response.usage
    try:
        cost: float | None = float(response.cost().total_price)
    except (LookupError, AssertionError, ValueError):
        # The model's price is unknown.
        cost = None
    return TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        cost=cost,
    )
