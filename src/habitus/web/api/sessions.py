"""REST for conversations and their turns, and for the word of how a turn went."""

from __future__ import annotations

from fastapi import APIRouter

from habitus.app.judging import Judged, judge
from habitus.app.past_sessions import PastSession, past_session, past_sessions
from habitus.journal.model import KeptSession, Turn
from habitus.web.api.answers import answer
from habitus.web.api.asking import Body, Json, Limit, Line, Opened, told

router = APIRouter(tags=["sessions"])


class NewOutcome(Body):
    ok: bool
    reason: Line = ""
    by: Line = "api"


@router.get("/sessions", response_model=answer("Sessions", sessions=list[KeptSession]))
def list_sessions(habitus: Opened, limit: Limit = 50) -> Json:
    """Your last conversations, the latest first."""
    return {"sessions": told(past_sessions(habitus, limit))}


@router.get("/sessions/{id}", response_model=PastSession)
def show_session(habitus: Opened, id: str) -> Json:
    """One conversation: what was asked, shown, done and answered, and how it went."""
    answer: Json = told(past_session(habitus, id))
    return answer


@router.get("/turns/{id}", response_model=Turn)
def show_turn(habitus: Opened, id: str) -> Json:
    """One turn."""
    answer: Json = told(habitus.journal.turn(id, user=habitus.settings.user))
    return answer


@router.post("/turns/{id}/outcome", response_model=Judged)
def outcome(habitus: Opened, id: str, wanted: NewOutcome) -> Json:
    """Say how a turn went, by its id or the one you gave it; a second word of the same source corrects the first."""
    answer: Json = told(judge(habitus, id, ok=wanted.ok, by=wanted.by, reason=wanted.reason))
    return answer
