"""Judging a turn that is over: somebody's word of how it went, and the credit for what served it."""

from __future__ import annotations

from habitus.agent.memory import SessionMemory
from habitus.agent.outcome import explicit
from habitus.agent.recorder import judge as keep_judgement
from habitus.app.habitus import Habitus
from habitus.events import OutcomeKind
from habitus.text import one_line


def judge(habitus: Habitus, turn: str, kind: OutcomeKind, *, by: str, reason: str = "") -> None:
    """`turn` is its id, or the one that the caller gave it."""
    memory = SessionMemory(cortex=habitus.memory, user=habitus.settings.user, project=habitus.project)
    said = explicit(kind, one_line(by), habitus.redacted(one_line(reason)))
    user = None if habitus.settings.is_admin else habitus.settings.user
    keep_judgement(habitus.journal, habitus.finder, memory, turn, said, user=user)
