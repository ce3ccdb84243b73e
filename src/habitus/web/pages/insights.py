"""Insights: what is known to help, and what does harm."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.web import charts
from habitus.web.api.asking import Opened
from habitus.web.rendering import page

router = APIRouter(include_in_schema=False)


@router.get("/insights")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    found = [one for one in habitus.evidence.findings().items if one.item.kind == "skill"]
    return page(request, "insights.html", findings=found, drawn=charts.of_skills(found))
