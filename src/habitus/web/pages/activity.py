"""Activity: conversations, their turns, what each was given, and the word of how it went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from habitus.agent.history import unpack
from habitus.app.habitus import Habitus
from habitus.app.judging import judge
from habitus.app.past_sessions import past_session, past_sessions
from habitus.events import EventKind
from habitus.journal.journal import effective
from habitus.journal.model import Place, Selected, Turn, TurnOutcome
from habitus.llm.model import Answered
from habitus.web.api.asking import Opened
from habitus.web.rendering import Said, page

router = APIRouter(include_in_schema=False)

_USED = (Place.EAGER, Place.STICKY, Place.LOADED)


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """One turn as it is shown."""

    turn: Turn
    reply: str
    outcome: TurnOutcome | None
    used: tuple[Selected, ...]
    others: tuple[Selected, ...]
    calls: int


@router.get("/activity")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return page(request, "activity.html", sessions=past_sessions(habitus, 200))


@router.get("/activity/{id}")
def show_one(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _shown(request, habitus, id)


def _shown(request: Request, habitus: Habitus, id: str, said: Said | None = None) -> HTMLResponse:
    session = past_session(habitus, id)
    return page(request, "session.html", said=said, session=session, views=[_view(turn) for turn in session.turns])


def _view(turn: Turn) -> View:
    replies = [said.text for message in turn.messages if isinstance(said := unpack(message), Answered) and said.text]
    return View(
        turn=turn,
        reply=replies[-1] if replies else "",
        outcome=effective(turn.outcomes),
        used=tuple(entry for entry in turn.selected if entry.place in _USED),
        others=tuple(entry for entry in turn.selected if entry.place not in _USED),
        calls=sum(event.kind is EventKind.TOOL_RESULT for event in turn.events),
    )


@router.post("/activity/{id}/{turn}")
def say(request: Request, habitus: Opened, id: str, turn: str, ok: Annotated[bool, Form()]) -> HTMLResponse:
    """The person's word on a turn; a second one corrects the first."""
    judge(habitus, turn, ok=ok, by="user")
    return _shown(request, habitus, id, Said(text="Thank you: it counts for what was used there."))
