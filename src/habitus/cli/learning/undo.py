"""`habitus undo`, `rollback`, `pause` and `resume`: renders results and asks before a rollback."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from habitus.app import Habitus
from habitus.app.library.undoing import RollbackResult, UndoResult
from habitus.app.use_cases import undoing
from habitus.app.use_cases.pausing import LearningPauseStatus
from habitus.cli import inputs, output
from habitus.skills.layers.layer import USER_LAYER


def get_question_before_rollback_home(habitus: Habitus, to: str, dry_run: bool, print_line: Callable[..., None]) -> str:
    """Preview the rollback and return the question; empty without a terminal, since a rollback can be undone."""
    planned = undoing.rollback_home(habitus, to=to, dry_run=True)
    for step in planned.steps:
        name = step.name if step.layer == USER_LAYER else f"{step.name}@{step.layer}"
        print_line(f"{step.action:<8} {name}" + (f" (version {step.version})" if step.version else ""))
    for lesson in planned.lessons:
        print_line(f"{lesson.action:<8} lesson {lesson.id}: {lesson.text}")
    what = _describe_rollback_counts(planned)
    is_asked = bool(what) and not dry_run and sys.stdin.isatty()
    return f"Roll back {what} to {inputs.format_timestamp(planned.to)}?" if is_asked else ""


def print_result_of_rollback_home(context: typer.Context, result: RollbackResult, dry_run: bool) -> None:
    what, timestamp = _describe_rollback_counts(result), inputs.format_timestamp(result.to)
    if not what:
        output.print_line(f"Nothing has changed since {timestamp}.")
    elif not dry_run:
        are = "was" if what in ("1 skill", "1 lesson") else "were"
        output.print_line(f"{what} {are} rolled back to {timestamp}.")


def _describe_rollback_counts(result: RollbackResult) -> str:
    """Return how many skills and lessons a rollback changes, in words."""
    skills = {(step.layer, step.name) for step in result.steps}
    found = ((len(skills), "skill"), (len(result.lessons), "lesson"))
    return " and ".join(output.format_quantity(number, thing) for number, thing in found if number)


def print_result_of_undo_changes(context: typer.Context, result: UndoResult) -> None:
    for line in result.messages:
        output.print_line(line)
    for kept in result.failures:
        output.print_line_to_stderr(f"habitus: {kept}")


def print_result_of_pause_learning(context: typer.Context, result: LearningPauseStatus) -> None:
    since = "" if result.paused is None else inputs.format_timestamp(result.paused.since)
    output.print_line(f"Paused since {since}. Changes by people are still possible.")


def print_result_of_resume_learning(context: typer.Context, result: LearningPauseStatus) -> None:
    output.print_line("Learning has resumed." if result.undo else "Nothing was paused.")
