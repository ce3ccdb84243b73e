"""New skills, written here."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app.use_cases import writing
from habitus.errors import Invalid
from habitus.skills import names
from habitus.web.api.asking import Opened
from habitus.web.pages import skill
from habitus.web.pages.drafts import Draft, Drafted
from habitus.web.rendering import Said, page

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
    made = writing.new(habitus, writing.SkillDraft(name=name, body=draft.body, **draft.given_fields))
    answer = skill.shown_page(request, habitus, made.name, said=Said(text="Saved.", undo=made.undo))
    answer.headers["HX-Push-Url"] = f"/skills/{made.name}"
    return answer
