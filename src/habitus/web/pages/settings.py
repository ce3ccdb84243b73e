"""Settings and trusted sources, connections of agents, the team, and secrets by name, never by value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.conversations import secrets
from habitus.app.conversations.secrets import Standing
from habitus.app.library import trusting
from habitus.app.library.layers import places
from habitus.app.operating import configuring
from habitus.app.operating.configuring import SOMEBODY_ELSE, Origin
from habitus.app.operating.people import Role, is_team
from habitus.app.use_cases import agents, users
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.users import InvitedUser
from habitus.events import OutcomeKind
from habitus.sandbox.credentials.grants import Call, GrantKind
from habitus.skills.sources.trust import APPROVED, IMPORTED
from habitus.web.api.requests_and_answers import Opened
from habitus.web.homes_by_person import desks_of, habitus_of
from habitus.web.pages.lists import Line
from habitus.web.rendering import Said, format_timestamp, fragment, page
from habitus.web.routing import Router

router = Router()


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A setting's label and hint; `choices` maps its values to labels."""

    label: str
    hint: str = ""
    choices: Mapping[str, str] | None = None


GROUPS: Mapping[str, Mapping[str, Setting]] = {
    "Models": {
        "model": Setting(
            label="The model that answers", hint="Written as provider:model. Its key stays in the environment."
        ),
        "cheap_model": Setting(label="The model that drafts and draws lessons", hint="Without one, the same."),
    },
    "Learning": {
        "memory": Setting(
            label="What agents learn",
            choices={
                "autopilot": "is kept at once",
                "copilot": "is kept when it is sure; else you are asked",
                "off": "is not kept",
            },
        ),
        "acc_mode": Setting(
            label="What goes wrong while an agent works",
            choices={
                "passive": "becomes a lesson",
                "active": "becomes a lesson, and the agent is told at once",
                "off": "is not looked at",
            },
        ),
        "learning_tokens": Setting(
            label="The most that learning may spend a day", hint="Counted about as words; 0 is nothing."
        ),
    },
    "Review": {
        "review.auto": Setting(
            label="Harmless text of agents",
            choices={"false": "waits for you", "true": "is used at once"},
            hint="Code, new powers and deletions always wait.",
        ),
    },
    "What helps": {
        "evidence.withhold": Setting(
            label="Share of offers held back at random",
            hint="From 0 to 0.5. With 0.1 you learn what helps; 0 is off.",
        ),
        "reliable": Setting(
            label="How sure a tool must be before it is tried first",
            hint="From 0 to 1.",
        ),
    },
    "Skills": {
        "layers": Setting(
            label="Offer only the skills of these places", hint="Their names with commas between; none means all."
        ),
        "disabled_skills": Setting(label="Skills that are off for everybody", hint="Their names with commas between."),
        "search.encoder": Setting(label="Search", choices={"static": "quick", "minilm": "understands more, slower"}),
        "bot_name": Setting(label="What the agent is called"),
    },
    "How long things are kept": {
        "retention.turn_days": Setting(label="Days that conversations are kept"),
        "retention.lessons": Setting(label="Lessons in one place"),
        "retention.degraded_tool_days": Setting(label="Days until a tool that fails is put away"),
    },
}
_ORIGINS = {Origin.DEFAULT: "", Origin.FILE: "set here", Origin.ENVIRONMENT: "set by the environment"}
_ROOTS = {IMPORTED: "Imported skills", APPROVED: "Code of your own skills"}


