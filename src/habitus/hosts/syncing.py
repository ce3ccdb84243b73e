"""Decisions about one skill in two places, here and in an agent's folder, by what it was when it was put there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Manner(StrEnum):
    COPY = "copy"
    LINK = "link"  # there is only one folder, so an edit there is one here


class Step(StrEnum):
    PUT = "put"
    UPDATE = "update"
    TAKE_BACK = "take back"  # an edit made there becomes a version here
    REMOVE = "remove"  # it is gone here, or no longer wanted there
    FORGET = "removed there"
    SAME = "unchanged"
    CONFLICT = "conflict"  # nothing is done
    LEAVE_OUT = "left out"


@dataclass(frozen=True, kw_only=True, slots=True)
class Synced:
    """A skill that we put into an agent's folder: which version, the hash of its files, and where it is from."""

    version: int
    sha256: str
    origin: str
    manner: Manner


def decide_step(here: str, there: str, put: Synced | None, *, manner: Manner) -> tuple[Step, str]:
    """What to do, and why, by the hashes of the files; nothing where there are none."""
    if put is None:
        if not there:
            return Step.PUT, ""
        same = "the same is there already" if here == there else "another skill of this name is there"
        return (Step.LEAVE_OUT if here == there else Step.CONFLICT), f"{same}, which we did not put there"
    if not there:
        return Step.FORGET, "it was removed there"
    if there == put.sha256:
        if not here:
            return Step.REMOVE, "it is gone here"
        is_same = here == there and manner == put.manner
        return (
            (Step.SAME, "") if is_same else (Step.UPDATE, "it was changed here" if here != there else f"as a {manner}")
        )
    if here == there:
        return Step.SAME, ""
    if here == put.sha256:
        return Step.TAKE_BACK, "it was changed there"
    return Step.CONFLICT, "it was changed here and there" if here else "it is gone here, and was changed there"


def decide_removal(there: str, put: Synced, *, is_link: bool) -> tuple[Step, str]:
    """What becomes of a skill that is no longer wanted there; behind a link nothing is lost."""
    if not there:
        return Step.FORGET, "it was removed there"
    return (Step.REMOVE, "") if is_link or there == put.sha256 else (Step.CONFLICT, "it was changed there; it stays")
