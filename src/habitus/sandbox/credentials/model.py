"""The nouns of credentials: what a skill's command line asks for, what it was granted, and what is kept of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from habitus.events import Outcome
from habitus.files import Tree


class ComesFrom(StrEnum):
    """Where the value of a variable is taken from."""

    CONFIG = "config"  # the settings, under `skill_config`
    SECRET = "secret"  # the vault
    SETUP = "setup"  # what was set up for this variable: the settings under its own name
    TEMPLATE_FILE = "template_file"  # a file that begins as a copy of one of the skill's, and then is the person's
    USER = "user"  # who the session belongs to


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvSpec:
    """One variable that a skill asks for. A declaration is a request, and gives nothing by itself."""

    var: str
    source: ComesFrom
    name: str = ""  # of the secret, of the setting, or of the file; a user has none
    when: tuple[str, ...] = ()  # settings that must all be there; else the variable is left out
    sensitive: bool = False
    fallback: str = ""  # a variable of this host that serves where there is no value, once that one is granted

    @property
    def is_secret(self) -> bool:
        """Whether its value comes out of the vault: sensitive values do, whatever the declaration says."""
        return self.sensitive or self.source is ComesFrom.SECRET


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """What one skill's command line gets, and nothing else."""

    variables: Mapping[str, str] = field(default_factory=dict)
    sensitive: frozenset[str] = frozenset()  # values among them that nobody may see
    secrets: tuple[str, ...] = ()  # the names of the secrets among them
    hosts: tuple[str, ...] = ()  # that it may reach: `example.org`, `example.org:8443`, `*.example.org`
    readable: tuple[Path, ...] = ()  # files that variables name
    waiting: tuple[str, ...] = ()  # the names of secrets that it asks for and nobody has granted
    missing: tuple[str, ...] = ()  # what it asks for and does not get, one sentence each with what to do


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandLine:
    """A skill's command line as it may be run now, for one user: a Python file whose `main()` is called."""

    skill: str
    script: str  # which of its files
    content_hash: str  # of all its files; the grants are bound to it
    files: Tree
    folders: Mapping[str, Path]  # where the files lie that are too large for a tree
    granted: Granted
    dependencies: tuple[str, ...] = ()  # the packages it needs


class SkillDirectory(Protocol):
    """The command lines that one session may call."""

    def command_line(self, name: str) -> CommandLine:
        """Every gate is checked again with each call: `UserError` says which one is closed, and what opens it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of a command line, or its refusal."""

    who: str
    skill: str
    arguments: tuple[str, ...]  # redacted
    outcome: Outcome
    is_refused: bool = False
    secrets: tuple[str, ...] = ()  # the names of those that it was given
    when: datetime


class CallLog(Protocol):
    def record(self, call: Call) -> None: ...
