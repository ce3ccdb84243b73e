"""Today, the first page: what to look at first."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app.growth.remedies import repeated
from habitus.app.review.today import today
from habitus.web.api.asking import Opened
from habitus.web.rendering import fragment, page

router = APIRouter(include_in_schema=False)


@router.get("/")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return page(request, "today.html", today=today(habitus))


@router.get("/failing")
def failing(habitus: Opened) -> HTMLResponse:
    """What fails again and again; the page asks for it when it stands, because many conversations are read for it."""
    return fragment("today_failing.html", failing=repeated(habitus))
