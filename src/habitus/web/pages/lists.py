"""Plain lists: tools, the archive, and the doctor's checks."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.operating import checking
from habitus.app.operating.doctor import Check, CheckState
from habitus.app.use_cases import writing
from habitus.text import count_of
from habitus.web.api.requests_and_answers import Opened
from habitus.web.rendering import Said, format_timestamp, page
from habitus.web.routing import Router
from habitus.web.site_map import without_commands, without_terminal
from habitus.web.words import CHECK_PAGES, TOOL_STATES, check, who

router = Router()


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A row of a plain list with a coloured badge; `restore_path` adds a button that restores it."""

    name: str
    text: str = ""
    note: str = ""
    href: str = ""
    mark: str = ""
    kind: str = ""
    post: str = ""


@router.get("/tools", access=Access.OPEN_READING)
def tools(request: Request, habitus: Opened) -> HTMLResponse:
    """Show the tested tools."""
    found = habitus.tools.all()
    rows = [
        Line(
            name=tool.name,
            text=tool.description,
            note=without_commands(tool.reason)
            or f"{count_of(tool.cases, 'test')}"
            + (f", passed {format_timestamp(tool.proved_on)}" if tool.proved_on else ""),
            href=f"/skills/{tool.name}?tab=code",
            mark=TOOL_STATES[tool.status][0],
            kind=TOOL_STATES[tool.status][1],
        )
        for tool in found
    ]
    lead = "What is done all the time can become a tool: code that passed its test before it existed."
    empty = "What agents made into tested code stands here. Ask one for it; code waits for your approval."
    return page(request, "table.html", title="Tools", lead=lead, rows=rows, empty=empty, todo=("/chat", "Ask an agent"))


@router.get("/archive", access=Access.OPEN_READING)
def archive(request: Request, habitus: Opened) -> HTMLResponse:
    return _archive(request, habitus)


def _archive(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    rows = [
        Line(
            name=one.title or one.name,
            text=f"{who(one.author)}: {one.author.reason or 'no reason given'}",
            note=f"Version {one.version}, {format_timestamp(one.archived_on)}",
            post=f"/archive/{one.id}",
        )
        for one in habitus.skills.list_archived()
    ]
    lead, empty = "Nothing is ever thrown away.", "Skills that you put away stand here, and can be brought back."
    return page(
        request,
        "table.html",
        said=said,
        title="Archive",
        lead=lead,
        rows=rows,
        empty=empty,
        todo=("/skills", "To the skills"),
    )


@router.post("/archive/{id}", access=Access.ADMIN)
def restore(request: Request, habitus: Opened, id: int) -> HTMLResponse:
    done = writing.restore(habitus, writing.ArchivedName(name=f"#{id}"))
    return _archive(request, habitus, Said(text=f"{done.name} is back.", undo=done.undo))


_CHECKS = {
    CheckState.OK: ("works", "good"),
    CheckState.PAUSED: ("paused", "warn"),
    CheckState.MISSING: ("missing", "warn"),
    CheckState.BROKEN: ("broken", "bad"),
}


@router.get("/doctor", access=Access.VIEWER)
def doctor(request: Request, habitus: Opened) -> HTMLResponse:
    """Show the checks that need attention; the others are folded."""
    found = checking.doctor(habitus)
    care = [_line(one) for one in found if one.state is not CheckState.OK]
    works = [_line(one) for one in found if one.state is CheckState.OK]
    return page(request, "doctor.html", care=care, works=works)


def _line(one: Check) -> Line:
    mark, kind = _CHECKS[one.state]
    return Line(
        name=check(one.name),
        text=one.detail,
        note=without_terminal(one.hint),
        href=CHECK_PAGES.get(one.name, "") if one.hint else "",
        mark=mark,
        kind=kind,
    )
