"""The small types that neighbours in one row share: what a thing that ran came to, and who did a change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OutcomeKind(StrEnum):
    OK = "ok"
    FAILED = "failed"  # the thing itself did not do it
    INFRA = "infra"  # something around it gave way: a time-out of ours, no sandbox, the provider is down


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What running something came to, decided by the thing that ran it, never guessed from words."""

    kind: OutcomeKind
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        return self.kind is OutcomeKind.OK


OK = Outcome(kind=OutcomeKind.OK)


def failed(reason: str) -> Outcome:
    return Outcome(kind=OutcomeKind.FAILED, reason=reason)


def infra(reason: str) -> Outcome:
    return Outcome(kind=OutcomeKind.INFRA, reason=reason)
