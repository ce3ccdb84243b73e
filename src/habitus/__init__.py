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
    from habitus.agent.hosted_turn import AsyncHostTurn, HostTurn, TurnContext
    from habitus.agent.session import Session
    from habitus.agent.stream import (
        Consent,
        ConsentQuestion,
        NoticeEvent,
        NudgeEvent,
        ReplyDelta,
        ToolFinished,
        ToolProgress,
        ToolStarted,
        TurnResult,
    )
    from habitus.app import Habitus, read_settings
    from habitus.app.learning.evidence import EvidenceService
    from habitus.errors import HabitusError, Invalid, NotFound, Refused, Stale, StorageFailed, ToolFailed, UserError
    from habitus.events import Outcome, OutcomeKind, ToolResult
    from habitus.evidence.estimation import EffectEstimate, ItemEstimate
    from habitus.evidence.findings import EvidenceFindings, ItemFinding, ItemVerdict
    from habitus.evidence.model import EvidenceItem, ItemKind
    from habitus.journal.model import Turn, TurnOutcome
    from habitus.llm.model import Image
    from habitus.llm.scripted import ScriptedModel, calls, says
    from habitus.memory.cortex import Cortex
    from habitus.memory.model import EncodeResult, Engram, LessonDraft, LessonProducer
    from habitus.settings import Settings
    from habitus.skills.library import Library
    from habitus.skills.model import Author, Manifest, Skill, SkillSummary, Stage
    from habitus.skills.stores.in_memory import InMemorySkillStore

__all__ = [
    "AsyncHostTurn",
    "Author",
    "Consent",
    "ConsentQuestion",
    "Cortex",
    "EffectEstimate",
    "EncodeResult",
    "Engram",
    "EvidenceFindings",
    "EvidenceItem",
    "EvidenceService",
    "Habitus",
    "HabitusError",
    "HostTurn",
    "Image",
    "InMemorySkillStore",
    "Invalid",
    "ItemEstimate",
    "ItemFinding",
    "ItemKind",
    "ItemVerdict",
    "LessonDraft",
    "LessonProducer",
    "Library",
    "Manifest",
    "NotFound",
    "NoticeEvent",
    "NudgeEvent",
    "Outcome",
    "OutcomeKind",
    "Refused",
    "ReplyDelta",
    "ScriptedModel",
    "Session",
    "Settings",
    "Skill",
    "SkillSummary",
    "Stage",
    "Stale",
    "StorageFailed",
    "ToolFailed",
    "ToolFinished",
    "ToolProgress",
    "ToolResult",
    "ToolStarted",
    "Turn",
    "TurnContext",
    "TurnOutcome",
    "TurnResult",
    "UserError",
    "calls",
    "read_settings",
    "says",
]

# Where the public names live; one is imported when it is first asked for, because start-up time is a feature.
_HOMES = {
    "habitus.agent.session": ("Session",),
    "habitus.agent.stream": (
        "Consent",
        "TurnResult",
        "NoticeEvent",
        "NudgeEvent",
        "ConsentQuestion",
        "ReplyDelta",
        "ToolFinished",
        "ToolProgress",
        "ToolStarted",
    ),
    "habitus.agent.hosted_turn": (
        "AsyncHostTurn",
        "HostTurn",
        "TurnContext",
    ),
    "habitus.app": (
        "Habitus",
        "read_settings",
    ),
    "habitus.app.learning.evidence": ("EvidenceService",),
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
        "ItemFinding",
        "EvidenceFindings",
        "ItemVerdict",
    ),
    "habitus.evidence.estimation": (
        "EffectEstimate",
        "ItemEstimate",
    ),
    "habitus.evidence.model": (
        "EvidenceItem",
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
    "habitus.memory.cortex": ("Cortex",),
    "habitus.memory.model": (
        "LessonDraft",
        "EncodeResult",
        "Engram",
        "LessonProducer",
    ),
    "habitus.settings": ("Settings",),
    "habitus.skills.library": ("Library",),
    "habitus.skills.model": (
        "Author",
        "Manifest",
        "Skill",
        "Stage",
        "SkillSummary",
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
