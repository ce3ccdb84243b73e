"""Questions to a model and its answers, whoever provides it, and the two models of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, assert_never, runtime_checkable

from habitus.errors import HabitusError
from habitus.events import Image as Image  # what a person shows, and what a tool does
from habitus.events import ToolCall
from habitus.text import tokens


class Role(StrEnum):
    MAIN = "main"  # talks to the person
    CHEAP = "cheap"  # drafts and draws lessons


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A message of the person."""

    parts: tuple[Text | Image, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """A message of the model: words, and the tools it wants called."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """The result of a call, as the model reads it."""

    call: str  # the id of the call
    tool: str
    content: str
    failed: bool = False
    images: tuple[Image, ...] = ()


Message = Asked | Answered | Returned

_IMAGE_TOKENS = 1500


def message_tokens(message: Message) -> int:
    """About how many tokens a message takes."""
    match message:
        case Asked(parts=parts):
            return sum(tokens(part.text) if isinstance(part, Text) else _IMAGE_TOKENS for part in parts) + 4
        case Answered(text=text, calls=calls):
            return tokens(text) + sum(tokens(call.arguments) + tokens(call.name) + 8 for call in calls) + 4
        case Returned(content=content, images=images):
            return tokens(content) + _IMAGE_TOKENS * len(images) + 8
        case never:
            assert_never(never)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    name: str
    description: str
    parameters: Mapping[str, object]  # JSON Schema

    @property
    def tokens(self) -> int:
        return tokens(self.description) + tokens(str(self.parameters))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One request to a model."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    schema: Mapping[str, object] | None = None  # the answer is one JSON value of this shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None  # in US dollars, where the price is known

    def __add__(self, other: Usage) -> Usage:
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cost=sum(known) if known else None,
        )


class StopReason(StrEnum):
    END = "end"  # it has said what it had to say
    CALLS = "calls"  # it waits for its tools
    LENGTH = "length"  # there was no room for more


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallStarted:
    """The model has begun to write a call; its arguments follow in the answer."""

    tool: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The end of a stream, exactly once, with the whole message."""

    message: Answered
    stop: StopReason
    usage: Usage = Usage()


@dataclass(frozen=True, kw_only=True, slots=True)
class TryingAgain:
    """The request broke before anything was said, and is about to be made once more."""


Streamed = TextDelta | CallStarted | TryingAgain | Answer


class Model(Protocol):
    """Streams the pieces of an answer, the `Answer` last; a fault of the provider is a `ProviderFault`."""

    @property
    def name(self) -> str: ...

    @property
    def sees_images(self) -> bool: ...

    @property
    def context_tokens(self) -> int | None: ...

    def stream(self, ask: Ask) -> AsyncIterator[Streamed]: ...


class ProviderFault(HabitusError):
    """The provider did not answer as it should: an `infra` outcome, nobody's mistake here."""

    usage: Usage | None = None  # where it is known what was spent all the same


class ContextOverflow(ProviderFault):
    """The request is larger than the model can read."""


class NoUsableAnswer(HabitusError):
    """The model answered, and never in the shape that was asked for; the tokens are spent all the same."""

    def __init__(self, message: str, *, usage: Usage) -> None:
        self.usage = usage
        super().__init__(message)


async def answer(model: Model, ask: Ask) -> Answer:
    """The whole answer, for those who don't show it as it comes."""
    async for piece in model.stream(ask):
        if isinstance(piece, Answer):
            return piece
    raise ProviderFault(f"{model.name} ended its answer without an end.")


@runtime_checkable
class _Connected(Protocol):
    async def close(self) -> None: ...


class Models:
    """Opened when first asked for; without a name of its own the cheap one is the main one."""

    def __init__(self, main: str, cheap: str = "", *, open_model: Callable[[str], Model]) -> None:
        self._names = {Role.MAIN: main, Role.CHEAP: cheap or main}
        self._open = open_model
        self._opened: dict[str, Model] = {}

    @property
    def main(self) -> Model:
        return self[Role.MAIN]

    @property
    def cheap(self) -> Model:
        return self[Role.CHEAP]

    def __getitem__(self, role: Role) -> Model:
        name = self._names[role]
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def close(self) -> None:
        """Lets go of the connections; asking again opens new ones."""
        for model in self._opened.values():
            if isinstance(model, _Connected):
                await model.close()
