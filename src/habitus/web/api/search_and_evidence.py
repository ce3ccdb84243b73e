"""REST for requests: what search finds, what would reach an agent and why, and what is known to help."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from habitus.agent.choosing import Why
from habitus.app import json_shapes
from habitus.app.learning import insights, learning
from habitus.app.learning.insights import Fared
from habitus.app.learning.learning import Repeated
from habitus.app.library import explaining
from habitus.app.use_cases import declaration, overview
from habitus.evidence.findings import Finding, Rollback
from habitus.search.model import Hit, Results, results_as_json
from habitus.tools.model import CodeTool, Retired
from habitus.web.api.requests_and_answers import (
    After,
    AsMade,
    Json,
    Lesson,
    Limit,
    Opened,
    Waiting,
    answer,
    as_json,
    many,
    page_of,
)

router = APIRouter(tags=["requests"], route_class=AsMade)

Asked = Annotated[str, Query(max_length=10_000, description="What somebody would ask.")]


Reasoned = answer("Reasoned", name=str, reason=str)
Selected = answer(
    "Selection",
    eager=many(Reasoned),
    menu=list[str],
    cut=list[str],
    left_out=many(Reasoned),
    menu_tokens=int,
    menu_budget=int,
    drops_memory=bool,
    drops_persona=bool,
    ranks=tuple[Hit, ...],
    fits=bool,
)
FirstLook = answer(
    "FirstLook",
    waiting=many(Waiting),
    new_skills=list[str],
    new_lessons=many(Lesson),
    broken=many(Reasoned),
    worse=tuple[Rollback, ...],
    failing=many(Reasoned),
)


@router.get("/search", response_model=answer("Found", Results, without=("hits",), results=tuple[Hit, ...]))
def search(habitus: Opened, q: Asked, limit: Limit = 10) -> Json:
    """The skills that fit a request best, each with what its score is made of."""
    answer: Json = as_json(results_as_json(habitus.finder.search(q, k=limit)))
    return answer


@router.get("/select", response_model=Selected)
def select(habitus: Opened, request: Asked) -> Json:
    """What would reach an agent for a request: in full, by name, or not at all, each with its reason; and of what it
    may open, what fits best."""
    seen = explaining.prospect(habitus, explaining.request_of(habitus, request))
    answer: Json = as_json(json_shapes.prospect(seen, explaining.best_of(habitus.finder, seen, request)))
    return answer


@router.get("/skills/{name}/why", response_model=answer("WhyNot", Why, sentences=list[str]))
def why(habitus: Opened, name: str, request: Asked) -> Json:
    """Why one skill would, or would not, reach an agent for a request."""
    answer: Json = as_json(json_shapes.why(explaining.why(habitus, name, explaining.request_of(habitus, request))))
    return answer


@router.get("/today", response_model=FirstLook)
def first_look(habitus: Opened) -> Json:
    """What to look at first: what waits, what is new this week, what is broken."""
    found = overview.today(habitus)
    return {
        "waiting": [as_json(item.as_json()) for item in found.waiting],
        "new_skills": [summary.name for summary in found.new_skills],
        "new_lessons": [as_json(engram.as_json()) for engram in found.new_lessons],
        "broken": [{"name": item.name, "reason": as_json(item.reason)} for item in found.broken],
        "worse": as_json(found.worse),
        "failing": [{"name": tool.name, "reason": as_json(tool.reason)} for tool in found.failing],
    }


@router.get("/failing", response_model=answer("Failing", failing=tuple[Repeated, ...]))
def failing(habitus: Opened) -> Json:
    """What fails again and again in conversations, and what helped against it."""
    return {"failing": as_json(learning.repeated_failures(habitus))}


@router.get(
    "/skills/{name}/evidence",
    response_model=answer("SkillEvidence", Fared, without=("findings",), items=tuple[Finding, ...]),
)
def evidence_of(habitus: Opened, name: str) -> Json:
    """The same of each version of one skill, the newest first, and its uses version by version and week by week."""
    found = insights.record_of(habitus, habitus.skills.find(name))
    return {"items": as_json(found.findings), "versions": as_json(found.versions), "weeks": as_json(found.weeks)}


@router.get("/tools", response_model=page_of("tools", CodeTool, retired=tuple[Retired, ...]))
def tools(habitus: Opened, limit: Limit = 100, after: After = "") -> Json:
    """The skills that are tested code, and whether each may run; with those that were retired."""
    page = declaration.page_of("tools", habitus.tools.all(), lambda tool: tool.name, limit=limit, after=after)
    retired = habitus.tools.list_retired()
    return {"tools": as_json(page.items), "retired": as_json(retired), "next": page.next, "total": page.total}
