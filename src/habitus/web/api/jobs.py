"""REST for jobs that are followed: how far one is, as it changes. `app/use_cases/jobs.py` declares the rest."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.responses import StreamingResponse

from habitus.access import Access
from habitus.app.operating import jobs
from habitus.jobs.model import Job
from habitus.web.api.requests_and_answers import Opened, as_json
from habitus.web.routing import Router
from habitus.web.streams import until_error

router = Router(tags=["jobs"])


@router.get("/jobs/{id}/events", access=Access.VIEWER, response_class=StreamingResponse)
async def events(habitus: Opened, id: str) -> StreamingResponse:
    """How far it is, a JSON each time that changes as server-sent events, until it is over."""
    changes = jobs.follow(habitus, id)
    first = await anext(changes)  # one that is not there is said before anything is sent

    async def told_on() -> AsyncIterator[str]:
        async with aclosing(changes):
            yield _event(first[0])
            async for found in until_error(changes):
                yield _event(found[0])

    return StreamingResponse(told_on(), media_type="text/event-stream")


def _event(job: Job) -> str:
    return f"event: {job.state}\ndata: {json.dumps(as_json(job))}\n\n"
