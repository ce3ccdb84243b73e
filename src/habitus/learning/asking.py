"""Asking a model for learning: one value of a shape, within a budget and before patience ends."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel

from habitus.learning.budget import BudgetedModel
from habitus.llm.model import Asked, Text
from habitus.llm.structured import ask_for

T = TypeVar("T", bound=BaseModel)

ATTEMPTS = 2
PATIENCE_S = 60.0


async def ask_within(
    model: BudgetedModel, kind: type[T], *, system: str, record: str, room: int, patience_s: float | None = PATIENCE_S
) -> T:
    """One value of `kind`; `CapReached`, `ProviderFault`, `NoUsableAnswer` and `TimeoutError` go through."""
    messages = (Asked(parts=(Text(text=record),)),)
    async with asyncio.timeout(patience_s):
        asked = await ask_for(model, kind, system=system, messages=messages, max_tokens=room, attempts=ATTEMPTS)
    return asked.value
