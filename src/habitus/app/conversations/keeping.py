"""Keeping conversations open, and whatever else is opened once under a key: the one keeper for all who have some."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(slots=True)
class _Place(Generic[T]):
    """Whoever opens or closes something here holds the lock."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    thing: T | None = None


class Keeper(Generic[K, T]):
    """On one event loop. Of more than `most` the idle one that was silent longest is closed."""

    def __init__(
        self, close: Callable[[T], Awaitable[None]], *, most: int, is_idle: Callable[[T], bool] = lambda thing: True
    ) -> None:
        self._close = close
        self._most = most
        self._is_idle = is_idle
        self._places: OrderedDict[K, _Place[T]] = OrderedDict()

    def get(self, key: K) -> T | None:
        """What is open under a key, whoever holds it."""
        place = self._places.get(key)
        return None if place is None else place.thing

    def open(self) -> dict[K, T]:
        return {key: place.thing for key, place in self._places.items() if place.thing is not None}

    @asynccontextmanager
    async def hold(self, key: K, opening: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """For one caller at a time, opened where it is not; who waited while it was closed has it opened anew."""
        async with self._hold(key) as place:
            if place.thing is None:
                try:
                    place.thing = await opening()
                except BaseException:
                    self._places.pop(key)
                    raise
            yield place.thing

    @asynccontextmanager
    async def _hold(self, key: K) -> AsyncIterator[_Place[T]]:
        while True:
            place = self._places.setdefault(key, _Place())
            async with place.lock:
                if self._places.get(key) is place:
                    self._places.move_to_end(key)
                    yield place
                    return

    async def make_room(self) -> None:
        while len(self._places) > self._most:
            idle = next((key for key, place in self._places.items() if self._may_go(place)), None)
            if idle is None:
                return
            await self.end(idle)

    def _may_go(self, place: _Place[T]) -> bool:
        return not place.lock.locked() and (place.thing is None or self._is_idle(place.thing))

    async def end(self, key: K) -> None:
        """Close what is open under a key."""
        if key not in self._places:
            return
        async with self._hold(key) as place:
            try:
                if place.thing is not None:
                    await self._close(place.thing)
            finally:
                self._places.pop(key)

    async def close(self) -> None:
        async with AsyncExitStack() as closing:  # one that fails keeps nothing else open
            for key in list(self._places):
                closing.push_async_callback(self.end, key)
