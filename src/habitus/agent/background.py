"""Work beside the event loop: single steps in threads, tasks that outlive a reply, and a loop in its own thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from habitus.errors import Invalid

log = logging.getLogger(__name__)

T = TypeVar("T")

CLOSING_S = 20.0


async def run_in_thread(step: Callable[[], T]) -> T:
    """Run a blocking step in a thread and return its result. A cancellation waits for the step to end."""
    work = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        # Without the shield the thread would go on unobserved and could change the database after the turn ended.
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            await asyncio.wait([work])
        raise


class BackgroundTasks:
    """Tasks that go on after a reply; failures are logged."""

    def __init__(self, *, closing_s: float = CLOSING_S) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing_s = closing_s

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._discard_ended_task_and_log_failure)

    def _discard_ended_task_and_log_failure(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("Work in the background failed; nothing else is affected.", exc_info=error)

    async def wait_until_idle(self) -> None:
        """Wait for all running tasks, however long they take."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def close(self) -> None:
        """Wait a limited time for running tasks, then cancel them."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._closing_s)
        for task in set(self._tasks):
            log.warning("Work in the background took too long and was stopped.")
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=5.0)


class EventLoopThread:
    """An event loop in its own thread, started on first use."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run_and_wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and return its result. An interrupt of the caller cancels it."""
        # Waiting for the loop on its own thread would block it forever.
        if threading.current_thread() is self._thread:
            work.close()
            raise Invalid("A turn can't wait for itself.", hint="Call it from another thread, or use 'async with'.")
        running = self._start_loop_and_submit_coroutine(work)
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and await its result from another event loop."""
        return await asyncio.wrap_future(self._start_loop_and_submit_coroutine(work))

    def close(self) -> None:
        """Stop the loop, cancelling its tasks, and wait for the thread."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            self._is_closed = True
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()

    def _start_loop_and_submit_coroutine(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self._is_closed:
                work.close()
                raise Invalid("This Habitus is closed.", hint="Open it again: Habitus.open().")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run_event_loop_until_stopped, args=(self._loop,), name=self._name, daemon=True
                )
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work, self._loop)


def _run_event_loop_until_stopped(loop: asyncio.AbstractEventLoop) -> None:
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
