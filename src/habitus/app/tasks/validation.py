"""Validation of tasks: whether a task can be passed and can be failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from habitus.app.home import Home
from habitus.app.tasks.workspaces import open_task_workspace
from habitus.events import Outcome, OutcomeKind
from habitus.tasks.judging import judge_submission
from habitus.tasks.model import Submission, Task, TaskSolution, ToolCallOfAttempt


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskValidation:
    """Whether a task distinguishes right from wrong solutions; `reason` says why not."""

    task: str
    is_sound: bool
    reason: str = ""
    skill: str = ""


def validate_tasks(home: Home, tasks: Iterable[tuple[str, Task]]) -> list[TaskValidation]:
    """Validate tasks, each with the name of its skill."""

    async def validate_all() -> list[TaskValidation]:
        return [await validate_task(home, task, skill=skill) for skill, task in tasks]

    return asyncio.run(validate_all())


async def validate_task(home: Home, task: Task, *, skill: str = "") -> TaskValidation:
    problem = await _find_task_problem(home, task)
    return TaskValidation(task=task.id, is_sound=not problem, reason=problem, skill=skill)


async def _find_task_problem(home: Home, task: Task) -> str:
    """Judge the reference, a wrong solution if there is one, and an empty one: only the reference may pass."""
    right = task.stored_or_implied_solution
    if right is None:
        return "nothing shows that it can be passed: it has no reference"
    solutions = {"its reference solution": right, "its wrong solution": task.wrong, "doing nothing": TaskSolution()}
    for name, solution in solutions.items():
        if solution is None:
            continue
        outcome = await _judge_solution(home, task, solution)
        if outcome.kind is OutcomeKind.INFRA:
            return outcome.reason
        if outcome.is_ok is not (solution is right):
            return f"{name} {'passes' if outcome.is_ok else f'does not pass: {outcome.reason}'}"
    return ""


async def _judge_solution(home: Home, task: Task, solution: TaskSolution) -> Outcome:
    calls = tuple(ToolCallOfAttempt(tool=call.split()[0], command=call) for call in solution.calls)
    if not task.needs_workspace and not solution.code:
        return (await judge_submission(task, Submission(reply=solution.reply, calls=calls))).outcome
    async with open_task_workspace(home, task) as workspace:
        if not workspace.setup.is_ok:
            return workspace.setup
        if solution.code:
            await workspace.run_code(solution.code)
        return (
            await judge_submission(task, Submission(reply=solution.reply, calls=calls, workspace=workspace))
        ).outcome
