"""Jobs: what was left to a worker, how far it is while it runs, ending it and trying it again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse
from starlette.responses import StreamingResponse

from habitus.app import Habitus
from habitus.app.work import jobs
from habitus.app.work.job_kinds import KINDS
from habitus.app.work.scheduling import scheduled
from habitus.jobs.model import Job
from habitus.jobs.queue import JobQueue
from habitus.web.api.asking import Opened
from habitus.web.rendering import Said, page, part
from habitus.web.streams import Happened, Put, streamed

router = APIRouter(include_in_schema=False)

_SHOWN = 50


@router.get("/more/jobs")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    with jobs.opened_queue(habitus) as queue:
        return _shown(request, habitus, queue)


def _shown(request: Request, habitus: Habitus, queue: JobQueue, said: Said | None = None) -> HTMLResponse:
    found = queue.all(limit=_SHOWN)
    is_live = not all(job.state.is_over for job in found)
    planned = scheduled(habitus, queue)
    return page(request, "jobs.html", said=said, jobs=found, is_live=is_live, kinds=KINDS, planned=planned)


@router.get("/more/jobs/live")
async def live(habitus: Opened) -> StreamingResponse:
    """The list whenever something about it changes, until everything is done."""
    return streamed(_followed(habitus))


async def _followed(habitus: Habitus) -> AsyncIterator[Happened]:
    async with aclosing(jobs.follow(habitus)) as changes:
        async for found in changes:
            is_over = all(job.state.is_over for job in found)
            yield Happened(put=Put.OVER if is_over else Put.WHOLE, data=_listed(found[:_SHOWN]))
            if is_over:
                return


def _listed(found: Sequence[Job]) -> str:
    return part("jobs_list.html", jobs=found)


@router.post("/more/jobs")
def add(
    request: Request, habitus: Opened, kind: Annotated[str, Form()], words: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Leave something to a worker; several files stand on lines of their own."""
    with jobs.opened_queue(habitus) as queue:
        jobs.leave(habitus.settings, queue, kind, [line.strip() for line in words.splitlines() if line.strip()])
        return _shown(request, habitus, queue, Said(text="It is left to the next worker that is free."))


@router.post("/more/jobs/{id}/cancel")
def cancel(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _changed(request, habitus, lambda queue: queue.cancel(id), "It ends before its next part.")


@router.post("/more/jobs/{id}/retry")
def retry(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _changed(request, habitus, lambda queue: queue.retry(id), "It goes on where it had come to.")


def _changed(request: Request, habitus: Habitus, change: Callable[[JobQueue], Job], told: str) -> HTMLResponse:
    with jobs.opened_queue(habitus) as queue:
        change(queue)
        return _shown(request, habitus, queue, Said(text=told))
