"""Try a request: which skills an agent would get for it, and why."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app.library import explaining
from habitus.web.api.asking import Opened
from habitus.web.rendering import page

router = APIRouter(include_in_schema=False)


@router.get("/try")
def try_request(request: Request, habitus: Opened) -> HTMLResponse:
    text = request.query_params.get("request", "")[:10_000]
    tried = explaining.try_request(habitus, text) if text.strip() else None
    return page(request, "playground.html", tried=tried, request_text=text)
