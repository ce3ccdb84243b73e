"""Going back: to a moment, for skills and lessons together, and to an earlier version of one skill."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from habitus.app.habitus import Habitus
from habitus.memory.past import LessonStep as LessonStep
from habitus.skills.stores.base import Step as SkillStep


@dataclass(frozen=True, kw_only=True, slots=True)
class WayBack:
    """What it takes to have everything as it was at a moment: (layer, step) of skills, and steps of lessons."""

    to: datetime
    skills: tuple[tuple[str, SkillStep], ...]
    lessons: tuple[LessonStep, ...]
    undo: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RolledBack:
    """A skill that is an earlier version again, as a new one."""

    name: str
    layer: str
    version: int
    undo: tuple[str, ...] = ()


def back_to(moment: datetime) -> tuple[str, ...]:
    """The command that takes back all that was done since."""
    return ("rollback", "--to", moment.astimezone().isoformat(timespec="microseconds"))


def return_to(habitus: Habitus, moment: datetime, reason: str, *, dry_run: bool) -> WayBack:
    """Return lessons, and the skills of every layer that can be written, to a moment, or only say what that takes."""
    now, author = habitus.clock(), habitus.person(reason)
    skills = habitus.skills.return_to(moment, author, dry_run=True)
    for layer in {layer for layer, step in skills if step.action == "archive"}:
        habitus.skills.layer(layer).allow_removal(author)
    if not dry_run:
        skills = habitus.skills.return_to(moment, author)
    lessons = habitus.memory.return_to(moment, by=author.name, dry_run=dry_run)
    return WayBack(to=moment, skills=tuple(skills), lessons=lessons, undo=back_to(now))


def roll_back(habitus: Habitus, name: str, to: int, reason: str) -> RolledBack:
    before = habitus.skills.find(name)
    version = habitus.skills.rollback(name, to, habitus.person(reason or f"back to version {to}"))
    undo = ("skills", "rollback", name, "--to", str(before.summary.version)) if before.summary is not None else ()
    return RolledBack(name=before.name, layer=before.layer, version=version, undo=undo)
