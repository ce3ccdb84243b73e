"""A tool as agents and people see it: what it is called, what it takes, what it may do, and whether it may run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from habitus.sandbox.model import Permissions

Json = Any


class ToolStatus(StrEnum):
    ACTIVE = "active"
    DEGRADED = "degraded"  # failed three times in a row: no longer offered, still callable
    UNAPPROVED = "unapproved"  # no person has approved this code with these permissions
    OFF = "off"  # its skill is switched off, gated or not trusted
    BROKEN = "broken"  # its files make no tool


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """`callable_name` is the name that a model calls; `example` is a payload that is known to work."""

    name: str
    callable_name: str
    description: str
    parameters: Mapping[str, Json]
    status: ToolStatus
    reason: str = ""  # why it is not active
    example: Json = None
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    cases: int = 0
    proved_on: datetime | None = None  # when its cases last passed as it is now, here
    version: int = 0
    layer: str = ""

    @property
    def can_run(self) -> bool:
        return self.status in (ToolStatus.ACTIVE, ToolStatus.DEGRADED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Created:
    """What became of a new tool: there as this version, or waiting as this proposal. `undo` follows `habitus`."""

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
