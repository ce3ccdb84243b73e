"""Entering: the one-time link becomes a cookie."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from habitus.web.rendering import page_of_problem
from habitus.web.security import SIGNED_IN_FOR, Keys

router = APIRouter(include_in_schema=False)


@router.get("/enter")
def enter(request: Request, key: str = "") -> Response:
    """Another site must not make who is signed in somebody else, under whose name they would then work."""
    if request.state.csrf and request.headers.get("sec-fetch-site") == "cross-site":
        mend = "To become somebody else here, copy the link into the address line."
        return page_of_problem(HTTPStatus.FORBIDDEN, "You are signed in already.", mend)
    keys: Keys = request.app.state.keys
    cookie = keys.enter(key)
    if cookie is None:
        mend = "A link works once. Start 'habitus up' again for a new one; whoever is signed in stays so."
        return page_of_problem(HTTPStatus.FORBIDDEN, "This link was used already.", mend)
    answer = RedirectResponse("/", status_code=HTTPStatus.SEE_OTHER)
    answer.set_cookie(keys.cookie, cookie, max_age=SIGNED_IN_FOR, httponly=True, samesite="lax")
    return answer
