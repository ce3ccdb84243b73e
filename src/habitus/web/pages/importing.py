"""Import: skills from a file or a folder, an address, or the folders of agents here; and what became of each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, UploadFile
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.declaring import Nothing
from habitus.app.library import updating, uploading
from habitus.app.library.updating import TakenIn
from habitus.app.use_cases import agents
from habitus.errors import Invalid
from habitus.jobs.model import Job
from habitus.skills.importing import Verdict
from habitus.web.api.asking import Opened, read_upload
from habitus.web.pages import jobs
from habitus.web.rendering import Said, fragment, page
from habitus.web.words import count_of

router = APIRouter(include_in_schema=False)

_ROWS = 500  # of what became of each


@router.get("/import")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_page(request, habitus)


def _show_page(request: Request, habitus: Habitus, taken: TakenIn | None = None) -> HTMLResponse:
    is_owner = not habitus.settings.is_guest and request.state.may_change
    folders = agents.list_folders(habitus, Nothing()).folders if is_owner else ()
    said = None if taken is None else Said(text=_describe_import(taken), undo=taken.undo, is_bad=taken.is_refused)
    return page(request, "import.html", said=said, taken=taken, folders=folders, most=_ROWS)


def _describe_import(taken: TakenIn) -> str:
    held = sum(result.verdict is Verdict.HELD for result in taken.results)
    told = [f"Saved: {count_of(len(taken.new_skills), 'skill')}."]
    return " ".join([*told, f"Waiting for you: {held}."] if held else told)


@router.post("/import/look")
def look(habitus: Opened, file: UploadFile) -> HTMLResponse:
    """What is in a file, before anything of it is saved."""
    return fragment("looked.html", looked=uploading.look(habitus.skills, habitus.screening, read_upload(file)))


@router.post("/import/take")
def take(
    request: Request, habitus: Opened, file: UploadFile, overwrite: Annotated[bool, Form()] = False
) -> HTMLResponse:
    taken = uploading.take(habitus, read_upload(file), overwrite=overwrite)
    if isinstance(taken, Job):
        said = Said(text="It is large: a worker takes it in, and you see here how far it is.")
        answer = jobs.show_page(request, habitus, said)
        answer.headers["HX-Push-Url"] = "/automation"
        return answer
    return _show_page(request, habitus, taken)


@router.post("/import/address")
def add(request: Request, habitus: Opened, source: Annotated[str, Form(max_length=2_000)]) -> HTMLResponse:
    """Fetch from an address and take in."""
    if not source.strip():
        raise Invalid("No address was given.", mend="Give https://… or OWNER/REPO.")
    return _show_page(request, habitus, updating.add_from_web(habitus, source.strip()))


@router.post("/import/agent/{agent}")
def take_from_agent(request: Request, habitus: Opened, agent: str) -> HTMLResponse:
    """What an agent has in folders of its own on this machine."""
    return _show_page(request, habitus, agents.take_in(habitus, agents.OneAgent(agent=agent)))
