"""Going back to a moment, for skills and lessons together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from habitus.app.home import Home
from habitus.app.library.undoing import of_lessons
from habitus.memory.past import LessonStep as LessonStep
from habitus.skills.stores.base import Step as SkillStep


@dataclass(frozen=True, kw_only=True, slots=True)
class WayBack:
    """What it takes to have everything as it was at a moment: (layer, step) of skills, and steps of lessons."""

    to: datetime
    skills: tuple[tuple[str, SkillStep], ...]
    lessons: tuple[LessonStep, ...]
    undo: tuple[str, ...] = ()


def return_to(home: Home, moment: datetime, reason: str, *, dry_run: bool) -> WayBack:
    """Return lessons, and the skills of every layer that can be written, to a moment, or only say what that takes."""
    author = home.person(reason)
    skills = home.skills.return_to(moment, author, dry_run=True)
    for layer in {layer for layer, step in skills if step.action == "archive"}:
        home.skills.layer(layer).allow_removal(author)
    if not dry_run:
        skills = home.skills.return_to(moment, author)
    with home.memory.noting() as changed:
        lessons = home.memory.return_to(moment, by=author.name, dry_run=dry_run)
    targets = (*([author.change] if skills else []), *of_lessons(changed))
    return WayBack(to=moment, skills=tuple(skills), lessons=lessons, undo=("undo", *targets) if targets else ())
