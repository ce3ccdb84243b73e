"""Activity: past turns by words and filters, one of them open beside the list, and feedback on a turn."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.conversations.past_sessions import past_session, shown_turn
from habitus.app.home import whose
from habitus.app.learning.learning import judge
from habitus.app.use_cases.sessions import TurnList, find_turns
from habitus.events import OutcomeKind
from habitus.web.api.requests_and_answers import Opened
from habitus.web.rendering import Said, page
from habitus.web.routing import Router

router = Router()

_PAGE = 50


@router.get("/activity", access=Access.VIEWER)
def show(
    request: Request,
    habitus: Opened,
    q: str = "",
    agent: str = "",
    outcome: str = "",
    skill: str = "",
    user: str = "",
    turn: str = "",
    after: str = "",
) -> HTMLResponse:
    """Show the list of turns with the requested one open, or on a wide screen the first."""
    is_known = outcome in list(OutcomeKind)
    wanted = TurnList(
        q=q[:1000],
        agent=agent,
        outcome=OutcomeKind(outcome) if is_known else None,
        skill=skill,
        limit=_PAGE,
        after=after,
        all_users=user == "*",
        user="" if user == "*" else user,
    )
    found = find_turns(habitus, wanted)
    filters = {"q": q, "agent": agent, "outcome": outcome if is_known else "", "skill": skill, "user": user}
    mine = whose(habitus.settings, wanted.all_users, wanted.user)
    first = turn or (found.turns[0].id if found.turns else "")
    return page(
        request,
        "activity.html",
        acts=Access.REVIEWER,
        found=found,
        filters=filters,
        address=urlencode({name: text for name, text in filters.items() if text}),
        agents=habitus.journal.source_types(user=mine),
        users=habitus.journal.users() if habitus.settings.is_admin else [],
        view=shown_turn(habitus.journal.turn(first, user=mine)) if first else None,
        is_open=bool(turn),
        is_later=bool(after),
    )


@router.get("/activity/{id}", access=Access.VIEWER)
def show_one(request: Request, habitus: Opened, id: str) -> HTMLResponse:
    return _show_page(request, habitus, id)


def _show_page(request: Request, habitus: Habitus, id: str, said: Said | None = None) -> HTMLResponse:
    session = past_session(habitus.settings, habitus.journal, id)
    views = [shown_turn(turn) for turn in session.turns]
    return page(request, "session.html", said=said, acts=Access.REVIEWER, session=session, views=views)


@router.post("/activity/{id}/{turn}", access=Access.REVIEWER)
def say(request: Request, habitus: Opened, id: str, turn: str, ok: Annotated[bool, Form()]) -> HTMLResponse:
    """Record a person's feedback on a turn; later feedback replaces it."""
    judge(habitus, turn, ok=ok, by="user")
    return _show_page(request, habitus, id, Said(text="Thank you: it counts for what was used there."))
