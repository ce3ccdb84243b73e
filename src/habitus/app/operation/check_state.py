"""Checks: one line each of what the doctor finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CheckState(StrEnum):
    OK = "ok"
    PAUSED = "paused"
    MISSING = "missing"  # optional
    BROKEN = "broken"  # in use


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One line of the doctor's report."""

    name: str
    state: CheckState
    detail: str
    mend: str = ""
