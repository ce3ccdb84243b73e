"""The nouns of tool making: what an author sends, what comes of it, and the cases it was proved by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from habitus.events import Outcome, OutcomeKind
from habitus.sandbox.model import Permissions

Json = Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A tool as its author sends it, nothing of it checked yet. Schema and payload may come as JSON text."""

    name: str
    description: str
    parameters: Json
    code: str
    payload: Json
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A payload that worked, and the shape of what was printed for it, as JSON Schema."""

    payload: Json
    shape: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolProgram:
    """What is needed to run a tool and to test it again. `code` is the whole file, its PEP 723 header included."""

    name: str
    description: str
    parameters: Mapping[str, Json]
    code: str
    permissions: Permissions = field(default_factory=Permissions)
    dependencies: tuple[str, ...] = ()
    cases: tuple[Case, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """How one kept case went this time; `outcome` is also failed when what was printed has another shape."""

    payload: Json
    outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Regression:
    """All kept cases, run again. `was_stale`: code, dependencies or interpreter differ from when they last passed."""

    results: tuple[CaseResult, ...]
    fingerprint: str
    was_stale: bool

    @property
    def passed(self) -> bool:
        return all(result.outcome.is_ok for result in self.results)

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        """The cases that count against the tool: what the sandbox itself could not do is not among them."""
        return tuple(result for result in self.results if result.outcome.kind is OutcomeKind.FAILED)
