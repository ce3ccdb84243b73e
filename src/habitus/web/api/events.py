"""REST streams: the progress of a job and the events of a running turn, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import Query
from starlette.responses import StreamingResponse

from habitus.access import Access
from habitus.app.conversations.chat_events import TurnEnd
from habitus.app.operating import jobs
from habitus.jobs.model import Job
from habitus.web.api.schemas import RequestConversations, RequestHome, to_json_value
from habitus.web.routing import AccessRouter
from habitus.web.streams import yield_until_error

router = AccessRouter(tags=["events"])


@router.get("/jobs/{id}/events", access=Access.VIEWER, response_class=StreamingResponse)
async def stream_job_events(habitus: RequestHome, id: str) -> StreamingResponse:
    """Stream a job's progress as server-sent events, one JSON per change, until the job ends."""
    changes = jobs.watch_jobs(habitus, id)
    # An unknown job must be answered with 404, which is only possible before the stream starts.
    first = await anext(changes)

    async def told_on() -> AsyncIterator[str]:
        async with aclosing(changes):
            yield _format_job_event(first[0])
            async for found in yield_until_error(changes):
                yield _format_job_event(found[0])

    return StreamingResponse(told_on(), media_type="text/event-stream")


def _format_job_event(job: Job) -> str:
    return f"event: {job.state}\ndata: {json.dumps(to_json_value(job))}\n\n"


@router.get("/sessions/{id}/events", access=Access.VIEWER, response_class=StreamingResponse)
async def stream_turn_events(
    talks: RequestConversations, id: str, after: Annotated[int, Query(ge=0, le=10**9)] = 0
) -> StreamingResponse:
    """Stream the events of the running turn as server-sent events, one JSON each, until it ends; `after` skips some."""
    # An unknown conversation must be answered with 404, which is only possible before the stream starts.
    first = await talks.wait_for_events(id, after)

    async def told_on() -> AsyncIterator[str]:
        number, heard = after, first
        while True:
            for happening in heard:
                number += 1
                data = {"kind": type(happening).__name__, **to_json_value(happening)}
                yield f"id: {number}\nevent: {data['kind']}\ndata: {json.dumps(data)}\n\n"
                if isinstance(happening, TurnEnd):
                    return
            heard = await talks.wait_for_events(id, number)

    return StreamingResponse(told_on(), media_type="text/event-stream")
