"""Streams: what happens while a page is open, as server-sent events that put their HTML into it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum

from fastapi.responses import StreamingResponse

from habitus.text import encodable


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


def streamed(happened: AsyncIterator[Happened]) -> StreamingResponse:
    async def lines() -> AsyncIterator[str]:
        async for one in happened:
            yield f"id: {one.number}\nevent: {one.put}\ndata: {json.dumps(encodable(one.data))}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
