"""Procedural memory for AI agents: skills that an agent learns, proves and keeps.

from habitus import Habitus

with Habitus.open() as habitus, habitus.turn("How is tea brewed?", user="ana") as turn:
    ...  # your own loop: turn.system, turn.context, turn.tools("anthropic"), turn.run(name, arguments)
    turn.done("Boil the water first.")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from habitus.agent.hosted_turn import AsyncHostTurn, HostTurn, TurnDoor
    from habitus.agent.session import Session
    from habitus.agent.stream import (
        Consent,
        Done,
        Noticed,
        Nudged,
        Question,
        Said,
        ToolFinished,
        ToolProgress,
        ToolStarted,
    )
    from habitus.app import Habitus, read_settings
    from habitus.app.learning.evidence import Evidence
    from habitus.errors import HabitusError, Invalid, NotFound, Refused, Stale, StorageFailed, ToolFailed, UserError
    from habitus.events import Outcome, OutcomeKind, ToolResult
    from habitus.evidence.estimation import Effect, Estimate
    from habitus.evidence.findings import Finding, Findings, Verdict
    from habitus.evidence.model import Item, ItemKind
    from habitus.journal.model import Turn, TurnOutcome
    from habitus.llm.model import Image
    from habitus.llm.scripted import ScriptedModel, calls, says
    from habitus.memory.memory import Cortex
    from habitus.memory.model import Draft, Encoded, Engram, Producer
    from habitus.settings import Settings
    from habitus.skills.library import Library
    from habitus.skills.model import Author, Manifest, Skill, Stage, Summary
    from habitus.skills.stores.in_memory import InMemorySkillStore

__all__ = [
    "AsyncHostTurn",
    "Author",
    "Consent",
    "Cortex",
    "Done",
    "Draft",
    "Effect",
    "Encoded",
    "Engram",
    "Estimate",
    "Evidence",
    "Finding",
    "Findings",
    "Habitus",
    "HabitusError",
    "HostTurn",
    "Image",
    "InMemorySkillStore",
    "Invalid",
    "Item",
    "ItemKind",
    "Library",
    "Manifest",
    "NotFound",
    "Noticed",
    "Nudged",
    "Outcome",
    "OutcomeKind",
    "Producer",
    "Question",
    "Refused",
    "Said",
    "ScriptedModel",
    "Session",
    "Settings",
    "Skill",
    "Stage",
    "Stale",
    "StorageFailed",
    "Summary",
    "ToolFailed",
    "ToolFinished",
    "ToolProgress",
    "ToolResult",
    "ToolStarted",
    "Turn",
    "TurnDoor",
    "TurnOutcome",
    "UserError",
    "Verdict",
    "calls",
    "read_settings",
    "says",
]

# Where the public names live; one is imported when it is first asked for, because start-up time is a feature.
_HOMES = {
    "habitus.agent.session": ("Session",),
    "habitus.agent.stream": (
        "Consent",
        "Done",
        "Noticed",
        "Nudged",
        "Question",
        "Said",
        "ToolFinished",
        "ToolProgress",
        "ToolStarted",
    ),
    "habitus.agent.hosted_turn": (
        "AsyncHostTurn",
        "HostTurn",
        "TurnDoor",
    ),
    "habitus.app": (
        "Habitus",
        "read_settings",
    ),
    "habitus.app.learning.evidence": ("Evidence",),
    "habitus.errors": (
        "HabitusError",
        "Invalid",
        "NotFound",
        "Refused",
        "Stale",
        "StorageFailed",
        "ToolFailed",
        "UserError",
    ),
    "habitus.events": (
        "Outcome",
        "OutcomeKind",
        "ToolResult",
    ),
    "habitus.evidence.findings": (
        "Finding",
        "Findings",
        "Verdict",
    ),
    "habitus.evidence.estimation": (
        "Effect",
        "Estimate",
    ),
    "habitus.evidence.model": (
        "Item",
        "ItemKind",
    ),
    "habitus.journal.model": (
        "Turn",
        "TurnOutcome",
    ),
    "habitus.llm.model": ("Image",),
    "habitus.llm.scripted": (
        "ScriptedModel",
        "calls",
        "says",
    ),
    "habitus.memory.memory": ("Cortex",),
    "habitus.memory.model": (
        "Draft",
        "Encoded",
        "Engram",
        "Producer",
    ),
    "habitus.settings": ("Settings",),
    "habitus.skills.library": ("Library",),
    "habitus.skills.model": (
        "Author",
        "Manifest",
        "Skill",
        "Stage",
        "Summary",
    ),
    "habitus.skills.stores.in_memory": ("InMemorySkillStore",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'habitus' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
