"""REST for the home itself: settings, where skills come from, trust, secrets by name, the doctor, and undo."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from habitus.access import Access
from habitus.app import json_shapes
from habitus.app.conversations import secrets
from habitus.app.library import trusting
from habitus.app.operating import configuring
from habitus.sandbox.credentials.grants import Call
from habitus.skills.sources.trust import Trusted
from habitus.web.api.requests_and_answers import AsMade, Body, Json, Line, Opened, Words, answer, as_json
from habitus.web.homes_by_person import Desks, desks_of
from habitus.web.routing import Router

router = Router(tags=["settings"], route_class_override=AsMade)

All = Annotated[Desks, Depends(desks_of)]
Configured = answer("Configured", configuring.Configured)


class NewValue(Body):
    value: Words


class Undo(Body):
    undo: tuple[Line, ...]


@router.get("/trust", access=Access.VIEWER, response_model=answer("Trusts", trusted=tuple[Trusted, ...]))
def list_trusted(habitus: Opened) -> Json:
    """What was trusted as it is, by whom and when."""
    return {"trusted": as_json(trusting.list_trusted(habitus))}


@router.get(
    "/secrets", access=Access.VIEWER, response_model=answer("Secrets", secrets.Overview, calls=tuple[Call, ...])
)
def list_secrets(habitus: Opened) -> Json:
    """Secrets by name, who asks for them and who may have them, and what was called with them; never a value."""
    answer: Json = as_json(json_shapes.secrets(secrets.overview(habitus), secrets.calls(habitus)))
    return answer
