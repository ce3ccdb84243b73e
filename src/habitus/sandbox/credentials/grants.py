"""Grants: which secrets and hosts a person allows a skill's command line to use.

A grant is bound to the content of the skill at the time it was granted. This module also parses what a skill asks for,
resolves it to values, and defines the record of a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from habitus import sql
from habitus.events import Outcome
from habitus.files import Tree
from habitus.redact import MIN_SECRET_CHARACTERS

ALL_USERS = ""
granted_credentials = sa.Table(
    "granted_credentials",
    sql.metadata,
    sa.Column("user", sa.String, primary_key=True),  # the sessions' user; empty for all users
    sa.Column("skill", sa.String, primary_key=True),
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("what", sa.String, primary_key=True),
    sa.Column("content_hash", sa.String(64), nullable=False),
    sa.Column("granted_on", sql.UtcDateTime, nullable=False),
    sa.Column("granted_by", sa.String, nullable=False),
)


class GrantTargetKind(StrEnum):
    """What a grant gives access to."""

    SECRET = "secret"
    HOST = "host"


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A person's permission for one skill, at one content hash, to use one secret or host."""

    user: str
    skill: str
    kind: GrantTargetKind
    what: str  # the name of the secret, or the host
    content_hash: str
    granted_on: datetime
    granted_by: str


