"""More: tools, trying a request, the archive, the doctor; and taking back what was just done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, Response

from habitus.app import checking, explaining
from habitus.app.check_state import CheckState
from habitus.app.explaining import Prospect
from habitus.app.habitus import Habitus
from habitus.search.model import Hit
from habitus.skills.selection import Choice
from habitus.web.api.asking import Opened
from habitus.web.desks import desks_of
from habitus.web.rendering import Said, moment, notice, page
from habitus.web.words import TOOL_STATES, because, counted, who

router = APIRouter(include_in_schema=False)

_DOORS = (
    ("/chat", "Chat", "Talk to an agent that has your skills and lessons."),
    ("/more/try", "Try a request", "Which skills would an agent get for it, and why?"),
    ("/more/tools", "Tools", "Skills that are tested code."),
    ("/more/jobs", "Jobs", "Long work in the background, and how far it is."),
    ("/more/archive", "Archive", "Skills that were put away, and can be brought back."),
    ("/more/settings", "Settings", "What is set and where; pause all learning."),
    ("/more/secrets", "Secrets", "Passwords and keys by name, who may have them, and where they went."),
    ("/more/doctor", "Doctor", "What works on this machine, what is missing, and how to mend it."),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a plain list; `mark` with its `kind` stands at the end, `post` brings something back."""

    name: str
    text: str = ""
    note: str = ""
    href: str = ""
    mark: str = ""
    kind: str = ""
    post: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tried:
    """What a request would bring."""

    eager: tuple[Choice, ...]
    hits: tuple[Hit, ...]
    titles: Mapping[str, str]  # of the hits
    fits: bool
    offered: int
    cut: int
    room: int  # per cent that the list of names takes
    left_out: tuple[tuple[str, str], ...]


@router.get("/more")
def show(request: Request) -> HTMLResponse:
    return page(request, "more.html", doors=_DOORS)


@router.get("/more/try")
def try_request(request: Request, habitus: Opened) -> HTMLResponse:
    text = request.query_params.get("request", "")[:10_000]
    tried = _tried(habitus, text) if text.strip() else None
    return page(request, "playground.html", tried=tried, request_text=text)


def _tried(habitus: Habitus, text: str) -> Tried:
    seen: Prospect = explaining.prospect(habitus, explaining.request_of(habitus, text))
    eligible = seen.selection.eligible()
    found = habitus.finder.search(text, k=8, among=eligible)
    return Tried(
        eager=seen.selection.eager,
        hits=found.hits,
        titles={hit.id: _title(habitus, hit.id) for hit in found.hits},
        fits=found.fits,
        offered=len(seen.on_menu),
        cut=len(seen.cut),
        room=round(100 * seen.menu.tokens / seen.menu.budget) if seen.menu.budget else 0,
        left_out=tuple((name, because(reason)) for name, reason in sorted(seen.selection.left_out.items())),
    )


def _title(habitus: Habitus, name: str) -> str:
    item = habitus.skills.snapshot(look=False).by_name.get(name)
    return (item.summary.title if item is not None and item.summary is not None else "") or name


@router.get("/more/tools")
def tools(request: Request, habitus: Opened) -> HTMLResponse:
    found = habitus.tools.all()
    rows = [
        Line(
            name=tool.name,
            text=tool.description,
            note=tool.reason
            or f"{counted(tool.cases, 'test')}" + (f", passed {moment(tool.proved_on)}" if tool.proved_on else ""),
            href=f"/skills/{tool.name}?tab=code",
            mark=TOOL_STATES[tool.status][0],
            kind=TOOL_STATES[tool.status][1],
        )
        for tool in found
    ]
    lead = "What is done all the time can become a tool: code that passed its test before it existed."
    empty = "An agent makes a tool when it is asked to, and tests it first; code waits for your approval."
    return page(request, "table.html", title="Tools", lead=lead, rows=rows, empty=empty)


@router.get("/more/archive")
def archive(request: Request, habitus: Opened) -> HTMLResponse:
    return _archive(request, habitus)


def _archive(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    rows = [
        Line(
            name=one.title or one.name,
            text=f"{who(one.author)}: {one.author.reason or 'no reason given'}",
            note=f"Version {one.version}, {moment(one.archived_on)}",
            post=f"/more/archive/{one.id}",
        )
        for one in habitus.skills.archived()
    ]
    lead, empty = "Nothing is ever thrown away.", "Skills that you put away are kept here."
    return page(request, "table.html", said=said, title="Archive", lead=lead, rows=rows, empty=empty)


@router.post("/more/archive/{id}")
def restore(request: Request, habitus: Opened, id: int) -> HTMLResponse:
    name, layer = habitus.skills.restore(f"#{id}", habitus.person("restored"))
    said = Said(text=f"{name} is back.", undo=("skills", "remove", f"{name}@{layer}"))
    return _archive(request, habitus, said)


_CHECKS = {
    CheckState.OK: ("works", "good"),
    CheckState.PAUSED: ("paused", "warn"),
    CheckState.MISSING: ("missing", "warn"),
    CheckState.BROKEN: ("broken", "bad"),
}


@router.get("/more/doctor")
def doctor(request: Request, habitus: Opened) -> HTMLResponse:
    """What needs care first, then what works."""
    found = sorted(checking.doctor(habitus), key=lambda one: one.state is CheckState.OK)
    rows = [
        Line(name=one.name, text=one.detail, note=one.mend, mark=_CHECKS[one.state][0], kind=_CHECKS[one.state][1])
        for one in found
    ]
    lead = "What needs care stands first, with how to mend it."
    return page(request, "table.html", title="Doctor", lead=lead, rows=rows, empty="")


@router.post("/undo")
def undo(request: Request, habitus: Opened, undo: Annotated[list[str], Form()]) -> Response:
    """Take back what a notice spoke of; the page is then shown anew."""
    done = desks_of(request).take_back(habitus, undo)
    if done.kept:
        return notice(done.kept[0], "", HTTPStatus.CONFLICT)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Refresh": "true"})
