"""Procedural memory for AI agents: skills that an agent learns, proves and keeps.

from habitus import Habitus

with Habitus.open() as habitus:
    for item in habitus.skills.listing():
        print(item.name, item.state)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from habitus.agent.session import Session
    from habitus.app import Habitus, read_settings
    from habitus.errors import HabitusError, UserError
    from habitus.events import Outcome, OutcomeKind
    from habitus.journal.model import TurnOutcome
    from habitus.llm.scripted import ScriptedModel, calls, says
    from habitus.memory.cortex import Cortex
    from habitus.settings import Settings
    from habitus.skills.library import Library
    from habitus.skills.model import Skill, Summary
    from habitus.skills.stores.in_memory import InMemorySkillStore

__all__ = [
    "Cortex",
    "Habitus",
    "HabitusError",
    "InMemorySkillStore",
    "Library",
    "Outcome",
    "OutcomeKind",
    "ScriptedModel",
    "Session",
    "Settings",
    "Skill",
    "Summary",
    "TurnOutcome",
    "UserError",
    "calls",
    "read_settings",
    "says",
]

# Where each public name lives; it is imported when first asked for, because start-up time is a feature.
_HOMES = {
    "Cortex": "habitus.memory.cortex",
    "Habitus": "habitus.app",
    "HabitusError": "habitus.errors",
    "InMemorySkillStore": "habitus.skills.stores.in_memory",
    "Library": "habitus.skills.library",
    "Outcome": "habitus.events",
    "OutcomeKind": "habitus.events",
    "ScriptedModel": "habitus.llm.scripted",
    "Session": "habitus.agent.session",
    "Settings": "habitus.settings",
    "Skill": "habitus.skills.model",
    "Summary": "habitus.skills.model",
    "TurnOutcome": "habitus.journal.model",
    "UserError": "habitus.errors",
    "calls": "habitus.llm.scripted",
    "says": "habitus.llm.scripted",
    "read_settings": "habitus.app",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'habitus' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
