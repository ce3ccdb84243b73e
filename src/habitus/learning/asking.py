"""Asking a model for learning: one call within the tokens of the day, which counts whatever becomes of it."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel

from habitus.learning.spending import Spending
from habitus.llm.model import Asked, Model, NoUsableAnswer, Text
from habitus.llm.structured import Structured, ask_for
from habitus.text import tokens

T = TypeVar("T", bound=BaseModel)

ATTEMPTS = 2
PATIENCE_S = 60.0


async def ask_within(
    spending: Spending, model: Model, kind: type[T], *, system: str, record: str, room: int, patience_s: float
) -> Structured[T]:
    """One value of `kind`; `CapReached`, `ProviderFault`, `NoUsableAnswer` and `TimeoutError` go through."""
    # In a thread: a database that somebody keeps busy must not hold up the turn that runs meanwhile.
    reserved = await asyncio.to_thread(spending.reserve, worst_case(system, record, room))
    used = 0
    try:
        async with asyncio.timeout(patience_s):
            answer = await ask_for(
                model,
                kind,
                system=system,
                messages=(Asked(parts=(Text(text=record),)),),
                max_tokens=room,
                attempts=ATTEMPTS,
            )
        used = answer.usage.input_tokens + answer.usage.output_tokens or estimate(system, record, room)
    except NoUsableAnswer as error:
        used = error.usage.input_tokens + error.usage.output_tokens or estimate(system, record, room)
        raise
    except (TimeoutError, asyncio.CancelledError):
        used = estimate(system, record, room)  # it was read, and nobody will say what it took
        raise
    finally:
        await asyncio.to_thread(spending.settle, reserved, used)
    return answer


def estimate(system: str, record: str, room: int) -> int:
    """About the tokens that one call takes: what is read, and a short answer."""
    return tokens(system + record) + room // 4


def worst_case(system: str, record: str, room: int) -> int:
    """What a call may take when the first answer is of no use: read twice, and three times the room."""
    return 2 * (tokens(system + record) * 4 // 3 + 500) + 3 * room
