"""REST that streams: how far a job is, and what happens in the turn that runs, as server-sent events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated

from fastapi import Query
from starlette.responses import StreamingResponse

from habitus.access import Access
from habitus.app.conversations.talking import Over
from habitus.app.operating import jobs
from habitus.jobs.model import Job
from habitus.web.api.requests_and_answers import Opened, Talking, as_json
from habitus.web.routing import Router
from habitus.web.streams import until_error

router = Router(tags=["events"])


@router.get("/jobs/{id}/events", access=Access.VIEWER, response_class=StreamingResponse)
async def job_events(habitus: Opened, id: str) -> StreamingResponse:
    """How far it is, a JSON each time that changes as server-sent events, until it is over."""
    changes = jobs.follow(habitus, id)
    first = await anext(changes)  # one that is not there is said before anything is sent

    async def told_on() -> AsyncIterator[str]:
        async with aclosing(changes):
            yield _job_event(first[0])
            async for found in until_error(changes):
                yield _job_event(found[0])

    return StreamingResponse(told_on(), media_type="text/event-stream")


def _job_event(job: Job) -> str:
    return f"event: {job.state}\ndata: {json.dumps(as_json(job))}\n\n"


@router.get("/sessions/{id}/events", access=Access.VIEWER, response_class=StreamingResponse)
async def turn_events(talks: Talking, id: str, after: Annotated[int, Query(ge=0, le=10**9)] = 0) -> StreamingResponse:
    """What happens in the turn that runs, a JSON each as server-sent events, until it is over; `after` skips some."""
    first = await talks.events_since(id, after)  # one that is not there is said before anything is sent

    async def told_on() -> AsyncIterator[str]:
        number, heard = after, first
        while True:
            for happening in heard:
                number += 1
                data = {"kind": type(happening).__name__, **as_json(happening)}
                yield f"id: {number}\nevent: {data['kind']}\ndata: {json.dumps(data)}\n\n"
                if isinstance(happening, Over):
                    return
            heard = await talks.events_since(id, number)

    return StreamingResponse(told_on(), media_type="text/event-stream")