class GrantStore:
    """Stores grants in the database."""

    def __init__(self, engine: sa.Engine, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def grant_secrets_and_hosts(
        self, skill: str, content_hash: str, *, user: str, by: str, secrets: Iterable[str], hosts: Iterable[str]
    ) -> tuple[Grant, ...]:
        """Grant these secrets and hosts to a skill as it is now, and return the new grants.

        Grants for any other content of the skill are deleted.
        """
        wanted = [
            *((GrantTargetKind.SECRET, name) for name in secrets),
            *((GrantTargetKind.HOST, host) for host in hosts),
        ]
        now = self._clock()
        made = tuple(
            Grant(
                user=user,
                skill=skill,
                kind=kind,
                what=what,
                content_hash=content_hash,
                granted_on=now,
                granted_by=by,
            )
            for kind, what in dict.fromkeys(wanted)
        )
        changed = ("content_hash", "granted_on", "granted_by")
        # A grant made for other content of the skill must not survive a new one: the person approved this content.
        others = (
            granted_credentials.c.user == user,
            granted_credentials.c.skill == skill,
            granted_credentials.c.content_hash != content_hash,
        )
        with sql.write_transaction(self._engine, durable=True, lock="grants") as connection:
            connection.execute(granted_credentials.delete().where(*others))
            # The fields of a grant are named like the columns of the table.
            rows = [{name: getattr(grant, name) for name in Grant.__slots__} for grant in made]
            sql.upsert_rows(connection, granted_credentials, rows, lambda new: {name: new[name] for name in changed})
        return made

    def revoke_grants(
        self, skill: str, *, user: str, secrets: Iterable[str], hosts: Iterable[str]
    ) -> tuple[Grant, ...]:
        """Revoke these grants, or all of the skill's if none is named, and return the revoked ones."""
        wanted = {
            *((GrantTargetKind.SECRET, name) for name in secrets),
            *((GrantTargetKind.HOST, host) for host in hosts),
        }
        with sql.write_transaction(self._engine, durable=True, lock="grants") as connection:
            found = [grant for grant in self.list_for_skill(skill, user) if grant.user == user]
            gone = [grant for grant in found if not wanted or (grant.kind, grant.what) in wanted]
            for grant in gone:
                same = (
                    granted_credentials.c[name] == getattr(grant, name) for name in ("user", "skill", "kind", "what")
                )
                connection.execute(granted_credentials.delete().where(*same))
        return tuple(gone)

    def list_all_grants(self) -> tuple[Grant, ...]:
        """Return every grant, ordered by user, skill, kind and name."""
        return self._select_grants(sa.true())

    def list_for_skill(self, skill: str, user: str) -> tuple[Grant, ...]:
        """Return the grants of a skill that apply in a user's sessions, whatever content they were granted for."""
        return self._select_grants(
            sa.and_(granted_credentials.c.skill == skill, granted_credentials.c.user.in_([user, ALL_USERS]))
        )

    def _select_grants(self, which: sa.ColumnElement[bool]) -> tuple[Grant, ...]:
        query = sa.select(granted_credentials).where(which).order_by(*granted_credentials.primary_key.columns)
        with sql.read_transaction(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        return tuple(Grant(**{**row, "kind": GrantTargetKind(row["kind"])}) for row in rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class VariableValueSources:
    """The places where the values of environment variables are looked up."""

    user: str
    config: Mapping[str, Any]
    secret: Callable[[str], str | None]  # None if it is not set
    environ: Mapping[str, str]
    file: Callable[[str], Path | None]  # the person's copy of a skill's file; None if there is none


def resolve_credentials(
    skill: str, specs: Iterable[EnvVariableSpec], grants: Iterable[Grant], values: VariableValueSources
) -> GrantedCredentials:
    """Resolve the variables a command line asks for. `grants` must be those valid for the skill's current content."""
    given = list(grants)
    names = {grant.what for grant in given if grant.kind is GrantTargetKind.SECRET}
    found = _VariableResolver(skill, names, values)
    for spec in specs:
        if all(map(found.is_setting_or_granted_secret_set, spec.when)):
            found.add_variable(spec)
    return GrantedCredentials(
        variables=found.variables,
        sensitive=frozenset(found.sensitive),
        secrets=tuple(dict.fromkeys(found.secrets)),
        hosts=tuple(dict.fromkeys(grant.what for grant in given if grant.kind is GrantTargetKind.HOST)),
        readable=tuple(found.readable),
        pending=tuple(dict.fromkeys(found.waiting)),
        missing=tuple(found.missing),
    )


class _VariableResolver:
    def __init__(self, skill: str, names: set[str], values: VariableValueSources) -> None:
        self._skill, self._names, self._values = skill, names, values
        self.variables: dict[str, str] = {}
        self.sensitive: set[str] = set()
        self.secrets: list[str] = []
        self.readable: list[Path] = []
        self.waiting: list[str] = []
        self.missing: list[str] = []

    def is_setting_or_granted_secret_set(self, name: str) -> bool:
        """Whether the setting is truthy, or the secret is both granted and set."""
        said = get_setting_by_dotted_name(self._values.config, name)
        return bool(said) or (name in self._names and self._values.secret(name) is not None)

    def add_variable(self, spec: EnvVariableSpec) -> None:
        said = None if spec.sensitive else get_setting_by_dotted_name(self._values.config, spec.name)
        if spec.source is VariableOrigin.USER:
            self.variables[spec.var] = self._values.user
        elif spec.source is VariableOrigin.TEMPLATE_FILE:
            self._add_template_file_variable(spec)
        elif said is not None:
            self.variables[spec.var] = _to_text(said)
        elif not (self._add_secret_if_granted(spec) or self._add_granted_variable_of_our_environment(spec)):
            self.missing.append(self._describe_missing_value(spec))

    def _add_template_file_variable(self, spec: EnvVariableSpec) -> None:
        path = self._values.file(spec.name)
        if path is None:
            self.missing.append(f"{spec.var} is to name its file '{spec.name}', which it does not have.")
        else:
            self.variables[spec.var] = str(path)
            self.readable.append(path)

    def _add_secret_if_granted(self, spec: EnvVariableSpec) -> bool:
        value = self._values.secret(spec.name) if spec.is_secret and spec.name in self._names else None
        return value is not None and self._add_sensitive_value(spec.var, value, spec.name)

    def _add_granted_variable_of_our_environment(self, spec: EnvVariableSpec) -> bool:
        """Add a variable of this host's environment, which must be granted under its own name."""
        value = self._values.environ.get(spec.fallback, "") if spec.fallback in self._names else ""
        # A shorter value can't be redacted from texts without destroying them, so it is not passed on at all.
        is_long_enough = len(value.strip()) >= MIN_SECRET_CHARACTERS
        return is_long_enough and self._add_sensitive_value(spec.var, value, spec.fallback)

    def _add_sensitive_value(self, var: str, value: str, name: str) -> bool:
        self.variables[var] = value
        self.sensitive.add(value)
        self.secrets.append(name)
        return True

    def _describe_missing_value(self, spec: EnvVariableSpec) -> str:
        if not spec.is_secret:
            return f"{spec.var} is to be the setting '{spec.name}': set it in habitus.toml, under [skill_config]."
        if spec.name in self._names:
            return f"The secret '{spec.name}' is not set: habitus secrets set {spec.name}"
        self.waiting.append(spec.name)
        return f"The secret '{spec.name}' is not granted: habitus secrets grant {spec.name} {self._skill}"


def get_setting_by_dotted_name(config: Mapping[str, Any], name: str) -> Any:
    """Return the setting under a dotted name, or None if it is not set."""
    if name in config:
        return config[name]
    found: Any = config
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Variables that control how a process runs; a skill must not set them.
_RESERVED = re.compile(r"(?i)PATH|HOME|SHELL|USER|IFS|ENV|BASH_ENV|TMPDIR|(?:LD|DYLD|PYTHON|HABITUS)_?\w*|\w*_PROXY")


class VariableOrigin(StrEnum):
    """Where the value of an environment variable comes from."""

    CONFIG = "config"  # the settings, under `skill_config`
    SECRET = "secret"  # the vault
    SETUP = "setup"  # the setting under the name of the variable
    TEMPLATE_FILE = "template_file"  # a person's file that starts as a copy of the skill's
    USER = "user"  # the session's user


# Spellings of other systems whose skills are imported.
_OTHER_WORDS = {"user_id": VariableOrigin.USER, "setup_env": VariableOrigin.SETUP}


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvVariableSpec:
    """One environment variable that a skill asks for. Asking for it grants nothing."""

    var: str
    source: VariableOrigin
    name: str = ""  # of the secret, setting or file; empty for a user
    when: tuple[str, ...] = ()  # settings that must all be set, or the variable is left out
    sensitive: bool = False
    fallback: str = ""  # a granted variable of this host, used if there is no value

    @property
    def is_secret(self) -> bool:
        """Whether the value comes from the vault. Sensitive values always do, whatever the declared source."""
        return self.sensitive or self.source is VariableOrigin.SECRET


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillEnvDeclarations:
    """The environment variables a skill declares, and the problems in the declaration."""

    specs: tuple[EnvVariableSpec, ...]
    problems: tuple[str, ...]  # one sentence each


def parse_env_declarations(declared: Iterable[Mapping[str, Any]]) -> SkillEnvDeclarations:
    """Parse the declared environment variables of a skill. The first declaration of a variable wins."""
    specs: dict[str, EnvVariableSpec] = {}
    problems = []
    for one in declared:
        spec = _parse_env_spec(one)
        if isinstance(spec, str):
            problems.append(spec)
        else:
            specs.setdefault(spec.var, spec)
    return SkillEnvDeclarations(specs=tuple(specs.values()), problems=tuple(problems))


def _parse_env_spec(one: Mapping[str, Any]) -> EnvVariableSpec | str:
    """Return one parsed variable, or a sentence that says what is wrong with its declaration."""
    var, said = str(one.get("var", "")), str(one.get("from", ""))
    if not _VARIABLE.fullmatch(var):
        return f"'{var[:40]}' is not a name of a variable."
    if _RESERVED.fullmatch(var):
        return f"{var} is not for a skill to set."
    try:
        source = _OTHER_WORDS.get(said) or VariableOrigin(said)
    except ValueError:
        return f"{var} comes from '{said[:40]}'; there are: {', '.join(VariableOrigin)}."
    return EnvVariableSpec(
        var=var,
        source=source,
        name="" if source is VariableOrigin.USER else _find_declared_source_name(one) or var,
        when=_to_texts(one.get("when")),
        # YAML and other formats deliver the flag as a boolean or as text.
        sensitive=str(one.get("sensitive") or "false").lower() not in ("false", "no", "off", "0"),
        fallback=str(one.get("fallback") or one.get("fallback_var") or ""),
    )


def _find_declared_source_name(one: Mapping[str, Any]) -> str:
    if one.get("service") and one.get("key"):
        return f"{one['service']}.{one['key']}"
    return next((str(one[key]) for key in ("name", "config_path", "template") if one.get(key)), "")


def _to_texts(value: object) -> tuple[str, ...]:
    if not value:
        return ()
    return tuple(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else (str(value),)


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantedCredentials:
    """Everything that one skill's command line receives."""

    variables: Mapping[str, str] = field(default_factory=dict)
    sensitive: frozenset[str] = frozenset()  # values to redact
    secrets: tuple[str, ...] = ()  # the names of the granted secrets
    hosts: tuple[str, ...] = ()  # like `example.org`, `example.org:8443`, `*.example.org`
    readable: tuple[Path, ...] = ()  # files named by variables
    pending: tuple[str, ...] = ()  # the names of requested secrets that are not granted
    missing: tuple[str, ...] = ()  # a sentence with a hint for each value it does not get


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillCommandLine:
    """A skill's command line, ready to run for one user: a Python file whose `main()` is called."""

    skill: str
    script: str  # its path in the skill
    content_hash: str  # of all its files; the grants are bound to it
    files: Tree
    folders: Mapping[str, Path]  # the folders of files too large for a tree
    granted: GrantedCredentials
    dependencies: tuple[str, ...] = ()  # the packages it needs


class SkillCommandLineLookup(Protocol):
    """Looks up the command lines that one session may call."""

    def get_checked_command_line(self, name: str) -> SkillCommandLine:
        """Return the command line after checking every gate again. `UserError` says what opens a closed one."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLineCall:
    """One call of a command line, or its refusal."""

    caller: str
    skill: str
    arguments: tuple[str, ...]  # redacted
    outcome: Outcome
    is_refused: bool = False
    secrets: tuple[str, ...] = ()  # the names of those it received
    timestamp: datetime


class CommandLineCallLog(Protocol):
    """Records the calls of command lines."""

    def record(self, call: CommandLineCall) -> None: ...
