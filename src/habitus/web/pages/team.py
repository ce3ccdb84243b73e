"""Team: who may sign in besides the owner, and as what."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app.operation.people import open_people
from habitus.web.api.asking import Opened
from habitus.web.rendering import page

router = APIRouter(include_in_schema=False)


@router.get("/team")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return page(request, "team.html", people=open_people(habitus).list())
