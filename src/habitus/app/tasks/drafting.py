"""Drafted tasks: a model, or the person's own agent, writes tasks from the text of a skill without history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from habitus.app.conversations.models import open_session_models_for_name
from habitus.app.home import Home
from habitus.app.learning.code_drafting import build_prompt_parts_from_skill
from habitus.app.tasks.proposing import TaskCandidate, list_known_task_ids, list_pending_tasks, propose_tasks
from habitus.app.tasks.storing import load_tasks
from habitus.app.tasks.validation import TaskValidation, validate_task
from habitus.errors import HabitusError, Invalid
from habitus.improve.tasks import rename_near_copies_as_variants
from habitus.learning.budget import RunBudget
from habitus.learning.drafting import draft_task_rows_for_skill
from habitus.skills.model import SkillState
from habitus.tasks.checks import ReplyContainsCheck
from habitus.tasks.files import parse_task
from habitus.tasks.model import Task, TaskOrigin, TaskOriginKind

DRAFTED_TASKS = 20
_ORIGIN = TaskOrigin(kind=TaskOriginKind.DRAFTED)


@dataclass(frozen=True, kw_only=True, slots=True)
class DraftTasksResult:
    """The drafts that are pending review, and why others were refused."""

    found: Sequence[TaskCandidate]
    refused: Sequence[TaskValidation] = ()
    spent: str = ""


async def draft_and_propose_skill_tasks(
    home: Home, name: str, *, model: str = "", count: int = DRAFTED_TASKS
) -> DraftTasksResult:
    """Let a model draft tasks for a skill, and propose those that can be passed and failed."""
    home.pause.refuse_if_paused()
    material = await asyncio.to_thread(describe_skill_for_task_drafter, home, name)
    models = open_session_models_for_name(home.settings, model) if model else home.models
    drafter = RunBudget(day=home.spending).wrap_model(models.main)
    try:
        rows = await draft_task_rows_for_skill(drafter, material, count, redactor=home.redactor)
    finally:
        await models.close()
    return await validate_and_propose_task_drafts(home, name, rows, by=drafter.name, spent=drafter.budget.summary)


def describe_skill_for_task_drafter(home: Home, name: str) -> str:
    """Return the text of a skill for whoever drafts its tasks."""
    if not name:
        raise Invalid("Which skill?", hint="Give its name.")
    item = home.skills.find(name)
    if item.summary is None or item.state is not SkillState.OK:
        raise Invalid(f"'{item.name}' can't be examined: it is {item.state}.", hint=f"{item.reason or 'Fix it'} first.")
    return home.redact("\n\n".join(build_prompt_parts_from_skill(home.skills, f"{item.name}@{item.layer}")))


async def validate_and_propose_task_drafts(
    home: Home, name: str, rows: Sequence[Mapping[str, Any]], *, by: str, spent: str = ""
) -> DraftTasksResult:
    """Propose the drafts that are sound and new; they do nothing until a person has ticked them."""
    skill = home.skills.find(name).name
    known = await asyncio.to_thread(list_known_task_ids, home, skill)
    tasks = [*await asyncio.to_thread(load_tasks, home, skill)]
    tasks += [one.task for one in await asyncio.to_thread(list_pending_tasks, home, skill)]
    found: list[TaskCandidate] = []
    refused: list[TaskValidation] = []
    for number, row in enumerate(rows, 1):
        task, problem = _parse_task_draft(row, number)
        if task is not None and task.id in known:
            problem = "it exists already"
        if task is not None and not problem:
            problem = _find_draft_objection(home.redact, task) or (await validate_task(home, task)).reason
        if task is None or problem:
            id = task.id if task is not None else f"draft {number}"
            refused.append(TaskValidation(task=id, is_sound=False, reason=problem, skill=skill))
            continue
        known.add(task.id)
        (task,) = rename_near_copies_as_variants([task], tasks)
        tasks.append(task)
        found.append(TaskCandidate(skill=skill, task=task, evidence=(f"drafted from the skill's text by {by}",)))
    reason = f"tasks from the skill's text, drafted by {by}"
    proposed = await asyncio.to_thread(propose_tasks, home, found, source="drafting", reason=reason)
    return DraftTasksResult(found=proposed, refused=refused, spent=spent)


def _parse_task_draft(row: Mapping[str, Any], number: int) -> tuple[Task | None, str]:
    # Ids, origin and reviewer are not for a draft to say: it could pass for a person's, or replace a task.
    given = {key: value for key, value in row.items() if key not in ("id", "origin", "reviewed_by")}
    try:
        return parse_task(given, f"draft {number}", origin=_ORIGIN), ""
    except HabitusError as error:
        return None, str(error)


def _find_draft_objection(redact: Callable[[str], str], task: Task) -> str:
    """Return why a draft must not be used, whether or not it is sound."""
    text = json.dumps(task.as_json(), ensure_ascii=False)
    if redact(text) != text:
        return "it contains a secret"
    asked = task.request.casefold()
    given = next(
        (one.text for one in task.checks if isinstance(one, ReplyContainsCheck) and one.text.casefold() in asked), ""
    )
    return f"its request contains its answer, “{given}”" if given else ""
