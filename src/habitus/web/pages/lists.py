"""Plain lists: tools, the archive, and the doctor's checks."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.operating import checking
from habitus.app.operating.doctor import HealthCheckResult, HealthCheckState
from habitus.app.use_cases import writing
from habitus.text import format_quantity
from habitus.web.api.schemas import RequestHome
from habitus.web.labels import CHECK_PAGES, TOOL_STATES, capitalise_first, describe_author, get_doctor_check_label
from habitus.web.rendering import FlashMessage, format_timestamp, render_page
from habitus.web.routing import AccessRouter
from habitus.web.site_map import remove_cli_commands, replace_commands_by_pages

router = AccessRouter()


@dataclass(frozen=True, kw_only=True, slots=True)
class ListRow:
    """A row of a plain list with a coloured badge; `restore_path` adds a button that restores it."""

    name: str
    text: str = ""
    note: str = ""
    href: str = ""
    badge: str = ""
    badge_kind: str = ""
    restore_path: str = ""


@router.get("/tools", access=Access.OPEN_READING)
def show_tools(request: Request, habitus: RequestHome) -> HTMLResponse:
    """Show the tested tools."""
    found = habitus.tools.all()
    rows = [
        ListRow(
            name=tool.name,
            text=tool.description,
            note=remove_cli_commands(tool.reason)
            or f"{format_quantity(tool.cases, 'test')}"
            + (f", passed {format_timestamp(tool.proved_on)}" if tool.proved_on else ""),
            href=f"/skills/{tool.name}?tab=code",
            badge=TOOL_STATES[tool.status][0],
            badge_kind=TOOL_STATES[tool.status][1],
        )
        for tool in found
    ]
    lead = "Recurring work can become a tool: tested code that agents call by name."
    empty = "Tools that agents create appear here. Ask an agent to create one; its code needs your review."
    return render_page(
        request, "table.html", title="Tools", lead=lead, rows=rows, empty=empty, todo=("/chat", "Ask an agent")
    )


@router.get("/archive", access=Access.OPEN_READING)
def show_archive(request: Request, habitus: RequestHome) -> HTMLResponse:
    return _render_archive(request, habitus)


def _render_archive(request: Request, habitus: Habitus, said: FlashMessage | None = None) -> HTMLResponse:
    rows = [
        ListRow(
            name=one.title or one.name,
            text=f"{describe_author(one.author)}: {one.author.reason or 'no reason given'}",
            note=f"Version {one.version}, {format_timestamp(one.archived_on)}",
            restore_path=f"/archive/{one.id}",
        )
        for one in habitus.skills.list_archived()
    ]
    lead, empty = "Archived skills are kept and can be restored.", "Skills that you archive appear here."
    return render_page(
        request,
        "table.html",
        said=said,
        title="Archive",
        lead=lead,
        rows=rows,
        empty=empty,
        todo=("/skills", "Show skills"),
    )


@router.post("/archive/{id}", access=Access.ADMIN)
def restore_archived_skill(request: Request, habitus: RequestHome, id: int) -> HTMLResponse:
    done = writing.restore_skill(habitus, name=f"#{id}")
    return _render_archive(request, habitus, FlashMessage(text=f"{done.name} was restored.", undo=done.undo))


_CHECK_BADGES = {
    HealthCheckState.OK: ("works", "good"),
    HealthCheckState.PAUSED: ("paused", "warn"),
    HealthCheckState.MISSING: ("missing", "warn"),
    HealthCheckState.BROKEN: ("broken", "bad"),
}


@router.get("/doctor", access=Access.VIEWER)
def show_doctor(request: Request, habitus: RequestHome) -> HTMLResponse:
    """Show the checks that need attention; the others are folded."""
    found = checking.run_doctor(habitus)
    care = [_make_check_row(one) for one in found if one.state is not HealthCheckState.OK]
    works = [_make_check_row(one) for one in found if one.state is HealthCheckState.OK]
    return render_page(request, "doctor.html", care=care, works=works)


def _make_check_row(one: HealthCheckResult) -> ListRow:
    mark, kind = _CHECK_BADGES[one.state]
    return ListRow(
        name=get_doctor_check_label(one.name),
        text=capitalise_first(one.detail),
        note=f"Fix: {replace_commands_by_pages(one.hint)}" if one.hint else "",
        href=CHECK_PAGES.get(one.name, "") if one.hint else "",
        badge=mark,
        badge_kind=kind,
    )
