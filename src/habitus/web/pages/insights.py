"""Insights: what helps over time, what the menu costs, what is never used, what is confused; slow parts come later."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app.growth import insights
from habitus.web.api.asking import Opened
from habitus.web.rendering import fragment, page

router = APIRouter(include_in_schema=False)

_SHOWN = 20  # skills that are never used, and candidates


@router.get("/insights")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    unused, tried = insights.unused_skills(habitus), insights.tried_candidates(habitus)
    return page(
        request,
        "insights.html",
        menu=insights.menu_cost(habitus),
        unused=unused[:_SHOWN],
        unused_count=len(unused),
        tried=tried[:_SHOWN],
    )


@router.get("/insights/effects")
def effects(habitus: Opened) -> HTMLResponse:
    withhold = habitus.settings.evidence.withhold
    return fragment("insights_effects.html", effects=insights.effects(habitus), withhold=withhold)


@router.get("/insights/confusion")
def confusion(habitus: Opened) -> HTMLResponse:
    return fragment("insights_confusion.html", confusion=insights.confusion(habitus))
