"""REST for work that is left to a worker: what there is and how far it is, leaving it, ending it, trying it again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import StreamingResponse

from habitus.app.operation.once import Attempt, once
from habitus.app.work import jobs
from habitus.app.work.scheduling import Scheduled, scheduled
from habitus.jobs.model import Job, Priority
from habitus.web.api.answers import answer, page_of
from habitus.web.api.asking import After, Body, Json, Limit, Line, OnceKey, Opened, paged, told

router = APIRouter(prefix="/jobs", tags=["jobs"])


class NewJob(Body):
    kind: Line
    words: tuple[Line, ...] = Field(default=(), description="What it is about, as on the command line.")
    tokens: int | None = Field(default=None, ge=0, le=10**12, description="What it may spend on models.")
    priority: Priority = Priority.NORMAL


@router.get("", response_model=page_of("jobs", Job))
def list_jobs(habitus: Opened, limit: Limit = 100, after: After = "") -> Json:
    """Jobs and how far they are, the newest first."""
    with jobs.opened_queue(habitus) as queue:
        around, page = paged("jobs", queue.ids(), str, limit, after)
        return {"jobs": told(queue.some(page)), **around}


@router.get("/planned", response_model=answer("PlannedJobs", planned=tuple[Scheduled, ...]))
def planned(habitus: Opened) -> Json:
    """What starts by itself, and when."""
    with jobs.opened_queue(habitus) as queue:
        return {"planned": told(scheduled(habitus, queue))}


@router.post("", status_code=201, response_model=answer("LeftJob", id=str))
def leave(habitus: Opened, wanted: NewJob, key: OnceKey = "") -> Json:
    """Leave something to the next worker that is free."""

    def make(attempt: Attempt) -> Json:
        with jobs.opened_queue(habitus) as queue:
            id = jobs.leave(
                habitus.settings,
                queue,
                wanted.kind,
                wanted.words,
                tokens=wanted.tokens,
                priority=wanted.priority,
                id=attempt.id,
            )
            return {"id": id}

    return once(habitus, key, ["jobs", wanted.model_dump(mode="json")], make)


@router.get("/{id}", response_model=Job)
def show(habitus: Opened, id: str) -> Json:
    """One of them."""
    with jobs.opened_queue(habitus) as queue:
        return _told(queue.get(id))


@router.get("/{id}/events", response_class=StreamingResponse)
async def events(habitus: Opened, id: str) -> StreamingResponse:
    """How far it is, a JSON each time that changes as server-sent events, until it is over."""
    changes = jobs.follow(habitus, id)
    first = await anext(changes)  # one that is not there is said before anything is sent

    async def told_on() -> AsyncIterator[str]:
        async with aclosing(changes):
            yield _event(first[0])
            async for found in changes:
                yield _event(found[0])

    return StreamingResponse(told_on(), media_type="text/event-stream")


def _event(job: Job) -> str:
    return f"event: {job.state}\ndata: {json.dumps(told(job))}\n\n"


@router.post("/{id}/cancel", response_model=Job)
def cancel(habitus: Opened, id: str) -> Json:
    """End it before its next part."""
    with jobs.opened_queue(habitus) as queue:
        return _told(queue.cancel(id))


@router.post("/{id}/retry", response_model=Job)
def retry(habitus: Opened, id: str) -> Json:
    """Let it go on where it had come to."""
    with jobs.opened_queue(habitus) as queue:
        return _told(queue.retry(id))


def _told(job: Job) -> Json:
    answer: Json = told(job)
    return answer
