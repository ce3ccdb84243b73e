"""REST for requests: what search finds, what would reach an agent and why, and the state of the whole."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Query

from habitus.app import checking, configuring, explaining, json_of, taking_back
from habitus.web.api.asking import Body, Json, Limit, Line, Opened, told

router = APIRouter(tags=["requests"])

Asked = Annotated[str, Query(max_length=10_000, description="What somebody would ask.")]


class Undo(Body):
    undo: tuple[Line, ...]


@router.get("/search")
def search(habitus: Opened, q: Asked, limit: Limit = 10) -> Json:
    """The skills that fit a request best, each with what its score is made of."""
    found = habitus.finder.search(q, k=limit)
    return {"results": told(found.hits), "fits": found.fits, "confidence": found.confidence}


@router.get("/select")
def select(habitus: Opened, request: Asked) -> Json:
    """What would reach an agent for a request: in full, by name, or not at all, each with its reason."""
    asked = explaining.request_of(habitus, request)
    answer: Json = told(json_of.prospect(explaining.prospect(habitus, asked)))
    return answer


@router.get("/skills/{name}/why")
def why(habitus: Opened, name: str, request: Asked) -> Json:
    """Why one skill would, or would not, reach an agent for a request."""
    found = explaining.why(habitus, name, explaining.request_of(habitus, request))
    return {**told(found), "sentences": told(found.sentences())}


@router.post("/undo")
def undo(habitus: Opened, wanted: Undo) -> Json:
    """Take back a change, by the words that came with it."""
    answer: Json = told(taking_back.take_back(habitus, wanted.undo))
    return answer


@router.get("/doctor")
def doctor(habitus: Opened) -> Json:
    """What works, what is missing, and the exact mend."""
    return {"checks": told(checking.doctor(habitus))}


@router.get("/settings")
def settings(habitus: Opened) -> Json:
    """Every setting with where it comes from; what looks secret is taken out."""
    return {"settings": told(configuring.values(habitus.settings, os.environ))}
