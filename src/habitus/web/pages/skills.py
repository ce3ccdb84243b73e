"""The list of skills: search, filters, switches, and what is done to several at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse

from habitus.app.library.browsing import Row, browse
from habitus.app.use_cases import writing
from habitus.app.use_cases.skills import SkillList, used
from habitus.skills.model import Counters, Source, Stage, State
from habitus.web.api.asking import Opened
from habitus.web.rendering import Said, fragment, page
from habitus.web.words import counted

router = APIRouter(include_in_schema=False)

_PAGE = 50


def chosen(q: str = "", tag: str = "", source: str = "", stage: str = "", state: str = "") -> SkillList:
    """The filters of an address; one that nobody knows counts as none."""
    return SkillList(
        q=q[:1000],
        tag=tag,
        source=Source(source) if source in list(Source) else None,
        stage=Stage(stage) if stage in list(Stage) else None,
        state=State(state) if state in list(State) else None,
    )


Chosen = Annotated[SkillList, Depends(chosen)]


@router.get("/skills")
def list_skills(
    request: Request, habitus: Opened, filters: Chosen, limit: int = _PAGE, focus: bool = False
) -> HTMLResponse:
    return listed(request, habitus, filters, limit=max(1, min(limit, 10_000)), focus=focus)


def listed(
    request: Request,
    habitus: Opened,
    filters: SkillList,
    *,
    limit: int = _PAGE,
    focus: bool = False,
    said: Said | None = None,
) -> HTMLResponse:
    found = browse(habitus, replace(filters, limit=limit))
    given = {name: getattr(filters, name) or "" for name in ("q", "tag", "source", "stage", "state")}
    more = urlencode({**given, "limit": limit + _PAGE})
    return page(request, "skills.html", said=said, found=found, filters=given, more=more, focus=focus)


@router.post("/skills/{name}/switch")
def switch(habitus: Opened, name: str, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Of one row, which comes back as it is now."""
    done = writing.switch(habitus, [name], on=on)
    item = habitus.skills.find(name)
    counters = used(habitus.skills, [item]).get((item.layer, item.name), Counters())
    said = Said(text=f"{item.name} is {'on' if on else 'off'}.", undo=done.undo)
    return fragment("row.html", row=Row(item=item, counters=counters), said=said)


@router.post("/skills/bulk")
def bulk(
    request: Request,
    habitus: Opened,
    act: Annotated[str, Form()],
    names: Annotated[list[str] | None, Form()] = None,
    q: Annotated[str, Form()] = "",
    tag: Annotated[str, Form()] = "",
    source: Annotated[str, Form()] = "",
    stage: Annotated[str, Form()] = "",
    state: Annotated[str, Form()] = "",
) -> HTMLResponse:
    """Switch those that were chosen, or put them away."""
    said = _done_to(habitus, act, names or [])
    return listed(request, habitus, chosen(q, tag, source, stage, state), said=said)


def _done_to(habitus: Opened, act: str, names: list[str]) -> Said:
    if not names:
        return Said(text="Choose some skills first.", is_bad=True)
    if act == "away":
        gone = writing.remove(habitus, writing.SkillRemoval(names=tuple(names)))
        return Said(text=f"Put away: {counted(len(gone.skills), 'skill')}.", undo=gone.undo)
    done = writing.switch(habitus, names, on=act == "on")
    return Said(text=f"Switched {'on' if act == 'on' else 'off'}: {counted(len(names), 'skill')}.", undo=done.undo)
