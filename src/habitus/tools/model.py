"""Data types of the code stage: a draft, its program, its test cases, and the tool as others see it."""

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
    """A tool as submitted by its author, not yet checked. Schema and payload may be JSON text."""

    name: str
    description: str
    parameters: Json
    code: str
    payload: Json
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    # The folder that a call may read.
    given: Path | None = None
    # The conversation in which the payload came up.
    conversation: str = ""


class ToolNotTestableError(ToolFailed):
    """The sandbox could not run a draft, which says nothing about the draft."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProposalEvidence:
    """The evidence for a tool that was not requested: earlier uses it must pass, and reasons for the reviewer."""

    cases: tuple[Task, ...] = ()
    # The recorded result of each case.
    recorded: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    # Stored with the proposal.
    details: Mapping[str, Json] = field(default_factory=dict)
    # Whether results were compared with anything but the tool's own.
    is_compared: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProgram:
    """Everything needed to run a tool and to test it again. `code` is the whole file with its PEP 723 header."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    code: str
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    cases: tuple[Task, ...] = ()
    # The folder that a call may read.
    given: Path | None = None
    # Otherwise it was drafted from text alone, without recorded results.
    is_compared: bool = True
    # The case results when it was created.
    tried: tuple[ToolCaseResult, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCaseResult:
    """The result of one stored case; `outcome` is also failed if the output differs from the expected one."""

    payload: Json
    outcome: Outcome
    # Which part of the result was compared.
    compares: str = ""
    printed: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCaseRerunReport:
    """The results of running all stored cases again.

    `was_stale` if code, dependencies or interpreter differ from when the cases last passed.
    """

    IN_JSON: ClassVar = ("passed",)

    results: tuple[ToolCaseResult, ...]
    fingerprint: str
    was_stale: bool

    @property
    def passed(self) -> bool:
        return all(result.outcome.is_ok for result in self.results)

    @property
    def cases_counting_against_tool(self) -> tuple[ToolCaseResult, ...]:
        """The cases that count against the tool; failures of the sandbox itself are not among them."""
        return tuple(result for result in self.results if result.outcome.kind is OutcomeKind.FAILED)


class ToolStatus(StrEnum):
    """Whether a tool may be offered and run."""

    ACTIVE = "active"
    # Failed three times in a row: no longer offered, still callable.
    DEGRADED = "degraded"
    # No person has approved this code with these permissions.
    UNAPPROVED = "unapproved"
    # Its skill is disabled, gated or not trusted.
    OFF = "off"
    # Its files don't form a valid tool.
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeTool:
    """A tool as agents and people see it. `example` is a payload that is known to work."""

    name: str
    # The name a model calls.
    callable_name: str
    description: str
    parameters: Mapping[str, Json]
    status: ToolStatus
    # Why it is not active.
    reason: str = ""
    example: Json = None
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    # JSON Schema of the object it prints; None if it prints anything else.
    returns: Mapping[str, Json] | None = None
    cases: int = 0
    # The number of cases that compare no values.
    by_shape: int = 0
    # Whether recorded results were compared; otherwise it must prove itself in use.
    is_compared: bool = True
    # When its cases last passed with the current code on this machine.
    proved_on: datetime | None = None
    version: int = 0
    layer: str = ""

    @property
    def can_run(self) -> bool:
        return self.status in (ToolStatus.ACTIVE, ToolStatus.DEGRADED)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCreationResult:
    """The result of creating a tool: applied as a version, or pending as a proposal.

    `undo` are the arguments of the `habitus` command that reverts it.
    """

    name: str
    applied: bool
    version: int | None = None
    proposal: int | None = None
    # Why it is pending.
    reasons: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RetiredTool:
    """A tool that was retired, and how to restore it."""

    name: str
    reason: str = ""
    undo: tuple[str, ...] = ()


def describe_permissions(permissions: Permissions) -> list[str]:
    """Describe the permissions in words, one line each."""
    words = ["use the network"] if permissions.network else []
    words += [f"read {path}" for path in permissions.read]
    words += [f"read and write {path}" for path in permissions.write]
    return words + [f"see the variable {name}" for name in permissions.env]