@router.get("/settings", access=Access.VIEWER)
def show(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_page(request, habitus)


def _show_page(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    values = {one.key: one for one in configuring.values(habitus.settings, os.environ)}
    known = {key for settings in GROUPS.values() for key in settings}
    trusted = [(_ROOTS.get(one.root, one.root), one) for one in trusting.list_trusted(habitus)]
    return page(
        request,
        "settings.html",
        said=said,
        groups=GROUPS,
        values=values,
        others=[one for key, one in values.items() if key not in known],
        origins=_ORIGINS,
        trusted=trusted,
        file=habitus.settings.home / "habitus.toml",
    )


@router.post("/settings/value", access=Access.ADMIN)
def put(
    request: Request, habitus: Opened, key: Annotated[str, Form()], value: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Change a setting; an empty value resets it to its default."""
    with desks_of(request).changing_settings():
        done = configuring.put_remotely(habitus, key, value.strip() or None)
    told = "Saved." if done.is_changed else "Nothing was changed."
    if done.is_overruled:
        told = "It is written down; the environment has another value, which wins."
    # The home was reopened with the new setting, so it is looked up again.
    return _show_page(request, habitus_of(request), Said(text=told, undo=done.undo))


@router.get("/connections", access=Access.VIEWER)
def show_connections(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_connections(request, habitus)


def _show_connections(request: Request, habitus: Habitus, said: Said | None = None) -> HTMLResponse:
    listed = agents.list_agents(habitus, Nothing())
    found, known = listed.agents, {one.name for one in listed.agents if one.is_used or one.is_connected}
    return page(
        request,
        "connections.html",
        said=said,
        here=[one for one in found if one.name in known],
        others=[one for one in found if one.name not in known],
        last_heard={one.name: one.last_heard for one in listed.heard},
        elsewhere=[one for one in listed.heard if one.name not in known],
        places=places(habitus.skills),
        is_owner=request.state.access is Access.OWNER,
    )


@router.get("/connections/{agent}/changes", access=Access.ADMIN)
def changes(habitus: Opened, agent: str, leaving: bool = False) -> HTMLResponse:
    """Preview what connecting or disconnecting would change in an agent's files."""
    plan = agents.changes(habitus, agents.AgentChange(agent=agent, leaving=leaving))
    return fragment("connection_changes.html", plan=plan, leaving=leaving)


@router.post("/connections/{agent}/connect", access=Access.ADMIN)
def connect(request: Request, habitus: Opened, agent: str) -> HTMLResponse:
    done = agents.connect(habitus, agents.OneAgent(agent=agent))
    text = " ".join(part for part in (f"{done.title} is connected. Start it anew.", done.note) if part)
    return _show_connections(request, habitus, Said(text=text))


@router.post("/connections/{agent}/disconnect", access=Access.ADMIN)
def disconnect(request: Request, habitus: Opened, agent: str) -> HTMLResponse:
    done = agents.disconnect(habitus, agents.OneAgent(agent=agent))
    return _show_connections(request, habitus, Said(text=f"{done.title} is disconnected; its files are as they were."))


@router.get("/team", access=Access.VIEWER)
def show_team(request: Request, habitus: Opened) -> HTMLResponse:
    return _show_team(request, habitus)


def _show_team(
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


@router.post("/team/invite", access=Access.ADMIN)
def invite(
    request: Request, habitus: Opened, name: Annotated[str, Form(max_length=100)], role: Annotated[Role, Form()]
) -> HTMLResponse:
    """Invite a user, or give a known one another role and a new link."""
    at = f"{request.url.scheme}://{request.headers['host']}"
    made = users.add(habitus, users.Invitation(name=name.strip().lower(), role=role, at=at))
    return _show_team(request, habitus, invited=made)


@router.post("/team/{name}/remove", access=Access.ADMIN)
def remove(request: Request, habitus: Opened, name: str) -> HTMLResponse:
    done = users.remove(habitus, users.OneUser(name=name))
    return _show_team(request, habitus, Said(text=f"{done.removed} can no longer sign in."))


@router.post("/team/somebody-else", access=Access.ADMIN)
def somebody_else(request: Request, habitus: Opened, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Require, or stop requiring, that another person approves one's own changes."""
    with desks_of(request).changing_settings():
        done = configuring.put_remotely(habitus, SOMEBODY_ELSE, "true" if on else None)
    text = "Somebody else must approve from now on." if on else "Everybody may approve what is their own."
    return _show_team(request, habitus_of(request), Said(text=text, undo=done.undo))


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


@router.get("/secrets", access=Access.VIEWER)
def show_secrets(request: Request, habitus: Opened) -> HTMLResponse:
    """Show the secrets by name, the skills that ask for them, and the calls that used them."""
    found = secrets.overview(habitus)
    kept = [Line(name=one.name, text=f"For {', '.join(one.granted_to) or 'nobody yet'}") for one in found.secrets]
    asked = [
        Line(
            name=one.secret,
            text=f"{one.skill} asks for it",
            note=f"In a terminal: {one.hint}" if one.hint else "",
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
            note=f"Granted by {one.granted_by}, {format_timestamp(one.granted_on)}",
        )
        for one in found.grants
        if one.kind is GrantKind.HOST
    ]
    called = [_describe_call(one) for one in found.calls]
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
    """Return a row about a call of a skill's command line."""
    mark, kind = ("refused", "bad") if call.is_refused else _OUTCOMES[call.outcome.kind]
    given = f", with {', '.join(call.secrets)}" if call.secrets else ""
    return Line(
        name=" ".join([call.skill, *call.arguments]),
        text=f"{call.who}, {format_timestamp(call.when)}{given}",
        note=call.outcome.reason,
        mark=mark,
        kind=kind,
    )
