"""The nouns of the code stage: a draft, its program, the cases that proved it, and the tool as others see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from habitus.errors import ToolFailed
from habitus.events import Outcome, OutcomeKind
from habitus.sandbox.model import Permissions
from habitus.tasks.model import Task
from habitus.tasks.schema import Json

NOTHING_GRANTED = Permissions()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolDraft:
    """A tool as its author sends it, nothing of it checked yet. Schema and payload may come as JSON text."""

    name: str
    description: str
    parameters: Json
    code: str
    payload: Json
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    given: Path | None = None  # the files that a call may read (`skill_files.py`)
    conversation: str = ""  # in which the payload came up


class CouldNotTest(ToolFailed):
    """The sandbox could not run a draft, which says nothing about the draft."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grounds:
    """Grounds of a tool that nobody asked for: earlier uses that it must pass, and words for whoever decides."""

    cases: tuple[Task, ...] = ()
    recorded: tuple[str, ...] = ()  # what each of them came to when it was used
    reasons: tuple[str, ...] = ()
    details: Mapping[str, Json] = field(default_factory=dict)  # kept with the proposal
    is_compared: bool = True  # with anything but itself


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProgram:
    """Everything needed to run a tool and to test it again. `code` is the whole file, its PEP 723 header included."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    code: str
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    cases: tuple[Task, ...] = ()
    given: Path | None = None  # the files that a call may read
    is_compared: bool = True  # else it was drafted from words alone, and no recorded result spoke for it
    tried: tuple[TaskResult, ...] = field(default=(), compare=False, repr=False)  # when it was made


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskResult:
    """How one kept call went this time; `outcome` is also failed when what was printed is another result."""

    payload: Json
    outcome: Outcome
    compares: str = ""  # what of the result was compared
    printed: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression:
    """All kept cases, run again. `was_stale`: code, dependencies or interpreter differ from when they last passed."""

    IN_JSON: ClassVar = ("passed",)

    results: tuple[TaskResult, ...]
    fingerprint: str
    was_stale: bool

    @property
    def passed(self) -> bool:
        return all(result.outcome.is_ok for result in self.results)

    @property
    def failed_cases(self) -> tuple[TaskResult, ...]:
        """The cases that count against the tool: what the sandbox itself could not do is not among them."""
        return tuple(result for result in self.results if result.outcome.kind is OutcomeKind.FAILED)


class ToolStatus(StrEnum):
    ACTIVE = "active"
    DEGRADED = "degraded"  # failed three times in a row: no longer offered, still callable
    UNAPPROVED = "unapproved"  # no person has approved this code with these permissions
    OFF = "off"  # its skill is switched off, gated or not trusted
    BROKEN = "broken"  # its files make no tool


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeTool:
    """A tool as agents and people see it. `example` is a payload that is known to work."""

    name: str
    callable_name: str  # what a model calls
    description: str
    parameters: Mapping[str, Json]
    status: ToolStatus
    reason: str = ""  # why it is not active
    example: Json = None
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    returns: Mapping[str, Json] | None = None  # JSON Schema of the object it prints; none where it prints anything else
    cases: int = 0
    by_shape: int = 0  # of those, the ones that compare no values
    is_compared: bool = True  # with recorded results; else it has to earn its place in use
    proved_on: datetime | None = None  # when its cases last passed as it is now, here
    version: int = 0
    layer: str = ""

    @property
    def can_run(self) -> bool:
        return self.status in (ToolStatus.ACTIVE, ToolStatus.DEGRADED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """The result of making a tool: there as this version, or waiting as this proposal. `undo` follows `habitus`."""

    name: str
    applied: bool
    version: int | None = None
    proposal: int | None = None
    reasons: tuple[str, ...] = ()  # why it waits
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Retired:
    """A tool that left, and how to have it back."""

    name: str
    reason: str = ""
    undo: tuple[str, ...] = ()


def asked_for(permissions: Permissions) -> list[str]:
    """The permissions in words, one line each."""
    words = ["use the network"] if permissions.network else []
    words += [f"read {path}" for path in permissions.read]
    words += [f"read and write {path}" for path in permissions.write]
    return words + [f"see the variable {name}" for name in permissions.env]
