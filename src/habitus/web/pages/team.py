"""Team: who may sign in besides the owner, invited by a link; and whether somebody else must approve."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse

from habitus.app import Habitus
from habitus.app.declaring import Nothing
from habitus.app.operation.configuring import SOMEBODY_ELSE
from habitus.app.operation.people import Role, is_team
from habitus.app.use_cases import users
from habitus.app.use_cases.users import InvitedUser
from habitus.web.api.asking import Opened
from habitus.web.desks import desks_of, habitus_of
from habitus.web.rendering import Said, page

router = APIRouter(include_in_schema=False)


@router.get("/team")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_page(request, habitus)


def _show_page(
    request: Request, habitus: Habitus, said: Said | None = None, invited: InvitedUser | None = None
) -> HTMLResponse:
    found = users.list_users(habitus, Nothing())
    return page(
        request,
        "team.html",
        said=said,
        members=found.users,
        invited=invited,
        roles=[role.value for role in Role],
        needs_somebody_else=habitus.settings.review.somebody_else,
        is_team=is_team(habitus),
    )


@router.post("/team/invite")
def invite(
    request: Request, habitus: Opened, name: Annotated[str, Form(max_length=100)], role: Annotated[Role, Form()]
) -> HTMLResponse:
    """Somebody new, or for one who is known another role and a new link."""
    at = f"{request.url.scheme}://{request.headers['host']}"
    made = users.add(habitus, users.Invitation(name=name.strip().lower(), role=role, at=at))
    return _show_page(request, habitus, invited=made)


@router.post("/team/{name}/remove")
def remove(request: Request, habitus: Opened, name: str) -> HTMLResponse:
    done = users.remove(habitus, users.OneUser(name=name))
    return _show_page(request, habitus, Said(text=f"{done.removed} can no longer sign in."))


@router.post("/team/somebody-else")
def somebody_else(request: Request, habitus: Opened, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Whether nobody may approve what is their own."""
    done = desks_of(request).put(habitus, SOMEBODY_ELSE, "true" if on else None)
    text = "Somebody else must approve from now on." if on else "Everybody may approve what is their own."
    return _show_page(request, habitus_of(request), Said(text=text, undo=done.undo))
