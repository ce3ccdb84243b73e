"""A model that follows a script: a test double, and the model of the tour.

    model = ScriptedModel([calls("recall_skill", {"name": "csv-summary"}), says("Done.")])

A script is a sequence of steps, or a function from the request to a step; steps may be such functions too.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from habitus.errors import HabitusError, Invalid, NotFound
from habitus.events import ToolCall
from habitus.llm.model import (
    AssistantMessage,
    CompletionRequest,
    CompletionResult,
    ProviderError,
    StopReason,
    StreamPiece,
    TextDelta,
    TokenUsage,
    ToolCallStarted,
    estimate_message_tokens,
)
from habitus.llm.structured import describe_validation_error
from habitus.text import estimate_tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class FailingReply:
    """Says something, then raises the error; without one, it hangs until it is cancelled."""

    error: BaseException | None
    after: str = ""


ScriptStep = AssistantMessage | CompletionResult | FailingReply | BaseException
Script = Iterable[ScriptStep | Callable[[CompletionRequest], ScriptStep]] | Callable[[CompletionRequest], ScriptStep]


def says(text: str, *calls: ToolCall) -> AssistantMessage:
    """Return a step that answers with text and optional tool calls."""
    return AssistantMessage(text=text, calls=calls)


def calls(tool: str, arguments: Mapping[str, object] | str | None = None, *, text: str = "") -> AssistantMessage:
    """Return a step that calls one tool."""
    return says(text, build_call(tool, arguments))


def build_call(tool: str, arguments: Mapping[str, object] | str | None = None) -> ToolCall:
    """Return one tool call for `says`; the model assigns its id. Arguments as text are sent unchanged."""
    written = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}), ensure_ascii=False)
    return ToolCall(id="", name=tool, arguments=written)


def cut_off_reply(text: str) -> CompletionResult:
    """Return an answer that ended at the token limit."""
    return CompletionResult(message=AssistantMessage(text=text), stop=StopReason.LENGTH)


def failing_reply(error: BaseException, *, after: str = "") -> FailingReply:
    """Return a step that fails with this error, after some text."""
    return FailingReply(error=error, after=after)


def hanging_reply(*, after: str = "") -> FailingReply:
    """Return a step that hangs, after some text."""
    return FailingReply(error=None, after=after)


class ScriptedModel:
    """Follows its script and records every request in `asked`; `pause` is the time between two pieces of text."""

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted:model",
        sees_images: bool = True,
        context_tokens: int | None = 200_000,
        pause: float = 0.0,
    ) -> None:
        self.follow_script(script)
        self._ids = itertools.count(1)
        self.name = name
        self.sees_images = sees_images
        self.context_tokens = context_tokens
        self._pause = pause
        self.asked: list[CompletionRequest] = []

    def follow_script(self, script: Script) -> None:
        """Continue with another script."""
        self._steps = itertools.repeat(script) if callable(script) else iter(script)

    async def stream(self, ask: CompletionRequest) -> AsyncIterator[StreamPiece]:
        self.asked.append(ask)
        match self._get_next_step(ask):
            case AssistantMessage() | CompletionResult() as said:
                async for piece in self._stream_answer(ask, _to_completion_result(said)):
                    yield piece
            case FailingReply(error=error, after=after):
                async for piece in self._stream_words(after):
                    yield piece
                if error is None:
                    await asyncio.Event().wait()
                else:
                    raise error
            case error:
                raise error

    async def _stream_answer(self, ask: CompletionRequest, answer: CompletionResult) -> AsyncIterator[StreamPiece]:
        async for piece in self._stream_words(answer.message.text):
            yield piece
        message = replace(answer.message, calls=tuple(self._ensure_call_id(each) for each in answer.message.calls))
        for each in message.calls:
            yield ToolCallStarted(tool=each.name)
        usage = answer.usage if answer.usage != TokenUsage() else _estimate_usage(ask, message)
        yield replace(answer, message=message, usage=usage)

    async def _stream_words(self, text: str) -> AsyncIterator[TextDelta]:
        for words in re.findall(r"\s*\S+\s*|\s+", text):
            await asyncio.sleep(self._pause)
            yield TextDelta(text=words)

    def _get_next_step(self, ask: CompletionRequest) -> ScriptStep:
        step = next(self._steps, None)
        if step is None:
            self._raise_because_script_ended()
        return step(ask) if callable(step) else step

    def _raise_because_script_ended(self) -> NoReturn:
        last = self.asked[-1].messages[-1] if self.asked[-1].messages else None
        raise HabitusError(
            f"{self.name} was asked once more after the {len(self.asked) - 1} steps of its script, with {last!r}"
        )

    def _ensure_call_id(self, asked: ToolCall) -> ToolCall:
        return asked if asked.id else replace(asked, id=f"call-{next(self._ids)}")


def _to_completion_result(said: AssistantMessage | CompletionResult) -> CompletionResult:
    if isinstance(said, CompletionResult):
        return said
    return CompletionResult(message=said, stop=StopReason.CALLS if said.calls else StopReason.END)


def _estimate_usage(ask: CompletionRequest, message: AssistantMessage) -> TokenUsage:
    """Estimate the usage as a provider would count it."""
    read = (
        estimate_tokens(ask.system)
        + sum(map(estimate_message_tokens, ask.messages))
        + sum(tool.tokens for tool in ask.tools)
    )
    return TokenUsage(input_tokens=read, output_tokens=estimate_message_tokens(message))


SCRIPT_PREFIX = "script:"


class ScriptFileStep(BaseModel):
    """One step of a script file."""

    model_config = ConfigDict(extra="forbid")

    say: str = ""
    call: str = ""
    arguments: dict[str, Any] = {}
    answer: Any = None
    fail: str = ""
    hang: bool = False

    def to_step(self) -> ScriptStep:
        if self.fail:
            return failing_reply(ProviderError(self.fail), after=self.say)
        if self.hang:
            return hanging_reply(after=self.say)
        if self.call:
            return says(self.say, build_call(self.call, self.arguments))
        return says(self.say if self.answer is None else json.dumps(self.answer, ensure_ascii=False))


class ScriptFile(BaseModel):
    """The content of a script file."""

    model_config = ConfigDict(extra="forbid")

    steps: list[ScriptFileStep]
    pause: float = Field(default=0.0, ge=0, le=60)


def open_script_model(name: str) -> ScriptedModel:
    """Open the model that `script:PATH` names, at its first step."""
    path = Path(name.removeprefix(SCRIPT_PREFIX)).expanduser()
    script = _read_script(path)
    return ScriptedModel(_iterate_steps(script, path), name=name, pause=script.pause)


def _iterate_steps(script: ScriptFile, path: Path) -> Iterator[Any]:
    def over(ask: CompletionRequest) -> ScriptStep:
        return ProviderError(f"The script {path.name} is over after {len(script.steps)} steps.")

    return itertools.chain((step.to_step() for step in script.steps), itertools.repeat(over))


def _read_script(path: Path) -> ScriptFile:
    try:
        read = json.loads(path.read_bytes())
        return ScriptFile.model_validate({"steps": read} if isinstance(read, list) else read)
    except FileNotFoundError:
        raise NotFound(f"There is no script {path}.", hint="Give the path of a JSON file: script:PATH.") from None
    except OSError as error:
        raise Invalid(f"Can't read the script {path}: {error.strerror}.", hint="Check the path.") from None
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"{path} is not a script: {describe_validation_error(error)}.",
            hint='Write a list like [{"say": "Hello."}].',
        ) from None
