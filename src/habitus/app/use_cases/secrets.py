"""Secrets for skills' command lines: their names, grants and the log of calls; never a value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from habitus.access import Access
from habitus.app.conversations import secrets
from habitus.app.conversations.secrets import SecretsOverview
from habitus.app.home import Home
from habitus.app.use_cases.declaration import Nothing, argument, option, use_case
from habitus.errors import Invalid, Misused, Refused
from habitus.sandbox.credentials.grants import EVERYBODY, Call, Grant, GrantKind, Grants
from habitus.timestamps import parse_timestamp

_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?")


@use_case("secrets list", route="GET /secrets", access=Access.VIEWER, example=Nothing())
def list_secrets(home: Home, wanted: Nothing) -> SecretsOverview:
    """List secrets by name, the skills that may use them, what skills ask for, and recent calls."""
    return secrets.overview(home)


@dataclass(frozen=True, kw_only=True)
class OneSecret:
    name: str = argument("What the secret is called, such as smtp.password.")


@dataclass(frozen=True, kw_only=True)
class RemovedSecret:
    removed: str


@use_case("secrets remove", access=Access.ADMIN, example=OneSecret(name="smtp.password"))
def remove(home: Home, wanted: OneSecret) -> RemovedSecret:
    """Delete a secret for good; its grants stay, for a new value."""
    secrets.refuse_unless_admin(home, "change the vault")
    home.vault.remove(wanted.name)
    return RemovedSecret(removed=wanted.name)


@dataclass(frozen=True, kw_only=True)
class RevokeRequest:
    names: tuple[str, ...] = argument("Secrets, and last the skill.", completes="skills")
    host: tuple[str, ...] = option("A host that it may reach; may be repeated.", default=())
    everybody: bool = option("In everybody's sessions, not only in yours.", default=False)


@dataclass(frozen=True, kw_only=True)
class GrantRequest(RevokeRequest):
    all: bool = option("Every secret that it asks for.", default=False)
    again: bool = option("What it was granted before it changed.", default=False)

    @property
    def skill(self) -> str:
        """Return the skill, which is the last name."""
        return self.names[-1]


@dataclass(frozen=True, kw_only=True)
class GrantedSecrets:
    granted: Sequence[Grant]
    undo: tuple[str, ...]


@use_case(
    "secrets grant",
    access=Access.ADMIN,
    example=GrantRequest(names=("smtp.password", "pdf-mailer"), host=("smtp.example.org",)),
    undo="secrets revoke",
)
def grant(home: Home, wanted: GrantRequest) -> GrantedSecrets:
    """Let a skill's command line use secrets and reach hosts, as long as the skill's content stays the same."""
    *named, skill = wanted.names
    if not (named or wanted.host or wanted.all or wanted.again):
        raise Misused(
            "It is not said what to grant.", hint="Name a secret before the skill, or say --all, --again or --host."
        )
    secrets.refuse_unless_admin(home, "grant secrets")
    asked = secrets.asking_skill(home.skills, skill)
    if asked.untrusted:
        raise Refused(
            f"'{asked.item.name}': {asked.untrusted}.", hint=f"Read it, then: habitus trust {asked.item.name}"
        )
    for name in named:
        secrets.check_asked(asked, name)
    for host in wanted.host:
        if not _HOST.fullmatch(host):
            raise Invalid(f"'{host}' is not a host.", hint="Write example.org, example.org:8443 or *.example.org.")
    grants, user = Grants(home.local, home.clock), EVERYBODY if wanted.everybody else home.settings.user
    had = [grant for grant in grants.of(asked.item.name, user) if wanted.again and grant.user == user]
    kept = [grant.what for grant in had if grant.kind is GrantKind.SECRET and grant.what in asked.secrets]
    made = grants.add(
        asked.item.name,
        asked.content_hash,
        user=user,
        by=home.settings.signature,
        secrets=[*named, *kept, *(secrets.secrets_to_grant(home.vault, asked) if wanted.all else ())],
        hosts=[*wanted.host, *(grant.what for grant in had if grant.kind is GrantKind.HOST)],
    )
    return GrantedSecrets(granted=made, undo=_command("revoke", made))


@dataclass(frozen=True, kw_only=True)
class RevokedSecrets:
    revoked: Sequence[Grant]
    undo: tuple[str, ...]


@use_case(
    "secrets revoke",
    access=Access.ADMIN,
    example=RevokeRequest(names=("smtp.password", "pdf-mailer")),
    undo="secrets grant",
)
def revoke(home: Home, wanted: RevokeRequest) -> RevokedSecrets:
    """Revoke a skill's grants, those named or all of them; also for a skill that no longer exists."""
    *named, skill = wanted.names
    home.refuse_if_read_only()
    if wanted.everybody:
        secrets.refuse_unless_admin(home, "take back what is granted for everybody")
    user, grants = EVERYBODY if wanted.everybody else home.settings.user, Grants(home.local, home.clock)
    # A grant outlives its skill, so look at the grants before the library.
    name = skill if skill in {grant.skill for grant in grants.list()} else home.skills.find(skill).name
    gone = grants.remove(name, user=user, secrets=named, hosts=wanted.host)
    return RevokedSecrets(revoked=gone, undo=_command("grant", gone))


def _command(action: str, grants: Sequence[Grant]) -> tuple[str, ...]:
    """Return the command that repeats or reverts these grants; empty if there are none."""
    if not grants:
        return ()
    names = [grant.what for grant in grants if grant.kind is GrantKind.SECRET]
    hosts = [word for grant in grants if grant.kind is GrantKind.HOST for word in ("--host", grant.what)]
    everybody = ["--everybody"] if grants[0].user == EVERYBODY else []
    return ("secrets", action, *everybody, *hosts, *names, grants[0].skill)


@dataclass(frozen=True, kw_only=True)
class CallFilter:
    since: str | None = option("A point in time, such as 2h, yesterday or 2026-05-01.")


@dataclass(frozen=True, kw_only=True)
class CommandLineCalls:
    calls: Sequence[Call]


@use_case("secrets log", access=Access.VIEWER, example=CallFilter(since="yesterday"))
def log(home: Home, wanted: CallFilter) -> CommandLineCalls:
    """List the calls of skills' command lines, also refused ones: who, what, when, and with which secrets."""
    since = parse_timestamp(wanted.since, home.clock()) if wanted.since else None
    return CommandLineCalls(calls=secrets.open_calls(home).list(since=since))
