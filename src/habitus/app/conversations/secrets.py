"""Secrets: the vault, what skills ask for, what a person granted them, and the log of calls."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from habitus.app.home import refuse_if_read_only
from habitus.errors import Invalid, Refused, did_you_mean
from habitus.files import compute_tree_hash
from habitus.sandbox.credentials.command_lines import CommandLineCallStore
from habitus.sandbox.credentials.grants import (
    ALL_USERS,
    CommandLineCall,
    EnvVariableSpec,
    Grant,
    GrantStore,
    GrantTargetKind,
    get_setting_by_dotted_name,
    parse_env_declarations,
)
from habitus.sandbox.credentials.vault import Vault
from habitus.skills import trees
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library

if TYPE_CHECKING:
    from habitus.app.home import Home


class SecretRequestStatus(StrEnum):
    """The status of a secret that a skill asks for."""

    GRANTED = "granted"
    # Granted, but the vault has no such secret.
    NOT_SET = "not set"
    # Not granted yet.
    PENDING = "pending"
    # Granted to an earlier version of the skill.
    CHANGED = "changed"
    # The skill is not trusted as it is now.
    UNTRUSTED = "untrusted"


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillSecretRequest:
    """A secret that a skill asks for, its status, and the command that fixes it."""

    skill: str
    variable: str
    secret: str
    status: SecretRequestStatus
    # A command; empty if nothing has to be done.
    hint: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSecret:
    """A secret in the vault, by name, and the skills that may use it."""

    name: str
    granted_to: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretsOverview:
    """Names, grants, requests and calls, newest first; never a value."""

    secrets: tuple[StoredSecret, ...]
    grants: tuple[Grant, ...]
    requests: tuple[SkillSecretRequest, ...]
    # Declarations that can't be parsed.
    problems: tuple[str, ...]
    calls: tuple[CommandLineCall, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredSecrets:
    """The secrets that a skill declares in its current version."""

    item: ListedSkill
    content_hash: str
    specs: tuple[EnvVariableSpec, ...]
    problems: tuple[str, ...]
    # Why the declaration has no force; empty if it has.
    untrusted: str

    @property
    def grantable_names(self) -> tuple[str, ...]:
        """Return the names that can be granted: secrets, and environment variables that may replace one."""
        asked = [name for spec in self.specs for name in (spec.name if spec.is_secret else "", spec.fallback)]
        return tuple(dict.fromkeys(name for name in asked if name))


def open_command_line_call_log(home: Home) -> CommandLineCallStore:
    """Open the log of command line calls."""
    kept_for = timedelta(days=home.settings.retention.turn_days)
    return CommandLineCallStore(home.local, redact=home.redact, retention=kept_for)


def read_secrets_overview(home: Home) -> SecretsOverview:
    """Return all secrets, grants, requests and calls of the home."""
    grants, names = GrantStore(home.local, home.clock).list_all_grants(), home.vault.list_secret_names()
    config, mine = home.settings.skill_config, (home.settings.user, ALL_USERS)
    found = [
        read_declared_secrets(home.skills, item)
        for item in home.skills.list_skills()
        if _is_skill_declaring_variables(item)
    ]
    requests = [
        _build_secret_request(asked, spec, [grant for grant in grants if grant.user in mine], names)
        for asked in found
        for spec in asked.specs
        if spec.is_secret and (spec.sensitive or get_setting_by_dotted_name(config, spec.name) is None)
    ]
    problems = [f"{asked.item.name}: {problem}" for asked in found for problem in asked.problems]
    kept = [
        StoredSecret(
            name=name, granted_to=tuple(sorted({grant.skill for grant in grants if _is_grant_of_secret(grant, name)}))
        )
        for name in names
    ]
    return SecretsOverview(
        secrets=tuple(kept),
        grants=grants,
        requests=tuple(requests),
        problems=tuple(problems),
        calls=open_command_line_call_log(home).list_logged_calls(),
    )


def list_skills_asking_for_secrets(skills: Library, among: Collection[str]) -> tuple[str, ...]:
    """Return those of the given skills that declare variables for a command line."""
    layers = [layer.store.read_contents().summaries for layer in skills.layers]
    if not any(found.manifest.env for known in layers for name in among if (found := known.get(name)) is not None):
        # No copy in any layer declares any, so composing the listing can be skipped.
        return ()
    return tuple(
        item.name for item in skills.list_skills() if item.name in among and _is_skill_declaring_variables(item)
    )


def read_declared_secrets(skills: Library, item: ListedSkill) -> DeclaredSecrets:
    """Read the secrets that a skill declares."""
    files = skills.read_files(item)
    untrusted = skills.describe_missing_trust(item)
    assert item.summary is not None
    stated = item.summary.manifest.env
    # An untrusted skill's summary has no claims, so read what its file would ask for.
    if untrusted and (skill := trees.parse_skill_tree(item.name, files.tree).skill) is not None:
        stated = skill.manifest.env
    declared = parse_env_declarations(stated)
    return DeclaredSecrets(
        item=item,
        content_hash=compute_tree_hash(files.tree),
        specs=declared.specs,
        problems=declared.problems,
        untrusted=untrusted,
    )


def list_grantable_secrets(vault: Vault, asked: DeclaredSecrets) -> tuple[str, ...]:
    """Return every secret a skill asks for, replaced by a variable of this host if only that exists."""
    names = set(vault.list_secret_names())
    wanted = [
        spec.fallback if spec.name not in names and spec.fallback in os.environ else spec.name
        for spec in asked.specs
        if spec.is_secret
    ]
    return tuple(dict.fromkeys(wanted))


def _build_secret_request(
    asked: DeclaredSecrets, spec: EnvVariableSpec, grants: Sequence[Grant], names: Sequence[str]
) -> SkillSecretRequest:
    skill = asked.item.name
    mine = [grant for grant in grants if grant.skill == skill]
    found = [
        grant
        for grant in mine
        if _is_grant_of_secret(grant, spec.name) or (spec.fallback and _is_grant_of_secret(grant, spec.fallback))
    ]
    granting = f"habitus secrets grant {spec.name} {skill}"
    if asked.untrusted:
        standing, hint = SecretRequestStatus.UNTRUSTED, f"habitus review trust {skill}"
    elif not found:
        standing, hint = SecretRequestStatus.PENDING, granting
    elif all(grant.content_hash != asked.content_hash for grant in found):
        standing, hint = SecretRequestStatus.CHANGED, f"habitus secrets grant --again {skill}"
    elif spec.name not in names and not any(grant.what == spec.fallback for grant in found):
        standing, hint = SecretRequestStatus.NOT_SET, f"habitus secrets set {spec.name}"
    else:
        standing, hint = SecretRequestStatus.GRANTED, ""
    return SkillSecretRequest(skill=skill, variable=spec.var, secret=spec.name, status=standing, hint=hint)


def _is_skill_declaring_variables(item: ListedSkill) -> bool:
    summary = item.summary
    return summary is not None and summary.manifest.cli and bool(summary.manifest.env or "env" in item.inert)


def _is_grant_of_secret(grant: Grant, name: str) -> bool:
    return grant.kind is GrantTargetKind.SECRET and grant.what == name


def find_skill_and_read_declared_secrets(skills: Library, skill: str) -> DeclaredSecrets:
    """Find a skill and read the secrets it declares. Raises `Invalid` if it is broken."""
    item = skills.find(skill)
    if item.summary is None:
        raise Invalid(f"'{item.name}' is broken: {item.diagnostics[-1]}", hint="")
    return read_declared_secrets(skills, item)


def require_skill_declares_secret(asked: DeclaredSecrets, name: str) -> None:
    """Raise `Invalid` if the skill does not ask for this secret."""
    if name not in asked.grantable_names:
        known = f"It asks for: {', '.join(asked.grantable_names)}." if asked.grantable_names else "It asks for none."
        raise Invalid(
            f"'{asked.item.name}' does not ask for '{name}'.", hint=did_you_mean(name, asked.grantable_names) or known
        )


def refuse_unless_user_may_change_secrets(home: Home, what: str) -> None:
    """Raise `Refused` unless this user may change secrets."""
    refuse_if_read_only(home)
    if not home.settings.is_admin:
        raise Refused(f"Only an admin may {what}.", hint="Ask one.")
