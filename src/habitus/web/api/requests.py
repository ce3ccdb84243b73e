"""REST for requests: what search finds, what would reach an agent and why, and the state of the whole."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Query

from habitus.agent.explaining import Why
from habitus.app import checking, configuring, explaining, faring, json_of, remedies, secrets, taking_back, today
from habitus.app.check_state import Check
from habitus.app.faring import Fared
from habitus.app.remedies import Repeated
from habitus.evidence.findings import Finding, Findings
from habitus.evidence.policy import Rollback
from habitus.pause import Paused
from habitus.sandbox.credentials.model import Call
from habitus.search.model import Hit, Results
from habitus.tools.model import CodeTool
from habitus.web.api.answers import Lesson, Waiting, answer, many
from habitus.web.api.asking import Body, Json, Limit, Line, Opened, Words, told

router = APIRouter(tags=["requests"])

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
PauseState = answer("PauseState", paused=Paused | None)


Configured = answer("Configured", configuring.Configured)


class NewValue(Body):
    value: Words


class Undo(Body):
    undo: tuple[Line, ...]


@router.get("/search", response_model=answer("Found", Results, without=("hits",), results=tuple[Hit, ...]))
def search(habitus: Opened, q: Asked, limit: Limit = 10) -> Json:
    """The skills that fit a request best, each with what its score is made of."""
    found = habitus.finder.search(q, k=limit)
    return {"results": told(found.hits), "fits": found.fits, "confidence": found.confidence}


@router.get("/select", response_model=Selected)
def select(habitus: Opened, request: Asked) -> Json:
    """What would reach an agent for a request: in full, by name, or not at all, each with its reason."""
    asked = explaining.request_of(habitus, request)
    answer: Json = told(json_of.prospect(explaining.prospect(habitus, asked)))
    return answer


@router.get("/skills/{name}/why", response_model=answer("WhyNot", Why, sentences=list[str]))
def why(habitus: Opened, name: str, request: Asked) -> Json:
    """Why one skill would, or would not, reach an agent for a request."""
    found = explaining.why(habitus, name, explaining.request_of(habitus, request))
    return {**told(found), "sentences": told(found.sentences())}


@router.post("/undo", response_model=taking_back.TakenBack)
def undo(habitus: Opened, wanted: Undo) -> Json:
    """Take back a change, by the words that came with it."""
    answer: Json = told(taking_back.take_back(habitus, wanted.undo))
    return answer


@router.get("/today", response_model=FirstLook, response_model_exclude_unset=True)
def first_look(habitus: Opened) -> Json:
    """What to look at first: what waits, what is new this week, what is broken."""
    found = today.today(habitus)
    return {
        "waiting": [told(json_of.waiting(item)) for item in found.waiting],
        "new_skills": [summary.name for summary in found.new_skills],
        "new_lessons": [told(json_of.lesson(engram)) for engram in found.new_lessons],
        "broken": [{"name": item.name, "reason": told(item.reason)} for item in found.broken],
        "worse": told(found.worse),
        "failing": [{"name": tool.name, "reason": told(tool.reason)} for tool in found.failing],
    }


@router.get("/failing", response_model=answer("Failing", failing=tuple[Repeated, ...]))
def failing(habitus: Opened) -> Json:
    """What fails again and again in conversations, and what helped against it."""
    return {"failing": told(remedies.repeated(habitus))}


@router.get("/evidence", response_model=answer("AllEvidence", Findings, withhold=float))
def evidence(habitus: Opened) -> Json:
    """What offering skills, lessons, recipes and tools changes, per version, and how sure that is."""
    found = habitus.evidence.findings()
    return {"withhold": habitus.evidence.share, "items": told(found.items), "rollbacks": told(found.rollbacks)}


@router.get(
    "/skills/{name}/evidence",
    response_model=answer("SkillEvidence", Fared, without=("findings",), items=tuple[Finding, ...]),
)
def evidence_of(habitus: Opened, name: str) -> Json:
    """The same of each version of one skill, the newest first, and its uses version by version and week by week."""
    found = faring.fared(habitus, habitus.skills.find(name))
    return {"items": told(found.findings), "versions": told(found.versions), "weeks": told(found.weeks)}


@router.get("/tools", response_model=answer("Tools", tools=tuple[CodeTool, ...]))
def tools(habitus: Opened) -> Json:
    """The skills that are tested code, and whether each may run."""
    return {"tools": told(habitus.tools.all())}


@router.put("/pause", response_model=PauseState)
def pause(habitus: Opened) -> Json:
    """Stop all learning and every change that nobody asked for."""
    return {"paused": told(habitus.pause.pause(habitus.settings.signature))}


@router.delete("/pause", response_model=PauseState)
def resume(habitus: Opened) -> Json:
    """Let agents learn again."""
    habitus.pause.resume()
    return {"paused": None}


@router.get("/doctor", response_model=answer("Checks", checks=tuple[Check, ...]))
def doctor(habitus: Opened) -> Json:
    """What works, what is missing, and the exact mend."""
    return {"checks": told(checking.doctor(habitus))}


@router.get("/settings", response_model=answer("SettingValues", settings=tuple[configuring.Value, ...]))
def settings(habitus: Opened) -> Json:
    """Every setting with where it comes from; what looks secret is taken out."""
    return {"settings": told(configuring.values(habitus.settings, os.environ))}


@router.put("/settings/{key}", response_model=Configured)
def put_setting(habitus: Opened, key: str, wanted: NewValue) -> Json:
    """Write a setting into the file; whoever starts later has it."""
    answer: Json = told(configuring.put(habitus.settings, os.environ, key, wanted.value))
    return answer


@router.delete("/settings/{key}", response_model=Configured)
def drop_setting(habitus: Opened, key: str) -> Json:
    """Take a setting out of the file, so that its default holds."""
    answer: Json = told(configuring.put(habitus.settings, os.environ, key, None))
    return answer


@router.get("/secrets", response_model=answer("Secrets", secrets.Overview, calls=tuple[Call, ...]))
def list_secrets(habitus: Opened) -> Json:
    """Secrets by name, who asks for them and who may have them, and what was called with them; never a value."""
    return {**told(secrets.overview(habitus)), "calls": told(secrets.calls(habitus))}
