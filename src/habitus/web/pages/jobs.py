"""Automation: schedules and jobs with their progress. Import: skills from a file, an address or another agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Form, Request, UploadFile
from fastapi.responses import HTMLResponse
from starlette.responses import StreamingResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.library import updating, uploading
from habitus.app.library.updating import TakenIn
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import KINDS
from habitus.app.use_cases import agents
from habitus.app.use_cases import jobs as cases
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.jobs import JobList, NewJob, NewTimes, OneJob
from habitus.errors import Invalid
from habitus.jobs.model import Job
from habitus.settings import DAYS
from habitus.skills.sources.importing import Verdict
from habitus.text import count_of
from habitus.web.api.requests_and_answers import Opened, read_upload
from habitus.web.rendering import Said, fragment, page, part
from habitus.web.routing import LARGE, Router
from habitus.web.streams import Happened, Put, stream_events

router = Router()
_SHOWN = 50


@router.get("/automation", access=Access.VIEWER)
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return show_page(request, habitus)


def show_page(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    """Return the automation page."""
    found = cases.list_jobs(habitus, JobList(done=True, limit=_SHOWN)).jobs
    is_live = not all(job.state.is_over for job in found)
    planned = cases.list_scheduled(habitus, Nothing()).schedule
    kinds = {name: kind for name, kind in KINDS.items() if not (habitus.settings.is_guest and 0 not in kind.takes)}
    given: dict[str, Any] = {"jobs": found, "is_live": is_live, "kinds": kinds, "planned": planned, "days": DAYS}
    return page(request, "jobs.html", said=said, is_guest=habitus.settings.is_guest, **given)


@router.get("/automation/live", access=Access.VIEWER)
async def live(habitus: Opened) -> StreamingResponse:
    """Stream the job list on each change until all jobs are done.

    An offline snapshot has no jobs: the page keeps its content and asks again.
    """
    if habitus.is_stand_in:
        return stream_events(_no_change())
    changes = jobs.follow(habitus)
    # The first item is awaited here, so an error is sent as a response and not inside the stream.
    return stream_events(_render_changes(await anext(changes), changes))


async def _no_change() -> AsyncIterator[Happened]:
    # An async generator needs a yield, even one that is never reached.
    nothing: Sequence[Happened] = ()
    for one in nothing:
        yield one


async def _render_changes(first: Sequence[Job], more: AsyncGenerator[Sequence[Job], None]) -> AsyncIterator[Happened]:
    """Yield the job list on each change, and a last time when all jobs are done."""
    async with aclosing(more):
        found = first
        while not all(job.state.is_over for job in found):
            yield Happened(put=Put.WHOLE, data=_render_list(found[:_SHOWN]))
            found = await anext(more)
        yield Happened(put=Put.OVER, data=_render_list(found[:_SHOWN]))


def _render_list(found: Sequence[Job]) -> str:
    return part("jobs_list.html", jobs=found)


@router.post("/automation", access=Access.ADMIN)
def add(
    request: Request, habitus: Opened, kind: Annotated[str, Form()], words: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Queue a job; each line of the text is one argument."""
    given = tuple(line.strip() for line in words.splitlines() if line.strip())
    cases.add(habitus, NewJob(kind=kind, words=given))
    return show_page(request, habitus, Said(text="It is left to the next worker that is free."))


@router.post("/automation/schedule/{kind}", access=Access.ADMIN)
def reschedule(
    request: Request, habitus: Opened, kind: str, how: Annotated[str, Form()], at: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Set when a kind of job starts: off, hourly, daily or on a weekday."""
    when = how if how in ("off", "hourly") else f"{how if how == 'daily' else f'weekly on {how}'} at {at or '03:00'}"
    done = cases.set_schedule(habitus, NewTimes(kind=kind, when=when))
    return show_page(request, habitus, Said(text="Saved.", undo=done.undo))


@router.post("/automation/{id}/cancel", access=Access.ADMIN)
def cancel(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    cases.cancel(habitus, OneJob(id=id))
    return show_page(request, habitus, Said(text="It ends before its next part."))


@router.post("/automation/{id}/retry", access=Access.ADMIN)
def retry(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    cases.retry(habitus, OneJob(id=id))
    return show_page(request, habitus, Said(text="It goes on where it had come to."))


# The most import results that are listed.
_ROWS = 500


@router.get("/import", access=Access.VIEWER)
def show_import(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_page(request, habitus)


def _show_page(request: Request, habitus: Habitus, taken: TakenIn | None = None) -> HTMLResponse:
    is_owner = request.state.access is Access.OWNER
    folders = agents.list_folders(habitus, Nothing()).folders if is_owner else ()
    said = None if taken is None else Said(text=_describe_import(taken), undo=taken.undo, is_bad=taken.is_failed)
    return page(request, "import.html", said=said, taken=taken, folders=folders, most=_ROWS)


def _describe_import(taken: TakenIn) -> str:
    held = sum(result.verdict is Verdict.HELD for result in taken.results)
    told = [f"Saved: {count_of(len(taken.new_skills), 'skill')}."]
    return " ".join([*told, f"Waiting for you: {held}."] if held else told)


@router.post("/import/look", access=Access.ADMIN, max_bytes=LARGE)
def look(habitus: Opened, file: UploadFile) -> HTMLResponse:
    """Preview the skills in an uploaded file without saving anything."""
    return fragment("looked.html", looked=uploading.look(habitus.skills, habitus.screening, read_upload(file)))


@router.post("/import/take", access=Access.ADMIN, max_bytes=LARGE)
def take(
    request: Request, habitus: Opened, file: UploadFile, overwrite: Annotated[bool, Form()] = False
) -> HTMLResponse:
    """Import an uploaded file; a large one becomes a job, shown on the automation page."""
    taken = uploading.take(habitus, read_upload(file), overwrite=overwrite)
    if isinstance(taken, Job):
        said = Said(text="It is large: a worker takes it in, and you see here how far it is.")
        answer = show_page(request, habitus, said)
        answer.headers["HX-Push-Url"] = "/automation"
        return answer
    return _show_page(request, habitus, taken)


@router.post("/import/address", access=Access.ADMIN)
def add_from_address(request: Request, habitus: Opened, source: Annotated[str, Form(max_length=2_000)]) -> HTMLResponse:
    """Import skills from an address or a repository."""
    if not source.strip():
        raise Invalid("No address was given.", hint="Give https://… or OWNER/REPO.")
    return _show_page(request, habitus, updating.add_from_web(habitus, source.strip()))


@router.post("/import/agent/{agent}", access=Access.ADMIN)
def take_from_agent(request: Request, habitus: Opened, agent: str) -> HTMLResponse:
    """Import the skills in an agent's own folders on this machine."""
    return _show_page(request, habitus, agents.take_in(habitus, agents.OneAgent(agent=agent)))
