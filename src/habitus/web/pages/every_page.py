"""Routes behind every page: sign-in links, search, the pause switch, undo, and redirects from old addresses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from habitus.access import Access
from habitus.app.use_cases import pausing, undoing
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.overview import Words, find
from habitus.errors import Refused
from habitus.web import site_map
from habitus.web.api.requests_and_answers import Opened
from habitus.web.homes_by_person import desks_of
from habitus.web.rendering import Said, fragment, notice, page_of_problem
from habitus.web.routing import Router
from habitus.web.security import SIGNED_IN_FOR, Keys

router = Router()
# The rest of the path is kept.
_MOVED = {"review": "/inbox", "more/jobs": "/automation", "today": "", "more": ""}
_PLACES = {"skill": "/skills", "lesson": "/lessons", "conversation": "/activity"}


@router.get("/find", access=Access.VIEWER)
def find_anything(request: Request, habitus: Opened, q: str = "") -> HTMLResponse:
    """Return matching skills, lessons, conversations and commands for the search dialog."""
    found = [
        (one.kind, f"{_PLACES[one.kind]}/{quote(one.id)}", one.title, one.text)
        for one in find(habitus, Words(q=q[:200])).found
    ]
    commands = site_map.commands(q, is_admin=request.state.access >= Access.ADMIN)
    if q.strip():
        commands.append((f"/try?{urlencode({'request': q})}", f"Try the request “{q.strip()[:80]}”"))
    return fragment("sought.html", found=found, commands=commands)


@router.post("/pause", access=Access.ADMIN)
def pause(habitus: Opened, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Pause or resume all automatic change and return the switch with its banner."""
    done = (pausing.pause if on else pausing.resume)(habitus, Nothing())
    text = "Learning is paused: nothing changes by itself." if on else "Agents may learn again."
    said = Said(text=text, undo=done.undo)
    return fragment("pause_swapped.html", said=said, is_paused=on, is_admin=True, oob=True)


@router.post("/undo", access=Access.ADMIN)
def take_back(request: Request, habitus: Opened, undo: Annotated[list[str], Form()]) -> Response:
    """Undo the change that a notice is about, then reload the page."""
    with desks_of(request).changing_settings():
        done = undoing.take_back(habitus, undo)
    if done.kept:
        return notice(done.kept[0], "", HTTPStatus.CONFLICT)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers={"HX-Refresh": "true"})


@router.post("/inbox/undo", access=Access.REVIEWER)
def undo_decision(request: Request, habitus: Opened, undo: Annotated[list[str], Form()]) -> Response:
    """Undo a review decision; reviewers may do this without being admins."""
    if undo[:2] != ["review", "reopen"]:
        raise Refused("That is not a decision about what waits.", hint="Ask an admin to take it back.")
    return take_back(request, habitus, undo)


@router.get("/more", access=Access.OPEN_READING)
@router.get("/more/{rest:path}", access=Access.OPEN_READING)
@router.get("/review", access=Access.OPEN_READING)
@router.get("/review/{rest:path}", access=Access.OPEN_READING)
@router.get("/today", access=Access.OPEN_READING)
@router.get("/today/{rest:path}", access=Access.OPEN_READING)
def redirect_moved(request: Request) -> RedirectResponse:
    """Redirect an old address to its new one, with the rest of the path and the query."""
    path = request.url.path.lstrip("/")
    old = next(old for old in _MOVED if path == old or path.startswith(f"{old}/"))
    target = f"{_MOVED[old]}/{path.removeprefix(old).lstrip('/')}".rstrip("/")
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/{target.lstrip('/')}{query}", status_code=HTTPStatus.PERMANENT_REDIRECT)


@router.get("/enter", access=Access.PUBLIC)
def enter(request: Request, key: str = "") -> Response:
    """Exchange a one-time link for a session cookie."""
    # Login CSRF: another site must not sign a person in under a different account.
    if request.state.csrf and request.headers.get("sec-fetch-site") == "cross-site":
        hint = "To become somebody else here, copy the link into the address line."
        return page_of_problem(HTTPStatus.FORBIDDEN, "You are signed in already.", hint)
    keys: Keys = request.app.state.keys
    cookie = keys.enter(key)
    if cookie is None:
        hint = "A link works once. Start 'habitus up' again for a new one; whoever is signed in stays so."
        return page_of_problem(HTTPStatus.FORBIDDEN, "This link was used already.", hint)
    answer = RedirectResponse("/", status_code=HTTPStatus.SEE_OTHER)
    # Lax, not strict: following a link from a mail should find the person signed in.
    answer.set_cookie(keys.cookie, cookie, max_age=SIGNED_IN_FOR, httponly=True, samesite="lax")
    return answer
