"""REST for work that is left to a worker: what there is and how far it is, leaving it, ending it, trying it again."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from habitus.app import jobs
from habitus.app.once import once
from habitus.jobs.model import Job, Priority
from habitus.web.api.answers import answer
from habitus.web.api.asking import Body, Json, Limit, Line, OnceKey, Opened, told

router = APIRouter(prefix="/jobs", tags=["jobs"])


class NewJob(Body):
    kind: Line
    words: tuple[Line, ...] = Field(default=(), description="What it is about, as on the command line.")
    tokens: int | None = Field(default=None, ge=0, le=10**12, description="What it may spend on models.")
    priority: Priority = Priority.NORMAL


@router.get("", response_model=answer("Jobs", jobs=list[Job]))
def list_jobs(habitus: Opened, limit: Limit = 100) -> Json:
    """Jobs and how far they are, the newest first."""
    with jobs.opened_queue(habitus) as queue:
        return {"jobs": told(queue.all(limit=limit))}


@router.post("", status_code=201, response_model=answer("LeftJob", id=str))
def leave(habitus: Opened, wanted: NewJob, key: OnceKey = "") -> Json:
    """Leave something to the next worker that is free."""

    def make() -> Json:
        with jobs.opened_queue(habitus) as queue:
            words, priority = wanted.words, wanted.priority
            return {"id": jobs.leave(habitus, queue, wanted.kind, words, tokens=wanted.tokens, priority=priority)}

    return once(habitus, key, ["jobs", wanted.model_dump(mode="json")], make)


@router.get("/{id}", response_model=Job)
def show(habitus: Opened, id: str) -> Json:
    """One of them."""
    with jobs.opened_queue(habitus) as queue:
        return _told(queue.get(id))


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
