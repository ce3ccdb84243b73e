"""Asking the person who is there, where somebody is there to be asked."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum


class Consent(StrEnum):
    YES = "yes"
    NO = "no"
    LATER = "later"  # it waits in the review queue
    ALWAYS = "always for this project"  # yes, and whoever asks the same there need not ask again


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is about to happen, and what it looks like in full."""

    text: str
    detail: str = ""
    choices: tuple[Consent, ...] = (Consent.YES, Consent.NO, Consent.LATER)


AskPerson = Callable[[Question], Awaitable[Consent]]


class TimedPerson:
    """Somebody who is asked, and how long they took to answer so far: that is nobody else's time."""

    def __init__(self, ask: AskPerson) -> None:
        self._ask = ask
        self.took_s = 0.0

    async def __call__(self, question: Question) -> Consent:
        began = time.monotonic()
        try:
            return await self._ask(question)
        finally:
            self.took_s += time.monotonic() - began


async def nobody(question: Question) -> Consent:
    """Nobody is there: what needs a person waits for one."""
    return Consent.LATER
