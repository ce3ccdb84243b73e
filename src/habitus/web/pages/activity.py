"""Activity: past turns by words and filters, one of them open beside the list, and feedback on a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.conversations.past_sessions import build_turn_details, get_latest_or_matching_session
from habitus.app.home import resolve_user_filter
from habitus.app.learning.judging import record_turn_judgement
from habitus.app.use_cases.sessions import find_turns
from habitus.journal.model import JudgementSourceKind, Turn
from habitus.journal.usage import UseVerdict
from habitus.memory.model import Engram
from habitus.web.api.schemas import RequestHome
from habitus.web.rendering import FlashMessage, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()

_PAGE_SIZE = 50


@router.get("/activity", access=Access.VIEWER)
def show_activity(
    request: Request,
    habitus: RequestHome,
    q: str = "",
    agent: str = "",
    outcome: str = "",
    skill: str = "",
    lesson: str = "",
    user: str = "",
    since: str = "",
    until: str = "",
    turn: str = "",
    after: str = "",
) -> HTMLResponse:
    """Show the list of turns with the requested one open, or on a wide screen the first."""
    is_known = outcome in list(UseVerdict)
    is_everybody, one_user = user == "*", "" if user == "*" else user
    found = find_turns(
        habitus,
        q=q[:1000],
        agent=agent,
        outcome=UseVerdict(outcome) if is_known else None,
        skill=skill,
        lesson=lesson,
        since=since,
        until=until,
        limit=_PAGE_SIZE,
        after=after,
        all_users=is_everybody,
        user=one_user,
    )
    filters = {
        "q": q,
        "agent": agent,
        "outcome": outcome if is_known else "",
        "skill": skill,
        "lesson": lesson,
        "user": user,
        "since": since,
        "until": until,
    }
    mine = resolve_user_filter(habitus.settings, is_everybody, one_user)
    first = turn or (found.turns[0].id if found.turns else "")
    return render_page(
        request,
        "activity.html",
        required_access=Access.REVIEWER,
        found=found,
        filters=filters,
        address=urlencode({name: text for name, text in filters.items() if text}),
        agents=habitus.journal.list_source_types_of_turns(user=mine),
        users=habitus.journal.list_users() if habitus.settings.is_admin else [],
        view=build_turn_details(habitus.journal.get_turn(first, user=mine)) if first else None,
        learned=habitus.memory.list_lessons_taught_by([first]) if first else (),
        is_open=bool(turn),
        is_later=bool(after),
    )


@router.get("/activity/{id}", access=Access.VIEWER)
def show_conversation(request: Request, habitus: RequestHome, id: str) -> HTMLResponse:
    return _render_conversation(request, habitus, id)


def _render_conversation(request: Request, habitus: Habitus, id: str, said: FlashMessage | None = None) -> HTMLResponse:
    session = get_latest_or_matching_session(habitus.settings, habitus.journal, id)
    views = [build_turn_details(turn) for turn in session.turns]
    return render_page(
        request,
        "session.html",
        said=said,
        required_access=Access.REVIEWER,
        session=session,
        views=views,
        learned=list_lessons_by_turn(habitus, session.turns),
    )


def list_lessons_by_turn(habitus: Habitus, turns: Sequence[Turn]) -> dict[str, list[Engram]]:
    """Return the lessons that each turn taught."""
    taught = habitus.memory.list_lessons_taught_by([turn.id for turn in turns]) if turns else ()
    return {turn.id: [one for one in taught if one.evidence.trace == turn.id] for turn in turns}


@router.post("/activity/{id}/{turn}", access=Access.REVIEWER)
def record_feedback(
    request: Request, habitus: RequestHome, id: str, turn: str, ok: Annotated[bool, Form()]
) -> HTMLResponse:
    """Record a person's feedback on a turn; later feedback replaces it."""
    record_turn_judgement(habitus, turn, ok=ok, by="user", source_kind=JudgementSourceKind.PERSON)
    return _render_conversation(request, habitus, id, FlashMessage(text="Thank you. Your feedback was recorded."))
