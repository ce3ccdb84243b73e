"""`habitus undo`, `rollback`, `pause` and `resume`: renders results and asks before a rollback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import typer

from habitus.app import Habitus
from habitus.app.library.undoing import ReturnResult, TakenBack
from habitus.app.use_cases import undoing
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.pausing import PauseState
from habitus.app.use_cases.undoing import Moment, UndoTargets
from habitus.cli import inputs, output
from habitus.skills.layers.layer import USER


def confirm_rollback(habitus: Habitus, wanted: Moment, say: Callable[..., None]) -> str:
    """Preview the rollback and return the question; empty without a terminal, since a rollback can be undone."""
    planned = undoing.rollback(habitus, replace(wanted, dry_run=True))
    for step in planned.steps:
        name = step.name if step.layer == USER else f"{step.name}@{step.layer}"
        say(f"{step.action:<8} {name}" + (f" (version {step.version})" if step.version else ""))
    for lesson in planned.lessons:
        say(f"{lesson.action:<8} lesson {lesson.id}: {lesson.text}")
    what = _count_steps(planned)
    is_asked = bool(what) and not wanted.dry_run and sys.stdin.isatty()
    return f"Return {what} to {inputs.format_timestamp(planned.to)}?" if is_asked else ""


def rollback(context: typer.Context, wanted: Moment, done: ReturnResult) -> None:
    what, timestamp = _count_steps(done), inputs.format_timestamp(done.to)
    if not what:
        output.say(f"Nothing has changed since {timestamp}.")
    elif not wanted.dry_run:
        are = "is as it was" if what in ("1 skill", "1 lesson") else "are as they were"
        output.say(f"{what} {are} at {timestamp}.")


def _count_steps(done: ReturnResult) -> str:
    """Return how many skills and lessons a rollback changes, in words."""
    skills = {(step.layer, step.name) for step in done.steps}
    found = ((len(skills), "skill"), (len(done.lessons), "lesson"))
    return " and ".join(output.count_of(number, thing) for number, thing in found if number)


def undo(context: typer.Context, wanted: UndoTargets, done: TakenBack) -> None:
    for line in done.said:
        output.say(line)
    for kept in done.kept:
        output.complain(f"habitus: {kept}")


def pause(context: typer.Context, wanted: Nothing, done: PauseState) -> None:
    since = "" if done.paused is None else inputs.format_timestamp(done.paused.since)
    output.say(f"Paused since {since}. What people change themselves still works.")


def resume(context: typer.Context, wanted: Nothing, done: PauseState) -> None:
    output.say("Learning goes on." if done.undo else "Nothing was paused.")
