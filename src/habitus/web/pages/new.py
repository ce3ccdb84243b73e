"""New skills: written here, or uploaded, looked at, and then taken in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, UploadFile
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.library import updating, uploading
from habitus.app.library.updating import TakenIn
from habitus.app.use_cases import writing
from habitus.errors import Invalid
from habitus.jobs.model import Job
from habitus.skills import names
from habitus.skills.importing import Verdict
from habitus.web.api.asking import Opened, uploaded
from habitus.web.pages import jobs, skill, skills
from habitus.web.pages.drafts import Draft, Drafted
from habitus.web.rendering import Said, fragment, page
from habitus.web.words import counted, without_commands

router = APIRouter(include_in_schema=False)

_STEPS = """1. Say what to look at first, and how to tell that this fits.
2. Give the steps in order, with the decisions in them.
3. Say how to check the result, and what to do when the check fails.
"""


@router.get("/new")
def show(request: Request) -> HTMLResponse:
    return page(request, "new.html", draft=Draft(body=_STEPS))


@router.post("/new/write")
def write(request: Request, habitus: Opened, draft: Drafted) -> HTMLResponse:
    """Save it under a name made from its title."""
    title = draft.texts["title"]
    if not title:
        raise Invalid("The skill has no title.", mend="Say in a few words what it is about.")
    name = names.unique_name(names.slugify(title), habitus.skills.is_taken)
    made = writing.new(habitus, writing.SkillDraft(name=name, body=draft.body, **draft.given))
    answer = skill.shown_page(request, habitus, made.name, said=Said(text="Saved.", undo=made.undo))
    answer.headers["HX-Push-Url"] = f"/skills/{made.name}"
    return answer


@router.post("/new/look")
def look(habitus: Opened, file: UploadFile) -> HTMLResponse:
    """What is in a file, before anything of it is saved."""
    return fragment("looked.html", looked=uploading.look(habitus.skills, habitus.screening, uploaded(file)))


@router.post("/new/take")
def take(
    request: Request, habitus: Opened, file: UploadFile, overwrite: Annotated[bool, Form()] = False
) -> HTMLResponse:
    taken = uploading.take(habitus, uploaded(file), overwrite=overwrite)
    if isinstance(taken, Job):
        answer = jobs.shown(
            request, habitus, Said(text="It is large: a worker takes it in, and you see here how far it is.")
        )
        answer.headers["HX-Push-Url"] = "/automation"
        return answer
    return _taken(request, habitus, taken)


@router.post("/new/add")
def add(request: Request, habitus: Opened, source: Annotated[str, Form(max_length=2_000)]) -> HTMLResponse:
    """Fetch from an address and take in."""
    if not source.strip():
        raise Invalid("No address was given.", mend="Give https://… or OWNER/REPO.")
    return _taken(request, habitus, updating.add_from_web(habitus, source.strip()))


def _taken(request: Request, habitus: Habitus, taken: TakenIn) -> HTMLResponse:
    held = sum(result.verdict is Verdict.HELD for result in taken.results)
    refused = [result for result in taken.results if result.verdict is Verdict.REFUSED]
    told = [f"Saved: {counted(len(taken.new_skills), 'skill')}."]
    told += [f"Waiting for you: {held}."] if held else []
    told += [f"Left out: {refused[0].name} ({without_commands(refused[0].reason)})."] if refused else []
    said = Said(text=" ".join(told), undo=taken.undo, is_bad=bool(refused) and not taken.new_skills)
    answer = skills.listed(request, habitus, skills.chosen(), said=said)
    answer.headers["HX-Push-Url"] = "/skills"
    return answer
