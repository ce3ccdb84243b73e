"""Settings and trusted sources, connections of agents, the team, and secrets by name, never by value."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Form, Request
from fastapi.responses import HTMLResponse

from habitus.access import Access
from habitus.app import Habitus
from habitus.app.conversations import secrets
from habitus.app.library import trusting
from habitus.app.library.layers import list_layer_summaries
from habitus.app.operating import configuring
from habitus.app.operating.people import UserRole, has_other_approver
from habitus.app.use_cases import agents, users
from habitus.errors import Invalid
from habitus.events import OutcomeKind
from habitus.sandbox.credentials.grants import CommandLineCall, GrantTargetKind
from habitus.skills.sources.trust import APPROVED_ROOT, IMPORTED_ROOT
from habitus.web.api.schemas import RequestHome
from habitus.web.home_pool import get_home_pool, get_public_address, get_request_home
from habitus.web.pages.lists import ListRow
from habitus.web.rendering import FlashMessage, format_timestamp, render_fragment, render_page
from habitus.web.routing import AccessRouter

router = AccessRouter()
_ADDRESS = re.compile(r"https?://[\w.-]+(:\d+)?|https?://\[[0-9a-fA-F:]+\](:\d+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingDescription:
    """A setting's label and hint; `choices` maps its values to labels."""

    label: str
    hint: str = ""
    choices: Mapping[str, str] | None = None


SETTING_GROUPS: Mapping[str, Mapping[str, SettingDescription]] = {
    "Models": {
        "model": SettingDescription(label="Model", hint="As provider:model. The tab Model lists what is found here."),
        "cheap_model": SettingDescription(label="Model for drafts and lessons", hint="Defaults to the model above."),
    },
    "Learning": {
        "memory": SettingDescription(
            label="What agents learn",
            choices={
                "autopilot": "save at once",
                "copilot": "save if certain, else ask for review",
                "off": "don't save",
            },
        ),
        "acc_mode": SettingDescription(
            label="Failures while an agent works",
            choices={
                "passive": "become lessons",
                "active": "become lessons, and the agent is told at once",
                "off": "are ignored",
            },
        ),
        "learning_tokens": SettingDescription(
            label="Daily token limit for learning", hint="A token is about a word; 0 means none."
        ),
    },
    "Review": {
        "review.auto": SettingDescription(
            label="Harmless text changes by agents",
            choices={"false": "need review", "true": "apply at once"},
            hint="Code, new capabilities and deletions always need review.",
        )
    },
    "Evidence": {
        "evidence.withhold": SettingDescription(
            label="Share of offers withheld at random",
            hint="From 0 to 0.5; 0.1 is enough to measure what helps, 0 is off.",
        ),
        "evidence.compare_versions": SettingDescription(
            label="Share of conversations that get the version before an improvement",
            hint="From 0 to 0.5; after an approved improvement both versions are compared in use, 0 is off.",
        ),
        "reliable": SettingDescription(label="Reliability above which a tool is preferred", hint="From 0 to 1."),
    },
    "Skills": {
        "layers": SettingDescription(
            label="Layers to offer skills from", hint="Names separated by commas; empty means all."
        ),
        "disabled_skills": SettingDescription(label="Skills disabled for all users", hint="Names separated by commas."),
        "search.encoder": SettingDescription(
            label="Search", choices={"static": "quick", "minilm": "more precise, slower"}
        ),
        "bot_name": SettingDescription(label="Name of the agent"),
    },
    "Retention": {
        "retention.turn_days": SettingDescription(label="Days to keep conversations"),
        "retention.lessons": SettingDescription(label="Maximum number of lessons per scope"),
        "retention.degraded_tool_days": SettingDescription(label="Days until a failing tool is archived"),
    },
}
_ORIGIN_LABELS = {
    configuring.SettingOrigin.DEFAULT: "",
    configuring.SettingOrigin.FILE: "set here",
    configuring.SettingOrigin.ENVIRONMENT: "set by the environment",
}
_ROOT_LABELS = {IMPORTED_ROOT: "Imported skills", APPROVED_ROOT: "Code of your own skills"}


@router.get("/settings", access=Access.VIEWER)
def show_settings(request: Request, habitus: RequestHome) -> HTMLResponse:
    return _render_settings(request, habitus)


