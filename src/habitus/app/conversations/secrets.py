"""Secrets: the vault, what skills ask for, what a person granted them, and the log of calls."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.errors import Invalid, Refused, did_you_mean
from habitus.files import tree_hash
from habitus.sandbox.credentials.calling import Calls
from habitus.sandbox.credentials.grants import EVERYBODY, Call, EnvSpec, Grant, GrantKind, Grants, read_env, setting
from habitus.sandbox.credentials.vault import Vault
from habitus.skills import trees
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library

if TYPE_CHECKING:
    from habitus.app.home import Home


class Standing(StrEnum):
    """The status of a secret that a skill asks for."""

    GRANTED = "granted"
    # Granted, but the vault has no such secret.
    NOT_SET = "not set"
    # Not granted yet.
    WAITING = "waiting"
    # Granted to an earlier version of the skill.
    CHANGED = "changed"
    # The skill is not trusted as it is now.
    UNTRUSTED = "untrusted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A secret that a skill asks for, its status, and the command that fixes it."""

    skill: str
    variable: str
    secret: str
    standing: Standing
    # A command; empty if nothing has to be done.
    hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A secret in the vault, by name, and the skills that may use it."""

    name: str
    granted_to: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretsOverview:
    """Names, grants, requests and calls, newest first; never a value."""

    secrets: tuple[Kept, ...]
    grants: tuple[Grant, ...]
    requests: tuple[Request, ...]
    # Declarations that can't be parsed.
    problems: tuple[str, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """The secrets that a skill declares in its current version."""

    item: Listed
    content_hash: str
    specs: tuple[EnvSpec, ...]
    problems: tuple[str, ...]
    # Why the declaration has no force; empty if it has.
    untrusted: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the names that can be granted: secrets, and environment variables that may replace one."""
        asked = [name for spec in self.specs for name in (spec.name if spec.is_secret else "", spec.fallback)]
        return tuple(dict.fromkeys(name for name in asked if name))


def open_calls(home: Home) -> Calls:
    """Open the log of command line calls."""
    kept_for = timedelta(days=home.settings.retention.turn_days)
    return Calls(home.local, redacted=home.redact, kept_for=kept_for)


def overview(home: Home) -> SecretsOverview:
    """Return all secrets, grants, requests and calls of the home."""
    grants, names = Grants(home.local, home.clock).list(), home.vault.names()
    config, mine = home.settings.skill_config, (home.settings.user, EVERYBODY)
    found = [asking(home.skills, item) for item in home.skills.listing() if _may_ask(item)]
    requests = [
        _request(asked, spec, [grant for grant in grants if grant.user in mine], names)
        for asked in found
        for spec in asked.specs
        if spec.is_secret and (spec.sensitive or setting(config, spec.name) is None)
    ]
    problems = [f"{asked.item.name}: {problem}" for asked in found for problem in asked.problems]
    kept = [
        Kept(name=name, granted_to=tuple(sorted({grant.skill for grant in grants if _is_of(grant, name)})))
        for name in names
    ]
    return SecretsOverview(
        secrets=tuple(kept),
        grants=grants,
        requests=tuple(requests),
        problems=tuple(problems),
        calls=open_calls(home).list(),
    )


def askers(skills: Library, among: Collection[str]) -> tuple[str, ...]:
    """Return those of the given skills that declare variables for a command line."""
    layers = [layer.store.contents().summaries for layer in skills.layers]
    if not any(found.manifest.env for known in layers for name in among if (found := known.get(name)) is not None):
        # No copy in any layer declares any, so composing the listing can be skipped.
        return ()
    return tuple(item.name for item in skills.listing() if item.name in among and _may_ask(item))


def asking(skills: Library, item: Listed) -> Asking:
    """Read the secrets that a skill declares."""
    files = skills.files(item)
    untrusted = skills.untrusted_notice(item)
    assert item.summary is not None
    stated = item.summary.manifest.env
    # An untrusted skill's summary has no claims, so read what its file would ask for.
    if untrusted and (skill := trees.parse(item.name, files.tree).skill) is not None:
        stated = skill.manifest.env
    declared = read_env(stated)
    return Asking(
        item=item,
        content_hash=tree_hash(files.tree),
        specs=declared.specs,
        problems=declared.problems,
        untrusted=untrusted,
    )


def secrets_to_grant(vault: Vault, asked: Asking) -> tuple[str, ...]:
    """Return every secret a skill asks for, replaced by a variable of this host if only that exists."""
    names = set(vault.names())
    wanted = [
        spec.fallback if spec.name not in names and spec.fallback in os.environ else spec.name
        for spec in asked.specs
        if spec.is_secret
    ]
    return tuple(dict.fromkeys(wanted))


def _request(asked: Asking, spec: EnvSpec, grants: Sequence[Grant], names: Sequence[str]) -> Request:
    skill = asked.item.name
    mine = [grant for grant in grants if grant.skill == skill]
    found = [grant for grant in mine if _is_of(grant, spec.name) or (spec.fallback and _is_of(grant, spec.fallback))]
    granting = f"habitus secrets grant {spec.name} {skill}"
    if asked.untrusted:
        standing, hint = Standing.UNTRUSTED, f"habitus trust {skill}"
    elif not found:
        standing, hint = Standing.WAITING, granting
    elif all(grant.content_hash != asked.content_hash for grant in found):
        standing, hint = Standing.CHANGED, f"habitus secrets grant --again {skill}"
    elif spec.name not in names and not any(grant.what == spec.fallback for grant in found):
        standing, hint = Standing.NOT_SET, f"habitus secrets set {spec.name}"
    else:
        standing, hint = Standing.GRANTED, ""
    return Request(skill=skill, variable=spec.var, secret=spec.name, standing=standing, hint=hint)


def _may_ask(item: Listed) -> bool:
    summary = item.summary
    return summary is not None and summary.manifest.cli and bool(summary.manifest.env or "env" in item.inert)


def _is_of(grant: Grant, name: str) -> bool:
    return grant.kind is GrantKind.SECRET and grant.what == name


def asking_skill(skills: Library, skill: str) -> Asking:
    """Find a skill and read the secrets it declares. Raises `Invalid` if it is broken."""
    item = skills.find(skill)
    if item.summary is None:
        raise Invalid(f"'{item.name}' is broken: {item.diagnostics[-1]}", hint="")
    return asking(skills, item)


def check_asked(asked: Asking, name: str) -> None:
    """Raise `Invalid` if the skill does not ask for this secret."""
    if name not in asked.secrets:
        known = f"It asks for: {', '.join(asked.secrets)}." if asked.secrets else "It asks for none."
        raise Invalid(
            f"'{asked.item.name}' does not ask for '{name}'.", hint=did_you_mean(name, asked.secrets) or known
        )


def refuse_unless_admin(home: Home, what: str) -> None:
    """Raise `Refused` unless this user may change secrets."""
    home.refuse_if_read_only()
    if not home.settings.is_admin:
        raise Refused(f"Only an admin may {what}.", hint="Ask one.")
