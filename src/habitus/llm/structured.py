"""Structured answers: requested by schema, validated, and requested again if they are invalid."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from habitus.llm.model import (
    AssistantMessage,
    ChatMessage,
    CompletionRequest,
    CompletionResult,
    Model,
    PersonMessage,
    StopReason,
    TextContent,
    TokenUsage,
    UnusableAnswerError,
    fetch_answer,
)
from habitus.text import load_prompt

T = TypeVar("T", bound=BaseModel)

DEFAULT_MAX_TOKENS = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StructuredAnswer(Generic[T]):
    """A validated value, with the usage of all attempts."""

    value: T
    # Of all attempts.
    usage: TokenUsage


async def ask_structured(
    model: Model,
    answer_type: type[T],
    *,
    system: str,
    messages: tuple[ChatMessage, ...],
    max_tokens: int = DEFAULT_MAX_TOKENS,
    attempts: int = 3,
) -> StructuredAnswer[T]:
    """Return one value of `answer_type`; raise UnusableAnswerError with the usage after `attempts` failures.

    An invalid answer is requested again with its problems, a truncated one with twice the token limit.
    """
    schema: Mapping[str, object] = answer_type.model_json_schema()
    most = max(max_tokens, model.context_tokens or max_tokens * 2**attempts)
    room, usage, problem = max_tokens, TokenUsage(), "it was never asked"
    correction: tuple[ChatMessage, ...] = ()
    for _ in range(attempts):
        ask = CompletionRequest(system=system, messages=(*messages, *correction), max_tokens=room, schema=schema)
        got = await fetch_answer(model, ask)
        usage += got.usage
        try:
            return StructuredAnswer(value=answer_type.model_validate(_extract_json(got.message.text)), usage=usage)
        except (ValueError, RecursionError) as error:
            problem = describe_validation_error(error)
        if got.stop is not StopReason.LENGTH:
            correction = _build_correction_messages(got, problem)
            continue
        problem = f"the answer was cut off after {room} tokens"
        if room == most:
            break
        room = min(room * 2, most)
    raise UnusableAnswerError(f"{model.name} gave a malformed answer: {problem}", usage=usage)


def _build_correction_messages(got: CompletionResult, problem: str) -> tuple[ChatMessage, ...]:
    """Return the invalid answer and its problems as messages."""
    # Only the last attempt, to keep the request from growing.
    said = (AssistantMessage(text=got.message.text),) if got.message.text.strip() else ()
    return (
        *said,
        PersonMessage(parts=(TextContent(text=load_prompt("llm", "answer-again").format(problems=problem)),)),
    )


_FENCED = re.compile(r"```[A-Za-z]*\s*\n(.*?)\n?\s*```", re.DOTALL)


def _extract_json(text: str) -> object:
    """Return the JSON of an answer: all of it, the content of a code fence, or the object inside prose."""
    if not text.strip():
        raise ValueError("the answer is empty")
    fenced = _FENCED.search(text)
    candidates = (text, fenced[1] if fenced else "", text[text.find("{") : text.rfind("}") + 1])
    problems = []
    for candidate in filter(None, candidates):
        try:
            return json.loads(candidate)
        except ValueError as error:
            problems.append(error)
    if "{" not in text:
        raise ValueError("the answer is plain text where JSON was asked for")
    raise ValueError(f"the answer is not JSON: {problems[0]}")


MAX_PROBLEMS = 8


def describe_validation_error(error: Exception) -> str:
    """Describe a validation error in one line."""
    if not isinstance(error, ValidationError):
        return str(error) or type(error).__name__
    found = [
        # Pydantic names the class there, which is a word of ours.
        f"{'.'.join(map(str, each['loc'])) or 'the answer'}: "
        f"{'Input should be a JSON object' if each['type'] == 'model_type' else each['msg']}"
        for each in error.errors()
    ]
    return "; ".join(found[:MAX_PROBLEMS])
