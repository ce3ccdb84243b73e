"""How long a provider is waited for, and when it is asked again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from habitus.errors import HabitusError


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """Time-outs and retries. A request is asked again only while nothing of its answer has been handed on."""

    silence: float = 300.0  # seconds without a word
    total: float = 1800.0  # seconds for one answer, every attempt of it included
    attempts: int = 4
    first_pause: float = 1.0  # doubled each time
    longest_pause: float = 60.0  # a provider that asks for more is not waited for
    spread: Callable[[], float] = random.random  # so that many clients don't come back together

    def pause(self, fault: Fault, attempt: int) -> float | None:
        """Seconds to wait before the next attempt; none when there is to be no other."""
        if not fault.is_passing or attempt >= self.attempts:
            return None
        if fault.retry_after is not None:
            return fault.retry_after if fault.retry_after <= self.longest_pause else None
        longest = min(self.first_pause * 2.0 ** (attempt - 1), self.longest_pause)
        return longest * (0.5 + 0.5 * self.spread())


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What went wrong, in our words, and whether it may be different in a moment."""

    error: HabitusError
    is_passing: bool = False
    retry_after: float | None = None  # seconds, where the provider said


class TooSilent(Exception):
    """Nothing came for this many seconds."""

    def __init__(self, seconds: float, *, is_final: bool) -> None:
        self.seconds = seconds
        self.is_final = is_final
        super().__init__(f"no word for {seconds:g} seconds")


class Watch:
    """Runs from the first attempt to the last word."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._end = asyncio.get_running_loop().time() + patience.total

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """What is awaited inside is cancelled when it takes too long."""
        left = self._end - asyncio.get_running_loop().time()
        is_final = left <= self._patience.silence
        try:
            async with asyncio.timeout(max(0.0, min(left, self._patience.silence))) as limit:
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            seconds = self._patience.total if is_final else self._patience.silence
            raise TooSilent(seconds, is_final=is_final) from error
