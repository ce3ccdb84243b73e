"""Connections: where skills come from."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app.library.layers import places
from habitus.web.api.asking import Opened
from habitus.web.rendering import page

router = APIRouter(include_in_schema=False)


@router.get("/connections")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return page(request, "connections.html", places=places(habitus.skills))
