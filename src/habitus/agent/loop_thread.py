"""An event loop in a thread of its own, for callers that have none or another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from habitus.errors import Invalid

T = TypeVar("T")


class LoopThread:
    """Started when first used, once. Work that is handed in runs there, one step at a time, whoever waits for it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work comes to. A caller who is interrupted cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise Invalid("A turn can't wait for itself.", mend="Call it from another thread, or use 'async with'.")
        running = self._begun(work)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for a caller with a loop of its own, which goes on meanwhile."""
        return await asyncio.wrap_future(self._begun(work))

    def close(self) -> None:
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            self._is_closed = True
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _begun(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._is_closed:
                work.close()
                raise Invalid("This Habitus is closed.", mend="Open it again: Habitus.open().")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