def _render_settings(request: Request, habitus: Habitus, said: FlashMessage | None = None) -> HTMLResponse:
    values = {one.key: one for one in configuring.list_settings(habitus.settings, os.environ)}
    known = {key for settings in SETTING_GROUPS.values() for key in settings}
    trusted = [(_ROOT_LABELS.get(one.root, one.root), one) for one in trusting.list_all_trusted_content(habitus)]
    return render_page(
        request,
        "settings.html",
        said=said,
        groups=SETTING_GROUPS,
        values=values,
        others=[one for key, one in values.items() if key not in known],
        origins=_ORIGIN_LABELS,
        trusted=trusted,
        file=habitus.settings.home / "habitus.toml",
    )


@router.post("/settings/value", access=Access.ADMIN)
def change_setting(
    request: Request, habitus: RequestHome, key: Annotated[str, Form()], value: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Change a setting; an empty value resets it to its default."""
    with get_home_pool(request).reopen_home_with_settings_changed_in_block():
        done = configuring.set_setting_for_remote_user(habitus, key, value.strip() or None)
    told = "Saved." if done.is_changed else "Nothing was changed."
    if done.is_overruled:
        told = "Saved, but an environment variable overrides it."
    # The home was reopened with the new setting, so it is looked up again.
    return _render_settings(request, get_request_home(request), FlashMessage(text=told, undo=done.undo))


@router.get("/connections", access=Access.VIEWER)
def show_connections(request: Request, habitus: RequestHome) -> HTMLResponse:
    return _render_connections(request, habitus)


def _render_connections(request: Request, habitus: Habitus, said: FlashMessage | None = None) -> HTMLResponse:
    listed = agents.list_agents(habitus)
    found, known = listed.agents, {one.name for one in listed.agents if one.is_used or one.is_connected}
    return render_page(
        request,
        "connections.html",
        said=said,
        here=[one for one in found if one.name in known],
        others=[one for one in found if one.name not in known],
        last_heard={one.name: one.last_seen_on for one in listed.activity},
        elsewhere=[one for one in listed.activity if one.name not in known],
        places=list_layer_summaries(habitus.skills),
        is_owner=request.state.access is Access.OWNER,
    )


@router.get("/connections/{agent}/changes", access=Access.ADMIN)
def preview_agent_changes(habitus: RequestHome, agent: str, disconnecting: bool = False) -> HTMLResponse:
    """Preview what connecting or disconnecting would change in an agent's files."""
    plan = agents.preview_agent_changes(habitus, agent=agent, disconnecting=disconnecting)
    return render_fragment("connection_changes.html", plan=plan, disconnecting=disconnecting)


@router.post("/connections/{agent}/connect", access=Access.ADMIN)
def connect_agent(request: Request, habitus: RequestHome, agent: str) -> HTMLResponse:
    done = agents.connect_agent(habitus, agent=agent)
    text = " ".join(part for part in (f"{done.title} is connected. Restart it.", done.note) if part)
    return _render_connections(request, habitus, FlashMessage(text=text))


@router.post("/connections/{agent}/disconnect", access=Access.ADMIN)
def disconnect_agent(request: Request, habitus: RequestHome, agent: str) -> HTMLResponse:
    done = agents.disconnect_agent(habitus, agent=agent)
    return _render_connections(
        request, habitus, FlashMessage(text=f"{done.title} is disconnected; its files were restored.")
    )


@router.get("/team", access=Access.VIEWER)
def show_team(request: Request, habitus: RequestHome) -> HTMLResponse:
    return _render_team(request, habitus)


def _render_team(
    request: Request,
    habitus: Habitus,
    said: FlashMessage | None = None,
    invited: users.AddUserResult | None = None,
    at: str = "",
) -> HTMLResponse:
    found = users.list_users(habitus)
    address = at or get_public_address(request)
    return render_page(
        request,
        "team.html",
        said=said,
        members=found.users,
        invited=invited,
        address=address,
        is_own_address=_is_loopback_address(address),
        roles=[role.value for role in UserRole],
        needs_somebody_else=habitus.settings.review.somebody_else,
        is_team=has_other_approver(habitus),
    )


def _is_loopback_address(address: str) -> bool:
    """Return whether only this machine can open an address."""
    host = urlsplit(address).hostname or ""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


@router.post("/team/invite", access=Access.ADMIN)
def invite_user(
    request: Request,
    habitus: RequestHome,
    name: Annotated[str, Form(max_length=100)],
    role: Annotated[UserRole, Form()],
    at: Annotated[str, Form(max_length=200)] = "",
) -> HTMLResponse:
    """Invite a user, or give a known one another role and a new link."""
    at = at.strip().rstrip("/") or get_public_address(request)
    if not _ADDRESS.fullmatch(at):
        raise Invalid(f"'{at}' is no address of this server.", hint="Write one like http://habitus.example:8765.")
    made = users.add_user(habitus, name=name.strip().lower(), role=role, at=at)
    return _render_team(request, habitus, invited=made, at=at)


@router.post("/team/{name}/remove", access=Access.ADMIN)
def remove_user(request: Request, habitus: RequestHome, name: str) -> HTMLResponse:
    done = users.remove_user(habitus, name=name)
    return _render_team(request, habitus, FlashMessage(text=f"{done.removed} can no longer sign in."))


@router.post("/team/somebody-else", access=Access.ADMIN)
def set_other_reviewer_requirement(request: Request, habitus: RequestHome, on: Annotated[bool, Form()]) -> HTMLResponse:
    """Require, or stop requiring, that another person approves one's own changes."""
    with get_home_pool(request).reopen_home_with_settings_changed_in_block():
        done = configuring.set_setting_for_remote_user(
            habitus, configuring.REQUIRE_OTHER_APPROVER, "true" if on else None
        )
    text = "Changes now need approval by another person." if on else "People may approve their own changes."
    return _render_team(request, get_request_home(request), FlashMessage(text=text, undo=done.undo))


_SECRET_BADGES = {
    secrets.SecretRequestStatus.GRANTED: ("granted", "good"),
    secrets.SecretRequestStatus.NOT_SET: ("no value set", "warn"),
    secrets.SecretRequestStatus.PENDING: ("pending", "warn"),
    secrets.SecretRequestStatus.CHANGED: ("changed since it was granted", "warn"),
    secrets.SecretRequestStatus.UNTRUSTED: ("not trusted yet", "warn"),
}
_OUTCOME_BADGES = {
    OutcomeKind.OK: ("succeeded", "good"),
    OutcomeKind.FAILED: ("failed", "bad"),
    OutcomeKind.INFRA: ("could not run", "warn"),
}


@router.get("/secrets", access=Access.VIEWER)
def show_secrets(request: Request, habitus: RequestHome) -> HTMLResponse:
    """Show the secrets by name, the skills that ask for them, and the calls that used them."""
    found = secrets.read_secrets_overview(habitus)
    kept = [ListRow(name=one.name, text=f"For {', '.join(one.granted_to) or 'no skill yet'}") for one in found.secrets]
    asked = [
        ListRow(
            name=one.secret,
            text=f"{one.skill} asks for it",
            note=f"In a terminal: {one.hint}" if one.hint else "",
            href=f"/skills/{one.skill}",
            badge=_SECRET_BADGES[one.status][0],
            badge_kind=_SECRET_BADGES[one.status][1],
        )
        for one in found.requests
    ]
    reached = [
        ListRow(
            name=one.what,
            text=f"{one.skill} may reach it",
            note=f"Granted by {one.granted_by}, {format_timestamp(one.granted_on)}",
        )
        for one in found.grants
        if one.kind is GrantTargetKind.HOST
    ]
    called = [_make_command_line_call_row(one) for one in found.calls]
    lead = "Passwords and keys for skills that act on real accounts. No agent sees them, and neither does this page."
    empty = "Secrets are set in a terminal where Habitus runs; they never pass through this page."
    below = (("Requested by skills", asked), ("Allowed hosts", reached), ("Calls", called))
    return render_page(
        request,
        "secrets.html",
        title="Secrets",
        lead=lead,
        rows=kept,
        empty=empty,
        command="habitus secrets set NAME",
        sections=below,
    )


def _make_command_line_call_row(call: CommandLineCall) -> ListRow:
    """Return a row about a call of a skill's command line."""
    mark, kind = ("refused", "bad") if call.is_refused else _OUTCOME_BADGES[call.outcome.kind]
    given = f", with {', '.join(call.secrets)}" if call.secrets else ""
    return ListRow(
        name=" ".join([call.skill, *call.arguments]),
        text=f"{call.caller}, {format_timestamp(call.timestamp)}{given}",
        note=call.outcome.reason,
        badge=mark,
        badge_kind=kind,
    )
