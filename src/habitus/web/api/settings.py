"""REST for the home itself: settings, where skills come from, trust, secrets by name, the doctor, and undo."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Depends

from habitus.app import json_shapes
from habitus.app.conversations import secrets
from habitus.app.library import trusting
from habitus.app.library.layers import Place, places
from habitus.app.library.undoing import TakenBack
from habitus.app.operating import checking, configuring
from habitus.app.operating.doctor import Check
from habitus.sandbox.credentials.grants import Call
from habitus.skills.sources.trust import Trusted
from habitus.web.api.requests_and_answers import AsMade, Body, Json, Line, Opened, Words, answer, as_json
from habitus.web.homes_by_person import Desks, desks_of

router = APIRouter(tags=["settings"], route_class=AsMade)

All = Annotated[Desks, Depends(desks_of)]
Configured = answer("Configured", configuring.Configured)


class NewValue(Body):
    value: Words


class Undo(Body):
    undo: tuple[Line, ...]


@router.post("/undo", response_model=TakenBack)
def undo(desks: All, habitus: Opened, wanted: Undo) -> Json:
    """Take back a change, by the words that came with it."""
    answer: Json = as_json(desks.take_back(habitus, wanted.undo))
    return answer


@router.get("/settings", response_model=answer("SettingValues", settings=tuple[configuring.Value, ...]))
def settings(habitus: Opened) -> Json:
    """Every setting with where it comes from; what looks secret is taken out."""
    return {"settings": as_json(configuring.values(habitus.settings, os.environ))}


@router.put("/settings/{key}", response_model=Configured)
def put_setting(desks: All, habitus: Opened, key: str, wanted: NewValue) -> Json:
    """Write a setting into the file; it holds at once. What names commands, addresses or folders is set where Habitus
    runs."""
    answer: Json = as_json(desks.put(habitus, key, wanted.value))
    return answer


@router.delete("/settings/{key}", response_model=Configured)
def drop_setting(desks: All, habitus: Opened, key: str) -> Json:
    """Take a setting out of the file, so that its default holds."""
    answer: Json = as_json(desks.put(habitus, key, None))
    return answer


@router.get("/layers", response_model=answer("Layers", layers=tuple[Place, ...]))
def list_layers(habitus: Opened) -> Json:
    """Where skills come from, the strongest first, and whose they are."""
    return {"layers": as_json(places(habitus.skills))}


@router.get("/trust", response_model=answer("Trusts", trusted=tuple[Trusted, ...]))
def list_trusted(habitus: Opened) -> Json:
    """What was trusted as it is, by whom and when."""
    return {"trusted": as_json(trusting.list_trusted(habitus))}


@router.get("/doctor", response_model=answer("Checks", checks=tuple[Check, ...]))
def doctor(habitus: Opened) -> Json:
    """What works, what is missing, and the exact mend."""
    return {"checks": as_json(checking.doctor(habitus))}


@router.get("/secrets", response_model=answer("Secrets", secrets.Overview, calls=tuple[Call, ...]))
def list_secrets(habitus: Opened) -> Json:
    """Secrets by name, who asks for them and who may have them, and what was called with them; never a value."""
    answer: Json = as_json(json_shapes.secrets(secrets.overview(habitus), secrets.calls(habitus)))
    return answer
