"""What a person decides about an engram: what it becomes, or why that can't be. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from habitus.errors import Invalid
from habitus.memory import gate
from habitus.memory.model import Draft, Engram, Kind, LessonState, Producer, Scope, TrustLevel


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonEdit:
    """What is to be changed; None leaves it as it is. `owner` is whose it becomes in another scope."""

    text: str | None = None
    kind: Kind | None = None
    scope: Scope | None = None
    topic: str | None = None
    owner: str = ""


def edited(before: Engram, edit: LessonEdit) -> Engram:
    """From then on it is the person's; what waited still waits."""
    scope = before.scope if edit.scope is None else edit.scope
    after = replace(
        before,
        text=before.text if edit.text is None else edit.text,
        kind=edit.kind or before.kind,
        scope=scope,
        owner=before.owner if scope is before.scope else edit.owner,
        topic=before.topic if edit.topic is None else edit.topic,
    )
    refusal = gate.refusal(Draft(text=after.text, kind=after.kind))
    if refusal:
        raise Invalid(f"That can't be kept: {refusal}.", mend="Say it in a sentence.")
    if after == before or before.state is LessonState.WAITING:
        return after
    return replace(after, trust=TrustLevel.USER)


def removed(engram: Engram, by: str, why: str = "removed") -> Engram:
    if engram.state.is_put_away:
        raise Invalid(f"'{engram.id}' is in the archive already.", mend=f"See 'habitus lessons restore {engram.id}'.")
    return replace(engram, state=LessonState.REMOVED, reason=f"{why} by {by}")


def restored(engram: Engram) -> Engram:
    if engram.state is LessonState.ACTIVE:
        raise Invalid(f"'{engram.id}' is not in the archive.", mend="See 'habitus lessons archive'.")
    if engram.state is LessonState.WAITING:
        raise Invalid(f"'{engram.id}' waits for you.", mend=f"Run 'habitus review approve {engram.id}'.")
    return _activated(engram)


def approved(engram: Engram) -> Engram:
    _check_waits(engram)
    return _activated(engram)


def rejected(engram: Engram, by: str, reason: str) -> Engram:
    _check_waits(engram)
    why = f"{reason[:500].rstrip('.') or 'no reason given'} ({by})"
    return replace(engram, state=LessonState.REJECTED, reason=why, is_untold=engram.produced_by is Producer.MODEL)


def _check_waits(engram: Engram) -> None:
    if engram.state is not LessonState.WAITING:
        raise Invalid(f"'{engram.id}' does not wait; it is {engram.state.value}.", mend="See 'habitus review list'.")


def _activated(engram: Engram) -> Engram:
    return replace(engram, state=LessonState.ACTIVE, reason="", is_untold=False, trust=TrustLevel.USER).counted(
        missed=0
    )
