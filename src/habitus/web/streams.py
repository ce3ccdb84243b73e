"""Streams: what happens while a page is open, as server-sent events that put their HTML into it; and ending them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from fastapi.responses import StreamingResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from habitus.errors import HabitusError
from habitus.text import encodable

log = logging.getLogger(__name__)


class Put(StrEnum):
    """Where the data goes in the `live-part` that listens."""

    TEXT = "text"  # behind the text so far
    PART = "part"  # a part of its own, instead of the one with its id
    WHOLE = "whole"  # all of it anew
    OVER = "over"  # in place of the whole, which listens no longer


@dataclass(frozen=True, kw_only=True, slots=True)
class Happened:
    put: Put
    data: str
    number: int = 0  # where a listener that lost the line goes on


def stream_events(happened: AsyncIterator[Happened]) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async for one in until_error(happened):
            yield f"id: {one.number}\nevent: {one.put}\ndata: {json.dumps(encodable(one.data))}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


T = TypeVar("T")


async def until_error(told: AsyncIterator[T]) -> AsyncIterator[T]:
    """Events until there can be no more: whoever listens comes again, and then hears why not."""
    try:
        async for one in told:
            yield one
    except HabitusError as error:
        log.debug("A stream ended: %s", error)


class Ending:
    """Stands before an application and ends its streams when the server stops: who listens would hold it up for ever.

    Whoever is being answered otherwise gets their answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: set[asyncio.Task[object]] = set()
        self._is_over = False

    def end(self) -> None:
        self._is_over = True
        for task in self._open:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or scope["method"] != "GET" or task is None:
            await self._app(scope, receive, send)
            return

        async def watch(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start" and _is_stream(message):
                self._open.add(task)
                if self._is_over:
                    task.cancel()

        try:
            await self._app(scope, receive, watch)
        except asyncio.CancelledError:
            if task not in self._open or not self._is_over:
                raise
            task.uncancel()
            await send({"type": "http.response.body"})
        finally:
            self._open.discard(task)


def _is_stream(started: Message) -> bool:
    return Headers(raw=started["headers"]).get("content-type", "").startswith("text/event-stream")
