"""`habitus tasks …`: renders the tasks that examine a skill."""

from __future__ import annotations

import sys
from dataclasses import replace

import typer

from habitus.app import Habitus
from habitus.app.use_cases import tasks
from habitus.app.use_cases.tasks import (
    ChangedTask,
    CheckedTasks,
    MinedTasks,
    NewTask,
    OneTask,
    TaskCheck,
    TaskEdit,
    TaskList,
    TaskMining,
    TaskPage,
)
from habitus.cli import output
from habitus.tasks.checks import Rubric
from habitus.tasks.judging import short
from habitus.tasks.model import Task


def list_tasks(context: typer.Context, wanted: TaskList, done: TaskPage) -> None:
    for task in done.tasks:
        output.say(f"{task.id}: {_short_request(task)}", style="bold")
        reviewed = f", reviewed by {task.reviewed_by}" if task.reviewed_by else ""
        output.say(f"  {_checks(task)}; {task.origin.kind}{reviewed}", style="dim")
    if not done.tasks:
        output.say(f"'{wanted.name}' has no tasks. Add one: habitus tasks add {wanted.name} --request … --expect …")
    elif done.next:
        output.say(f"{done.total - len(done.tasks)} more: --after {done.next}", style="dim")


def _short_request(task: Task) -> str:
    return short(task.payload if task.is_for_tool else task.request, 100)


def _checks(task: Task) -> str:
    """Return the kinds of a task's checks, and which are judged by a model."""
    said = [f"{one.kind} (by a model)" if isinstance(one, Rubric) else one.kind for one in task.checks]
    # A dict instead of a set keeps the order in which the checks run.
    return ", ".join(dict.fromkeys(said))


def perform_add(habitus: Habitus, wanted: NewTask) -> ChangedTask:
    return tasks.add(habitus, replace(wanted, task=sys.stdin.read()) if wanted.task == "-" else wanted)


def add(context: typer.Context, wanted: NewTask, done: ChangedTask) -> None:
    output.say(f"{done.skill} has the task {done.task.id}.")


def perform_edit(habitus: Habitus, wanted: TaskEdit) -> ChangedTask:
    return tasks.edit(habitus, replace(wanted, task=sys.stdin.read()) if wanted.task == "-" else wanted)


def edit(context: typer.Context, wanted: TaskEdit, done: ChangedTask) -> None:
    output.say(f"The task {done.task.id} of {done.skill} is changed.")


def remove(context: typer.Context, wanted: OneTask, done: ChangedTask) -> None:
    output.say(f"{done.skill} has no task {done.task.id} any more.")


def check(context: typer.Context, wanted: TaskCheck, done: CheckedTasks) -> None:
    bad = [one for one in done.tasks if not one.is_sound]
    for one in bad:
        output.say(f"{one.skill}, {one.task}: {one.reason}", style="yellow")
    output.say(f"{len(done.tasks) - len(bad)} of {output.count_of(len(done.tasks), 'task')} tell right from wrong.")


def mine(context: typer.Context, wanted: TaskMining, done: MinedTasks) -> None:
    for one in done.found:
        output.say(f"{one.skill}: {_short_request(one.task)}", style="bold")
        for line in (*one.evidence, f"checks: {_checks(one.task)}"):
            output.say(f"  {line}", style="dim")
    output.say(f"{output.count_of(len(done.found), 'task')} found.")
    if done.found:
        waits = f"They wait for you: {output.command(context, 'review', 'list')}"
        output.say(waits if wanted.apply else "Nothing was kept; --apply puts them before you as proposals.")
