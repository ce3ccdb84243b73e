"""Readiness: whether a process has all it works with, or makes do without something, and without what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from habitus import sql
from habitus.agent.outage import ANSWERS_S
from habitus.app.home_directory import WAITING, can_write, why_read_only
from habitus.app.sharing.reaching import silence
from habitus.errors import StorageFailed
from habitus.journal.spool import Spool
from habitus.redact import Redactor
from habitus.settings import Settings


class ReadyState(StrEnum):
    READY = "ready"
    DEGRADED = "degraded"  # it serves, from what was known before
    UNUSABLE = "unusable"


@dataclass(frozen=True, kw_only=True, slots=True)
class Readiness:
    state: ReadyState
    reasons: tuple[str, ...] = ()

    @property
    def can_serve(self) -> bool:
        return self.state is not ReadyState.UNUSABLE


def readiness(settings: Settings) -> Readiness:
    """Found out anew; nothing in it is secret."""
    try:
        reasons = [] if can_write(settings.home) else [f"{why_read_only(settings.home)}."]
    except StorageFailed as error:
        return Readiness(state=ReadyState.UNUSABLE, reasons=(error.message,))
    if settings.database and (silent := silence(sql.create_engine(settings.database, settings.workspace), ANSWERS_S)):
        reasons.append(silent)
    spool = Spool(settings.home / WAITING, Redactor(()))
    if waiting := spool.waiting:
        reasons.append(f"{waiting} {'turn waits' if waiting == 1 else 'turns wait'} to be written down.")
    if dropped := spool.count_dropped:
        reasons.append(f"{dropped} {'entry was' if dropped == 1 else 'entries were'} dropped so far.")
    # What was dropped once stays so, and says nothing of now.
    is_degraded = len(reasons) > bool(dropped)
    return Readiness(state=ReadyState.DEGRADED if is_degraded else ReadyState.READY, reasons=tuple(reasons))
