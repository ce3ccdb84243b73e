"""Activity: conversations, their turns, what each was given, and the word of how it went."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.conversations.past_sessions import past_session, past_sessions, shown_turn
from habitus.app.growth.judging import judge
from habitus.web.api.asking import Opened
from habitus.web.rendering import Said, page

router = APIRouter(include_in_schema=False)


@router.get("/activity")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return page(request, "activity.html", sessions=past_sessions(habitus.settings, habitus.journal, 200))


@router.get("/activity/{id}")
def show_one(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _shown(request, habitus, id)


def _shown(request: Request, habitus: Habitus, id: str, said: Said | None = None) -> HTMLResponse:
    session = past_session(habitus.settings, habitus.journal, id)
    views = [shown_turn(turn) for turn in session.turns]
    return page(request, "session.html", said=said, session=session, views=views)


@router.post("/activity/{id}/{turn}")
def say(request: Request, habitus: Opened, id: str, turn: str, ok: Annotated[bool, Form()]) -> HTMLResponse:
    """The person's word on a turn; a second one corrects the first."""
    judge(habitus, turn, ok=ok, by="user")
    return _shown(request, habitus, id, Said(text="Thank you: it counts for what was used there."))
