"""Requests to a model and its answers, independent of the provider, and the two models of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, assert_never, runtime_checkable

from habitus.errors import HabitusError

# Re-exported: images come from users and from tools.
from habitus.events import Image as Image
from habitus.events import ToolCall
from habitus.text import estimate_tokens


class ModelRole(StrEnum):
    """The two uses of models in a session."""

    # Talks to the user.
    MAIN = "main"
    # Drafts skills and draws lessons.
    CHEAP = "cheap"


@dataclass(frozen=True, kw_only=True, slots=True)
class TextContent:
    """A text part of a message."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonMessage:
    """A message from the user."""

    parts: tuple[TextContent | Image, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantMessage:
    """A message from the model: text, and the tool calls it wants."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResultMessage:
    """The result of a tool call as the model reads it."""

    # The id of the call.
    call: str
    tool: str
    content: str
    failed: bool = False
    images: tuple[Image, ...] = ()


ChatMessage = PersonMessage | AssistantMessage | ToolResultMessage

_IMAGE_TOKENS = 1500


def estimate_message_tokens(message: ChatMessage) -> int:
    """Estimate the number of tokens of a message."""
    match message:
        case PersonMessage(parts=parts):
            return (
                sum(estimate_tokens(part.text) if isinstance(part, TextContent) else _IMAGE_TOKENS for part in parts)
                + 4
            )
        case AssistantMessage(text=text, calls=calls):
            return (
                estimate_tokens(text)
                + sum(estimate_tokens(call.arguments) + estimate_tokens(call.name) + 8 for call in calls)
                + 4
            )
        case ToolResultMessage(content=content, images=images):
            return estimate_tokens(content) + _IMAGE_TOKENS * len(images) + 8
        case never:
            assert_never(never)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: Mapping[str, object]  # JSON Schema

    @property
    def tokens(self) -> int:
        return estimate_tokens(self.description) + estimate_tokens(str(self.parameters))


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest:
    """One request to a model."""

    system: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    # The answer must be one JSON value of this shape.
    schema: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenUsage:
    """Token counts and cost of a request."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    # In US dollars, if the price is known.
    cost: float | None = None

    def __add__(self, other: TokenUsage) -> TokenUsage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=sum(known) if known else None,
        )


class StopReason(StrEnum):
    """Why an answer ended."""

    # The answer is complete.
    END = "end"
    # It waits for tool results.
    CALLS = "calls"
    # It reached the token limit.
    LENGTH = "length"


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallStarted:
    """The model has begun to write a call; its arguments follow in the answer."""

    tool: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionResult:
    """The last piece of every stream, with the complete message."""

    message: AssistantMessage
    stop: StopReason
    usage: TokenUsage = TokenUsage()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryStreamMarker:
    """The request failed before any text arrived, and is about to be retried."""


StreamPiece = TextDelta | ToolCallStarted | RetryStreamMarker | CompletionResult


class Model(Protocol):
    """A language model that streams the pieces of an answer, the `CompletionResult` last; failures are
    ProviderErrors.
    """

    @property
    def name(self) -> str: ...

    @property
    def sees_images(self) -> bool: ...

    @property
    def context_tokens(self) -> int | None: ...

    def stream(self, ask: CompletionRequest) -> AsyncIterator[StreamPiece]: ...


class ProviderError(HabitusError):
    """The provider failed to answer: an `infra` outcome, which counts against nothing."""

    # The tokens spent despite the failure, if known.
    usage: TokenUsage | None = None


class ContextOverflowError(ProviderError):
    """The request is larger than the model can read."""


class UnusableAnswerError(HabitusError):
    """The model never answered in the requested shape; `usage` has the tokens spent."""

    def __init__(self, message: str, *, usage: TokenUsage) -> None:
        self.usage = usage
        super().__init__(message)


async def fetch_answer(model: Model, ask: CompletionRequest) -> CompletionResult:
    """Return the complete answer, for callers that do not stream."""
    async for piece in model.stream(ask):
        if isinstance(piece, CompletionResult):
            return piece
    raise ProviderError(f"{model.name} ended its answer without an end.")


@runtime_checkable
class _ClosableModel(Protocol):
    async def close(self) -> None: ...


class SessionModels:
    """The main and the cheap model of a session, opened on first use; the cheap one defaults to the main one."""

    def __init__(self, main: str, cheap: str = "", *, open_model: Callable[[str], Model]) -> None:
        self._names = {ModelRole.MAIN: main, ModelRole.CHEAP: cheap or main}
        self._open = open_model
        self._opened: dict[str, Model] = {}

    @property
    def main(self) -> Model:
        return self[ModelRole.MAIN]

    @property
    def cheap(self) -> Model:
        return self[ModelRole.CHEAP]

    def __getitem__(self, role: ModelRole) -> Model:
        name = self._names[role]
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        for model in self._opened.values():
            if isinstance(model, _ClosableModel):
                await model.close()
