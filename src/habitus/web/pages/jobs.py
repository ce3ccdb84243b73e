"""Automation: schedules and jobs with their progress. Import: skills from a file, an address or another agent."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Form, Request, UploadFile
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.library import importing, uploading
from habitus.app.operating.job_kinds import JOB_KINDS
from habitus.app.use_cases import agents
from habitus.app.use_cases import jobs as cases
from habitus.errors import Invalid
from habitus.jobs.model import Job
from habitus.settings import DAYS
from habitus.skills.sources.importing import ImportVerdict
from habitus.text import format_quantity
from habitus.web.api.schemas import RequestHome, read_upload
from habitus.web.rendering import FlashMessage, render_fragment, render_page
from habitus.web.routing import LARGE_BODY_BYTES, AccessRouter

router = AccessRouter()
_MAX_SHOWN_JOBS = 50


@router.get("/automation", access=Access.VIEWER)
def show_automation(request: Request, habitus: RequestHome) -> HTMLResponse:
    return render_automation(request, habitus)


def render_automation(request: Request, habitus: Habitus, said: FlashMessage | None = None) -> HTMLResponse:
    """Return the automation page."""
    found = cases.list_jobs(habitus, done=True, limit=_MAX_SHOWN_JOBS).jobs
    planned = cases.list_schedules(habitus).schedule
    may_name_files = habitus.host.files.is_granted
    kinds = {name: kind for name, kind in JOB_KINDS.items() if may_name_files or (0 in kind.takes and not kind.reads)}
    workers = cases.list_workers(habitus).workers if request.state.access >= Access.ADMIN else ()
    given: dict[str, Any] = {"jobs": found, "kinds": kinds, "planned": planned, "days": DAYS}
    return render_page(request, "jobs.html", said=said, workers=workers, may_name_files=may_name_files, **given)


@router.post("/automation", access=Access.ADMIN)
def add_job(
    request: Request, habitus: RequestHome, kind: Annotated[str, Form()], words: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Queue a job; each line of the text is one argument."""
    given = tuple(line.strip() for line in words.splitlines() if line.strip())
    cases.add_job(habitus, kind=kind, arguments=given)
    return render_automation(request, habitus, FlashMessage(text="Queued for the next free worker."))


@router.post("/automation/schedule/{kind}", access=Access.ADMIN)
def reschedule_job(
    request: Request, habitus: RequestHome, kind: str, how: Annotated[str, Form()], at: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Set when a kind of job starts: off, hourly, daily or on a weekday."""
    when = how if how in ("off", "hourly") else f"{how if how == 'daily' else f'weekly on {how}'} at {at or '03:00'}"
    done = cases.set_schedule(habitus, kind=kind, schedule=when)
    return render_automation(request, habitus, FlashMessage(text="Saved.", undo=done.undo))


@router.post("/automation/{id}/cancel", access=Access.ADMIN)
def cancel_job(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    cases.cancel_job(habitus, id=id)
    return render_automation(request, habitus, FlashMessage(text="Cancelling; it stops before its next part."))


@router.post("/automation/{id}/retry", access=Access.ADMIN)
def retry_job(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    cases.retry_job(habitus, id=id)
    return render_automation(request, habitus, FlashMessage(text="Queued again; it continues where it stopped."))


# The most import results that are listed.
_MAX_RESULT_ROWS = 500


@router.get("/import", access=Access.VIEWER)
def show_import(request: Request, habitus: RequestHome) -> HTMLResponse:
    return _render_import(request, habitus)


def _render_import(request: Request, habitus: Habitus, taken: importing.ImportResult | None = None) -> HTMLResponse:
    is_owner = request.state.access is Access.OWNER
    folders = agents.list_agent_skill_folders(habitus).folders if is_owner else ()
    said = (
        None if taken is None else FlashMessage(text=_describe_import(taken), undo=taken.undo, is_bad=taken.is_failed)
    )
    return render_page(request, "import.html", said=said, taken=taken, folders=folders, most=_MAX_RESULT_ROWS)


def _describe_import(taken: importing.ImportResult) -> str:
    held = sum(result.verdict is ImportVerdict.HELD for result in taken.results)
    told = [f"Saved: {format_quantity(len(taken.imported_skill_names), 'skill')}."]
    return " ".join([*told, f"Need review: {held}."] if held else told)


@router.post("/import/look", access=Access.ADMIN, max_bytes=LARGE_BODY_BYTES)
def preview_import(habitus: RequestHome, file: UploadFile) -> HTMLResponse:
    """Preview the skills in an uploaded file without saving anything."""
    return render_fragment(
        "looked.html", looked=uploading.preview_upload(habitus.skills, habitus.screening, read_upload(file))
    )


@router.post("/import/take", access=Access.ADMIN, max_bytes=LARGE_BODY_BYTES)
def import_upload(
    request: Request,
    habitus: RequestHome,
    file: UploadFile,
    overwrite: Annotated[bool, Form()] = False,
    all_but_held: Annotated[bool, Form()] = False,
) -> HTMLResponse:
    """Import an uploaded file; a large one becomes a job, shown on the automation page."""
    taken = uploading.import_upload(habitus, read_upload(file), overwrite=overwrite, skip_held=all_but_held)
    if isinstance(taken, Job):
        said = FlashMessage(text="The file is large: a worker imports it. Its progress appears here.")
        answer = render_automation(request, habitus, said)
        answer.headers["HX-Push-Url"] = "/automation"
        return answer
    return _render_import(request, habitus, taken)


@router.post("/import/address", access=Access.ADMIN)
def import_from_address(
    request: Request, habitus: RequestHome, source: Annotated[str, Form(max_length=2_000)]
) -> HTMLResponse:
    """Import skills from an address or a repository."""
    if not source.strip():
        raise Invalid("No address given.", hint="Enter https://… or OWNER/REPO.")
    return _render_import(request, habitus, importing.import_for_remote_caller(habitus, source.strip()))


@router.post("/import/agent/{agent}", access=Access.ADMIN)
def import_from_agent(request: Request, habitus: RequestHome, agent: str) -> HTMLResponse:
    """Import the skills in an agent's own folders on this machine."""
    return _render_import(request, habitus, agents.import_agent_skills(habitus, agent=agent))
