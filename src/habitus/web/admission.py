"""Limits how many requests are worked on at once."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from weakref import WeakKeyDictionary

from starlette.types import ASGIApp, Receive, Scope, Send

# Python runs one thread at a time. With a thread for every waiting client, each call of the database hands the
# interpreter to all the others first, and whoever holds a lock keeps everybody waiting for that long.
_MAX_AT_ONCE = 3
# A request that takes longer waits for something else, such as a model or a repository: it makes room.
_SLOT_S = 0.25


class AdmissionMiddleware:
    """Middleware that begins few requests at once, in the order of their arrival; a slow one gives up its slot."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # A semaphore belongs to one event loop: a server has one, a test client one for each request.
        self._slots = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        slots = self._slots.setdefault(loop, asyncio.Semaphore(_MAX_AT_ONCE))
        await slots.acquire()
        with ExitStack() as held:
            held.callback(slots.release)
            timer = loop.call_later(_SLOT_S, held.close)
            held.callback(timer.cancel)
            await self._app(scope, receive, send)
