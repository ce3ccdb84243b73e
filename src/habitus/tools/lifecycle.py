"""Decisions about a tool in use as pure functions: when it counts as degraded, when it is back, when it is retired."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from habitus.events import Outcome, OutcomeKind

FAILURES_IN_A_ROW = 3
MOST_DAYS = timedelta(days=7)
MOST_CURATOR_RUNS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """How a tool fares. It is that of one code: other code starts anew."""

    code: str = ""  # the fingerprint of what was counted
    streak: int = 0  # failures in a row
    degraded_on: datetime | None = None
    curator_runs: int = 0  # that found it degraded
    last_failure: str = ""
    proved_as: str = ""  # the fingerprint under which its cases last passed
    proved_on: datetime | None = None

    def is_degraded(self, code: str) -> bool:
        return self.degraded_on is not None and self.code == code


def after_call(health: Health, code: str, outcome: Outcome, now: datetime) -> Health:
    """An ok wipes the slate, a failure counts, and what went wrong around the tool counts for nothing."""
    if outcome.kind is OutcomeKind.INFRA:
        return health
    if health.code != code:
        health = Health(code=code, proved_as=health.proved_as, proved_on=health.proved_on)
    if outcome.is_ok:
        return replace(health, streak=0, degraded_on=None, curator_runs=0)
    streak = health.streak + 1
    is_too_much = streak >= FAILURES_IN_A_ROW and health.degraded_on is None
    degraded_on = now if is_too_much else health.degraded_on
    return replace(health, streak=streak, degraded_on=degraded_on, last_failure=outcome.reason)


def after_curator(health: Health) -> Health:
    """A curator came by and found it degraded."""
    return replace(health, curator_runs=health.curator_runs + 1)


def reason_to_retire(health: Health, now: datetime, *, fails_its_cases: bool) -> str:
    """Why a degraded tool should go to the archive; nothing when it should stay, or is not degraded."""
    if health.degraded_on is None:
        return ""
    if fails_its_cases:
        return "degraded, and it fails its own cases"
    if now - health.degraded_on >= MOST_DAYS:
        return f"degraded for {MOST_DAYS.days} days"
    if health.curator_runs >= MOST_CURATOR_RUNS:
        return f"degraded through {MOST_CURATOR_RUNS} runs of the curator"
    return ""
