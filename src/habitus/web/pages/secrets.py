"""Secrets by name, which skills may have them, what skills ask for, and what was called with them; never a value."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from habitus.app.conversations import secrets
from habitus.app.conversations.secrets import Standing
from habitus.events import OutcomeKind
from habitus.sandbox.credentials.grants import GrantKind
from habitus.sandbox.credentials.model import Call
from habitus.web.api.asking import Opened
from habitus.web.pages.lists import Line
from habitus.web.rendering import moment, page

router = APIRouter(include_in_schema=False)

_STANDINGS = {
    Standing.GRANTED: ("may have it", "good"),
    Standing.NOT_SET: ("has no value yet", "warn"),
    Standing.WAITING: ("waits for you", "warn"),
    Standing.CHANGED: ("changed since", "warn"),
    Standing.UNTRUSTED: ("not trusted yet", "warn"),
}
_OUTCOMES = {
    OutcomeKind.OK: ("went well", "good"),
    OutcomeKind.FAILED: ("failed", "bad"),
    OutcomeKind.INFRA: ("could not run", "warn"),
}


@router.get("/secrets")
def show(request: Request, habitus: Opened) -> HTMLResponse:
    found = secrets.overview(habitus)
    kept = [Line(name=one.name, text=f"For {', '.join(one.granted_to) or 'nobody yet'}") for one in found.secrets]
    asked = [
        Line(
            name=one.secret,
            text=f"{one.skill} asks for it",
            note=f"In a terminal: {one.mend}" if one.mend else "",
            href=f"/skills/{one.skill}",
            mark=_STANDINGS[one.standing][0],
            kind=_STANDINGS[one.standing][1],
        )
        for one in found.requests
    ]
    reached = [
        Line(
            name=one.what,
            text=f"{one.skill} may reach it",
            note=f"Granted by {one.granted_by}, {moment(one.granted_on)}",
        )
        for one in found.grants
        if one.kind is GrantKind.HOST
    ]
    called = [_describe_call(one) for one in secrets.calls(habitus)]
    lead = "Passwords and keys for skills that act on real accounts. No agent sees them, and neither does this page."
    empty = "A secret is kept where Habitus runs, in a terminal, so that it never goes through a page."
    below = (("What skills ask for", asked), ("What they may reach", reached), ("What was called", called))
    return page(
        request,
        "secrets.html",
        title="Secrets",
        lead=lead,
        rows=kept,
        empty=empty,
        command="habitus secrets set NAME",
        sections=below,
    )


def _describe_call(call: Call) -> Line:
    mark, kind = ("refused", "bad") if call.is_refused else _OUTCOMES[call.outcome.kind]
    given = f", with {', '.join(call.secrets)}" if call.secrets else ""
    return Line(
        name=" ".join([call.skill, *call.arguments]),
        text=f"{call.who}, {moment(call.when)}{given}",
        note=call.outcome.reason,
        mark=mark,
        kind=kind,
    )
