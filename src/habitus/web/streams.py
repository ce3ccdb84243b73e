"""Server-sent events that change an open page, and the middleware that ends them on shutdown."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from fastapi.responses import StreamingResponse
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from habitus.errors import HabitusError
from habitus.text import replace_surrogates

log = logging.getLogger(__name__)


class LiveUpdateAction(StrEnum):
    """How the browser's `live-part` element applies an update."""

    # Appended to the text so far.
    TEXT = "text"
    # Added as an element, replacing the one with the same id.
    PART = "part"
    # Replaces the element itself, which stops listening.
    OVER = "over"
    # The data changed: the page fetches its live parts.
    CHANGED = "changed"


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveUpdate:
    """One update of an open page."""

    mode: LiveUpdateAction
    data: str
    # The event id from which a reconnecting browser continues.
    number: int = 0


def make_event_stream_response(updates: AsyncIterator[LiveUpdate]) -> StreamingResponse:
    """Return the updates as a response of server-sent events."""

    async def lines() -> AsyncIterator[str]:
        async for one in yield_until_error(updates):
            yield f"id: {one.number}\nevent: {one.mode}\ndata: {json.dumps(replace_surrogates(one.data))}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")


T = TypeVar("T")


async def yield_until_error(events: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield events until one raises; the browser reconnects and then gets the error as a response."""
    try:
        async for one in events:
            yield one
    except HabitusError as error:
        log.debug("A stream ended: %s", error)


class StreamEndingMiddleware:
    """Middleware that ends open streams when the server stops, because clients would hold it open for ever.

    Other requests in progress get their response. It also keeps proxies from buffering streams.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: set[asyncio.Task[object]] = set()
        self._is_over = False

    def end_streams(self) -> None:
        """Cancel all open streams, and those that start later."""
        self._is_over = True
        for task in self._open:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            is_stream = message["type"] == "http.response.start" and _is_event_stream(message)
            if is_stream:
                # nginx reads it.
                MutableHeaders(scope=message)["X-Accel-Buffering"] = "no"
            await send(message)
            if is_stream and scope["method"] == "GET":
                self._open.add(task)
                if self._is_over:
                    task.cancel()

        try:
            await self._app(scope, receive, watch)
        except asyncio.CancelledError:
            if task not in self._open or not self._is_over:
                raise
            # The cancellation was ours and is handled, so the server must not see the task as cancelled.
            task.uncancel()
            await send({"type": "http.response.body"})
        finally:
            self._open.discard(task)


def _is_event_stream(started: Message) -> bool:
    return Headers(raw=started["headers"]).get("content-type", "").startswith("text/event-stream")
