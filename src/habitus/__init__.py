"""Procedural memory for AI agents: skills that an agent learns, proves and keeps.

from habitus import Habitus

with Habitus.open() as habitus, habitus.turn("How is tea brewed?", user="ana") as turn:
    ...  # your own loop: turn.system, turn.context, turn.tools("anthropic"), turn.run(name, arguments)
    turn.done("Boil the water first.")
"""

from __future__ import annotations

import importlib
from typing import Any

# Where the public names live; `__init__.pyi` has their types. One is imported when it is first asked for, because
# start-up time is a feature.
_HOMES = {
    "habitus.agent.session": ("Session",),
    "habitus.agent.stream": (
        "Consent",
        "ConsentQuestion",
        "NoticeEvent",
        "NudgeEvent",
        "ReplyDelta",
        "ToolFinished",
        "ToolProgress",
        "ToolStarted",
        "TurnResult",
    ),
    "habitus.agent.hosted_turn": ("AsyncHostTurn", "HostTurn", "TurnContextManager"),
    "habitus.app": ("Habitus", "read_settings"),
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
    "habitus.events": ("Outcome", "OutcomeKind", "ToolResult"),
    "habitus.evidence.findings": ("EvidenceFindings", "ItemFinding", "ItemVerdict"),
    "habitus.evidence.estimation": ("EffectEstimate", "ItemEffectEstimates"),
    "habitus.evidence.model": ("EvidenceItem", "ItemKind"),
    "habitus.journal.model": ("Turn", "TurnOutcome"),
    "habitus.llm.model": ("Image",),
    "habitus.llm.scripted": ("ScriptedModel", "calls", "says"),
    "habitus.memory.cortex": ("Cortex",),
    "habitus.memory.model": ("Engram", "LessonDraft", "LessonDraftResult", "LessonProducer"),
    "habitus.settings": ("Settings",),
    "habitus.skills.library": ("Library",),
    "habitus.skills.model": ("Author", "Manifest", "Skill", "SkillSummary", "Stage"),
    "habitus.skills.stores.in_memory": ("InMemorySkillStore",),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'habitus' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
