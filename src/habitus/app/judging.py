"""Judging a turn that is over: somebody's word of how it went, and the credit for what served it."""

from __future__ import annotations

from habitus.agent.memory import SessionMemory
from habitus.agent.outcome import explicit
from habitus.agent.recorder import judge as keep_judgement
from habitus.app.habitus import Habitus
from habitus.errors import NotFound
from habitus.events import OutcomeKind
from habitus.text import one_line


def judge(habitus: Habitus, turn: str, kind: OutcomeKind, *, by: str, reason: str = "") -> str:
    """`turn` is its id, or the one that the caller gave it."""
    user = None if habitus.settings.is_admin else habitus.settings.user
    judged = habitus.journal.brief(turn, user=user)
    if judged is None:
        raise NotFound(f"There is no turn '{turn}'.", mend="Give its id, or the id you gave it.")
    is_own = judged.user == habitus.settings.user
    cortex = habitus.memory if is_own else habitus.open_memory(user=judged.user)
    memory = SessionMemory(cortex=cortex, user=judged.user, project=habitus.project)
    said = explicit(kind, one_line(by), habitus.redacted(one_line(reason)))
    keep_judgement(habitus.journal, habitus.finder, memory, judged.id, said, user=judged.user)
    return judged.id
