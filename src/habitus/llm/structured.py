"""Structured answers: requested by schema, validated, and requested again if they are invalid."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from habitus.llm.model import (
    Answer,
    Answered,
    Ask,
    Asked,
    Message,
    Model,
    NoUsableAnswer,
    StopReason,
    Text,
    Usage,
    answer,
)
from habitus.text import prompt_text

T = TypeVar("T", bound=BaseModel)

ROOM = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Structured(Generic[T]):
    """A validated value, with the usage of all attempts."""

    value: T
    # Of all attempts.
    usage: Usage


async def ask_for(
    model: Model,
    kind: type[T],
    *,
    system: str,
    messages: tuple[Message, ...],
    max_tokens: int = ROOM,
    attempts: int = 3,
) -> Structured[T]:
    """Return one value of `answer_type`; raise UnusableAnswerError with the usage after `attempts` failures.

    An invalid answer is requested again with its problems, a truncated one with twice the token limit.
    """
    schema: Mapping[str, object] = kind.model_json_schema()
    most = max(max_tokens, model.context_tokens or max_tokens * 2**attempts)
    room, usage, problem = max_tokens, Usage(), "it was never asked"
    correction: tuple[Message, ...] = ()
    for _ in range(attempts):
        ask = Ask(system=system, messages=(*messages, *correction), max_tokens=room, schema=schema)
        got = await answer(model, ask)
        usage += got.usage
        try:
            return Structured(value=kind.model_validate(_json_of(got.message.text)), usage=usage)
        except (ValueError, RecursionError) as error:
            problem = describe_problems(error)
        if got.stop is not StopReason.LENGTH:
            correction = _correction(got, problem)
            continue
        problem = f"the answer was cut off after {room} tokens"
        if room == most:
            break
        room = min(room * 2, most)
    raise NoUsableAnswer(f"{model.name} gave no usable {kind.__name__}: {problem}", usage=usage)


def _correction(got: Answer, problem: str) -> tuple[Message, ...]:
    """Return the invalid answer and its problems as messages."""
    # Only the last attempt, to keep the request from growing.
    said = (Answered(text=got.message.text),) if got.message.text.strip() else ()
    return (*said, Asked(parts=(Text(text=prompt_text("llm", "answer-again").format(problems=problem)),)))


_FENCED = re.compile(r"```[A-Za-z]*\s*\n(.*?)\n?\s*```", re.DOTALL)


def _json_of(text: str) -> object:
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
    raise ValueError(f"the answer is not JSON: {problems[0]}")


MOST_PROBLEMS = 8


def describe_problems(error: Exception) -> str:
    """Describe a validation error in one line."""
    if not isinstance(error, ValidationError):
        return str(error) or type(error).__name__
    found = [f"{'.'.join(map(str, each['loc'])) or 'the answer'}: {each['msg']}" for each in error.errors()]
    return "; ".join(found[:MOST_PROBLEMS])
