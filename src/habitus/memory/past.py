"""Back to a moment: which engrams have to change for memory to be as it was. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime

from habitus.memory.model import Engram, LessonState


@dataclass(frozen=True, kw_only=True, slots=True)
class LessonStep:
    """One engram that a return to a moment changes."""

    id: str
    action: str  # change, restore or archive
    text: str


def back_to(moment: datetime, then: Mapping[str, Engram], now: Iterable[Engram]) -> list[tuple[LessonStep, Engram]]:
    """What changes, and the engrams as they have to become; in the order of their ids."""
    steps: list[tuple[LessonStep, Engram]] = []
    for engram in now:
        back = _as_it_was(engram, then.get(engram.id), moment)
        if back is not None:
            steps.append((LessonStep(id=engram.id, action=_action(engram, back), text=back.text), back))
    return sorted(steps, key=lambda step: step[0].id)


def without_change(before: Engram, after: Engram, now: Engram) -> Engram | None:
    """An engram without what one version changed of it; None where the same was changed since."""
    back = now
    for name in (field.name for field in fields(Engram) if field.name not in _NOT_SAID):
        was, became, is_now = (getattr(engram, name) for engram in (before, after, now))
        if was in (became, is_now):
            continue
        if became != is_now:
            return None
        back = replace(back, **{name: was})
    return back


_NOT_SAID = ("id", "counters", "version", "created_on", "updated_on")


def _action(now: Engram, back: Engram) -> str:
    if back.state.is_put_away:
        return "archive"
    return "change" if now.state is back.state else "restore"


def _as_it_was(now: Engram, then: Engram | None, moment: datetime) -> Engram | None:
    """What an engram has to become to be as it was; None when nothing has to change."""
    if now.state is LessonState.ERASED:
        return None
    if then is None:
        if now.state.is_put_away:
            return None
        return replace(now, state=LessonState.ARCHIVED, reason=f"it is newer than {moment:%Y-%m-%d %H:%M} UTC")
    back = replace(
        then, counters=now.counters, version=now.version, created_on=now.created_on, updated_on=now.updated_on
    )
    return None if back == now else back
