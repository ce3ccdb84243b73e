"""`habitus tasks …`: renders the tasks that examine a skill."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import typer

from habitus.app import Habitus
from habitus.app.tasks.drafting import DraftTasksResult
from habitus.app.tasks.proposing import TaskCandidate, describe_months_of_requests
from habitus.app.use_cases import tasks
from habitus.cli import output
from habitus.tasks.checks import RubricCheck
from habitus.tasks.judging import shorten_value
from habitus.tasks.model import Task, get_task_family


def print_result_of_list_tasks(context: typer.Context, result: tasks.TaskPage, name: str) -> None:
    for task in result.tasks:
        output.print_line(f"{task.id}: {_shorten_request(task)}", style="bold")
        reviewed = f", reviewed by {task.reviewed_by}" if task.reviewed_by else ""
        output.print_line(f"  {_describe_checks(task)}; {task.origin.kind}{reviewed}", style="dim")
        if task.id in result.unreviewed:
            output.print_line(f"  from {result.owner}, not reviewed: habitus review trust {name}", style="yellow")
    if not result.tasks:
        output.print_line(
            f"'{name}' has no tasks. Draft some: habitus tasks draft {name}; or add one: "
            f"habitus tasks add {name} --request … --expect …"
        )
    elif result.next:
        output.print_line(f"{result.total - len(result.tasks)} more: --after {result.next}", style="dim")


def _shorten_request(task: Task) -> str:
    return shorten_value(task.payload if task.is_for_tool else task.request, 100)


def _describe_checks(task: Task) -> str:
    """Return the kinds of a task's checks, and which are judged by a model."""
    said = [f"{one.kind} (by a model)" if isinstance(one, RubricCheck) else one.kind for one in task.checks]
    # A dict instead of a set keeps the order in which the checks run.
    return ", ".join(dict.fromkeys(said))


def perform_add_task(habitus: Habitus, request: tasks.AddTaskRequest) -> tasks.ChangeTaskResult:
    return tasks.add_task(habitus, replace(request, task=sys.stdin.read()) if request.task == "-" else request)


def print_result_of_add_task(context: typer.Context, result: tasks.ChangeTaskResult) -> None:
    family = get_task_family(result.task.id)
    copied = f" It asks the same as '{family}', and counts as a variant of it." if family != result.task.id else ""
    output.print_line(f"Task {result.task.id} was added to {result.skill}.{copied}")


def perform_edit_task(habitus: Habitus, request: tasks.EditTaskRequest) -> tasks.ChangeTaskResult:
    return tasks.edit_task(habitus, replace(request, task=sys.stdin.read()) if request.task == "-" else request)


def print_result_of_edit_task(context: typer.Context, result: tasks.ChangeTaskResult) -> None:
    output.print_line(f"Task {result.task.id} of {result.skill} was changed.")


def print_result_of_remove_task(context: typer.Context, result: tasks.ChangeTaskResult) -> None:
    output.print_line(f"Task {result.task.id} of {result.skill} was removed.")


def print_result_of_check_tasks(context: typer.Context, result: tasks.CheckTasksResult) -> None:
    bad = [one for one in result.tasks if not one.is_sound]
    for one in bad:
        output.print_line(f"{one.skill}, {one.task}: {one.reason}", style="yellow")
    output.print_line(f"{len(result.tasks) - len(bad)} of {output.format_quantity(len(result.tasks), 'task')} valid.")


def print_result_of_mine_tasks(context: typer.Context, result: tasks.MineTasksResult, apply: bool) -> None:
    _print_task_candidates(result.found)
    period = describe_months_of_requests(result.found)
    output.print_line(
        f"{output.format_quantity(len(result.found), 'task')}{f' from {period}' if period else ''} found."
    )
    if result.found:
        waits = f"Pending review: {output.format_command(context, 'review', 'list')}"
        output.print_line(
            waits if apply else "Nothing was saved; add --apply to propose them, or some of them by --only 1-5."
        )


def perform_draft_tasks(habitus: Habitus, request: tasks.DraftTasksRequest) -> DraftTasksResult:
    return tasks.draft_tasks(habitus, replace(request, tasks=sys.stdin.read()) if request.tasks == "-" else request)


def print_result_of_draft_tasks(context: typer.Context, result: DraftTasksResult) -> None:
    _print_task_candidates(result.found)
    for one in result.refused:
        output.print_line(f"Left out {one.task}: {one.reason}", style="yellow")
    spent = f" {result.spent[0].upper()}{result.spent[1:]}." if result.spent else ""
    output.print_line(f"{output.format_quantity(len(result.found), 'task')} drafted.{spent}")
    for number in dict.fromkeys(one.proposal for one in result.found):
        approve = output.format_command(context, "review", "approve", str(number))
        output.print_line(f"They do nothing until you approve them: {approve}, or some of them by --only 1-5.")


def _print_task_candidates(found: Sequence[TaskCandidate]) -> None:
    for number, one in enumerate(found, 1):
        output.print_line(f"{number}. {one.task.id}, {one.skill}: {_shorten_request(one.task)}", style="bold")
        files = f"; with {', '.join(one.task.files)}" if one.task.files else ""
        for line in (*one.reasons, f"passes if {one.criterion}{files}"):
            output.print_line(f"  {line}", style="dim")
