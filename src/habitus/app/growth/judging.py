"""Judging a turn that is over: somebody's word of how it went, and the credit for what served it."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.agent.memory import SessionMemory
from habitus.agent.record import explicit
from habitus.agent.recorder import judge as keep_judgement
from habitus.app.home import Home
from habitus.events import OutcomeKind
from habitus.journal.model import TurnOutcome
from habitus.text import one_line


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    turn: str
    request: str
    outcome: TurnOutcome


def judge(home: Home, turn: str, *, ok: bool, by: str, reason: str = "") -> Judged:
    """`turn` is its id, or the one that the caller gave it. An admin may judge everybody's."""
    home.refuse_if_read_only()
    user = None if home.settings.is_admin else home.settings.user
    kind = OutcomeKind.OK if ok else OutcomeKind.FAILED
    said = explicit(kind, one_line(by), home.redact(one_line(reason)))
    judged = home.journal.brief(turn, user=user)
    if judged is None:  # its words may have gone, and still it counts
        return Judged(turn=home.journal.judge(turn, said, user=user), request="", outcome=said)
    is_own = judged.user == home.settings.user
    cortex = home.memory if is_own else home.open_memory(user=judged.user)
    memory = SessionMemory(cortex=cortex, user=judged.user, project=home.project)
    keep_judgement(home.journal, home.finder, memory, judged.id, said, user=judged.user)
    return Judged(turn=judged.id, request=judged.request, outcome=said)
