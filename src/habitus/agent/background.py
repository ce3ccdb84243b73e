"""Work beside the event loop: a step in a thread, and tasks that go on after a reply until their session closes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSING_S = 20.0


async def in_thread(step: Callable[[], T]) -> T:
    """What a step that looks into a database or a disk comes to. A cancel waits for it, so that none is left behind."""
    work = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            await asyncio.wait([work])
        raise


class Background:
    def __init__(self, *, closing_s: float = CLOSING_S) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing_s = closing_s

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("Work in the background failed; nothing else is affected.", exc_info=error)

    async def settle(self) -> None:
        """Wait for what runs, as long as it takes."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Wait for what runs, then cancel it."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._closing_s)
        for task in set(self._tasks):
            log.warning("Work in the background took too long and was stopped.")
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5.0)
