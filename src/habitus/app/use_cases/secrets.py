"""Secrets for skills' command lines: their names, grants and the log of calls; never a value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from habitus.access import Access
from habitus.app.conversations import secrets
from habitus.app.home import Home, refuse_if_read_only
from habitus.app.use_cases.declaration import argument, option, use_case
from habitus.errors import Invalid, InvalidOptions, Refused
from habitus.sandbox.credentials.grants import ALL_USERS, CommandLineCall, Grant, GrantStore, GrantTargetKind
from habitus.timestamps import parse_timestamp

_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")


@use_case("secrets list", route="GET /secrets", access=Access.VIEWER)
def list_secrets(home: Home) -> secrets.SecretsOverview:
    """List secrets by name, the skills that may use them, what skills ask for, and recent calls."""
    return secrets.read_secrets_overview(home)


@dataclass(frozen=True, kw_only=True)
class RemoveSecretResult:
    removed: str


@use_case("secrets remove", access=Access.ADMIN, example={"name": "smtp.password"})
def remove_secret(
    home: Home, name: Annotated[str, argument("Name of the secret, such as smtp.password.")]
) -> RemoveSecretResult:
    """Delete a secret for good; its grants stay, for a new value."""
    secrets.refuse_unless_user_may_change_secrets(home, "change the vault")
    home.vault.remove(name)
    return RemoveSecretResult(removed=name)


@dataclass(frozen=True, kw_only=True)
class RevokeSecretsRequest:
    names: Annotated[tuple[str, ...], argument("Secrets, and last the skill.", completes="skills")]
    host: Annotated[tuple[str, ...], option("A host that the skill may reach; may be repeated.")] = ()
    everybody: Annotated[bool, option("For all users, not only yourself.")] = False


@dataclass(frozen=True, kw_only=True)
class GrantSecretsRequest(RevokeSecretsRequest):
    all: Annotated[bool, option("All secrets that the skill requests.")] = False
    again: Annotated[bool, option("Everything it was granted before it changed.")] = False

    @property
    def skill(self) -> str:
        """Return the skill, which is the last name."""
        return self.names[-1]


@dataclass(frozen=True, kw_only=True)
class GrantSecretsResult:
    granted: Sequence[Grant]
    undo: tuple[str, ...]


@use_case(
    "secrets grant",
    access=Access.ADMIN,
    example={"names": ("smtp.password", "pdf-mailer"), "host": ("smtp.example.org",)},
    undo="secrets revoke",
)
def grant_secrets(home: Home, request: GrantSecretsRequest) -> GrantSecretsResult:
    """Let a skill's command line use secrets and reach hosts, as long as the skill's content stays the same."""
    *named, skill = request.names
    if not (named or request.host or request.all or request.again):
        raise InvalidOptions(
            "Nothing to grant was named.", hint="Name a secret before the skill, or add --all, --again or --host."
        )
    secrets.refuse_unless_user_may_change_secrets(home, "grant secrets")
    asked = secrets.find_skill_and_read_declared_secrets(home.skills, skill)
    if asked.untrusted:
        raise Refused(
            f"'{asked.item.name}': {asked.untrusted}.", hint=f"Read it, then: habitus review trust {asked.item.name}"
        )
    for name in named:
        secrets.require_skill_declares_secret(asked, name)
    for host in request.host:
        if not _HOST.fullmatch(host):
            raise Invalid(f"'{host}' is not a host.", hint="Write example.org, example.org:8443 or *.example.org.")
    grants, user = GrantStore(home.local, home.clock), ALL_USERS if request.everybody else home.settings.user
    had = [grant for grant in grants.list_for_skill(asked.item.name, user) if request.again and grant.user == user]
    kept = [grant.what for grant in had if grant.kind is GrantTargetKind.SECRET and grant.what in asked.grantable_names]
    made = grants.grant_secrets_and_hosts(
        asked.item.name,
        asked.content_hash,
        user=user,
        by=home.settings.author_name,
        secrets=[*named, *kept, *(secrets.list_grantable_secrets(home.vault, asked) if request.all else ())],
        hosts=[*request.host, *(grant.what for grant in had if grant.kind is GrantTargetKind.HOST)],
    )
    return GrantSecretsResult(granted=made, undo=_build_grants_undo_command("revoke", made))


@dataclass(frozen=True, kw_only=True)
class RevokeSecretsResult:
    revoked: Sequence[Grant]
    undo: tuple[str, ...]


@use_case(
    "secrets revoke", access=Access.ADMIN, example={"names": ("smtp.password", "pdf-mailer")}, undo="secrets grant"
)
def revoke_secrets(home: Home, request: RevokeSecretsRequest) -> RevokeSecretsResult:
    """Revoke a skill's grants, those named or all of them; also for a skill that no longer exists."""
    *named, skill = request.names
    refuse_if_read_only(home)
    if request.everybody:
        secrets.refuse_unless_user_may_change_secrets(home, "revoke grants for all users")
    user, grants = ALL_USERS if request.everybody else home.settings.user, GrantStore(home.local, home.clock)
    # A grant outlives its skill, so look at the grants before the library.
    name = skill if skill in {grant.skill for grant in grants.list_all_grants()} else home.skills.find(skill).name
    gone = grants.revoke_grants(name, user=user, secrets=named, hosts=request.host)
    return RevokeSecretsResult(revoked=gone, undo=_build_grants_undo_command("grant", gone))


def _build_grants_undo_command(action: str, grants: Sequence[Grant]) -> tuple[str, ...]:
    """Return the command that repeats or reverts these grants; empty if there are none."""
    if not grants:
        return ()
    names = [grant.what for grant in grants if grant.kind is GrantTargetKind.SECRET]
    hosts = [word for grant in grants if grant.kind is GrantTargetKind.HOST for word in ("--host", grant.what)]
    everybody = ["--everybody"] if grants[0].user == ALL_USERS else []
    return ("secrets", action, *everybody, *hosts, *names, grants[0].skill)


@dataclass(frozen=True, kw_only=True)
class ListSecretCallsResult:
    calls: Sequence[CommandLineCall]


@use_case("secrets log", access=Access.VIEWER, example={"since": "yesterday"})
def list_secret_calls(
    home: Home, since: Annotated[str | None, option("A point in time, such as 2h, yesterday or 2026-05-01.")] = None
) -> ListSecretCallsResult:
    """List the calls of skills' command lines, also refused ones: who, what, when, and with which secrets."""
    start = parse_timestamp(since, home.clock()) if since else None
    return ListSecretCallsResult(calls=secrets.open_command_line_call_log(home).list_logged_calls(since=start))
