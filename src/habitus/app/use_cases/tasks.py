"""The tasks of skills: list, add, edit and remove them, check that they discriminate, and mine new ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.tasks.mining import MinedTask, MiningSource, find_task_candidates, propose_tasks
from habitus.app.tasks.storing import get_task, load_editable_tasks, load_tasks, save_tasks
from habitus.app.tasks.validation import TaskValidation, validate_tasks
from habitus.app.use_cases.declaration import after_option, argument, limit_option, option, paginate_items, use_case
from habitus.errors import Invalid, NotFound, Refused
from habitus.settings import Settings
from habitus.tasks.files import MAX_FIELD_CHARS, parse_task, parse_toml
from habitus.tasks.model import Task, TaskOrigin, TaskOriginKind

_SKILL = "The skill."
_WHOLE = "The whole task instead, as TOML or JSON; '-' reads it."
_CHECK = 'A check as JSON, such as {"kind": "file_exists", "path": "out.csv"}; may be repeated.'


@dataclass(frozen=True, kw_only=True)
class ListTasksRequest:
    name: str = argument(_SKILL, completes="skills")
    limit: int = limit_option()
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    tasks: Sequence[Task]
    next: str | None
    total: int


@use_case(
    "tasks list", route="GET /skills/{name}/tasks", access=Access.ADMIN, example=ListTasksRequest(name="csv-summary")
)
def list_tasks(home: Home, request: ListTasksRequest) -> TaskPage:
    """List the tasks that examine a skill: its own, rows of evals/evals.json, and the cases of its tool."""
    found = load_tasks(home, request.name)
    page = paginate_items("tasks", found, lambda task: task.id, limit=request.limit, after=request.after)
    return TaskPage(tasks=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class AddTaskRequest:
    name: str = argument(_SKILL, completes="skills")
    request: str = option("What is asked.", default="", longest=MAX_FIELD_CHARS)
    expect: tuple[str, ...] = option("A text that the reply must have; may be repeated.", default=())
    matches: str = option("A pattern that the reply must fit.", default="")
    check: tuple[str, ...] = option(_CHECK, default=())
    setup: str = option("Python that lays out the files.", default="")
    reference: str = option("A reply that passes, for 'tasks check'.", default="")
    id: str = option("Its id; else one is made.", default="")
    task: str = option(_WHOLE, default="")


@dataclass(frozen=True, kw_only=True)
class ChangeTaskResult:
    skill: str
    task: Task
    undo: tuple[str, ...]


@use_case(
    "tasks add",
    route="POST /skills/{name}/tasks",
    access=Access.ADMIN,
    example=AddTaskRequest(name="csv-summary", request="Sum up sales.csv", expect=("total",)),
    undo="tasks remove",
    status=201,
)
def add_task(home: Home, request: AddTaskRequest) -> ChangeTaskResult:
    """Add a task to a skill: the request, and the checks that decide whether it succeeded."""
    item = home.skills.find(request.name)
    if not (request.task or request.request):
        raise Invalid("The task asks nothing.", hint="Give --request and what shows that it went well, as --expect.")
    task = _mark_as_reviewed(
        home.settings, _parse_task_text(request.task) if request.task else _build_task_row(request)
    )
    if any(one.id == task.id for one in load_tasks(home, request.name)):
        raise Refused(f"'{item.name}' has a task '{task.id}' already.", hint="Edit that, or give another --id.")
    save_tasks(home, request.name, (*load_editable_tasks(home, item), task))
    return ChangeTaskResult(skill=item.name, task=task, undo=("tasks", "remove", request.name, task.id))


@dataclass(frozen=True, kw_only=True)
class EditTaskRequest:
    name: str = argument(_SKILL, completes="skills")
    id: str = argument("The id of the task.")
    request: str | None = option("What is asked.", longest=MAX_FIELD_CHARS)
    expect: tuple[str, ...] | None = option("A text that the reply must have, instead of the checks so far.")
    matches: str | None = option("A pattern that the reply must fit, instead of the checks so far.")
    check: tuple[str, ...] | None = option(f"Instead of the checks so far: {_CHECK}")
    setup: str | None = option("Python that lays out the files.")
    reference: str | None = option("A reply that passes, for 'tasks check'.")
    task: str = option(_WHOLE, default="")


@use_case(
    "tasks edit",
    route="PATCH /skills/{name}/tasks/{id}",
    access=Access.ADMIN,
    example=EditTaskRequest(name="csv-summary", id="tea", expect=("mean",)),
)
def edit_task(home: Home, request: EditTaskRequest) -> ChangeTaskResult:
    """Edit a task; a task from another file is then stored in tasks.toml under its id."""
    item, before = home.skills.find(request.name), get_task(home, request.name, request.id)
    if request.task:
        row = _parse_task_text(request.task)
    else:
        given = _build_task_row(request)
        if not given:
            raise Invalid("No change was given.", hint="Give --request, --expect, --check or --task.")
        old = before.as_json()
        # New checks replace the old ones: the two sets together were never meant by anyone.
        has_checks = any(key in given for key in ("expect", "matches", "check"))
        row = {**{key: value for key, value in old.items() if not (has_checks and key == "check")}, **given}
    task = replace(_mark_as_reviewed(home.settings, row), id=before.id)
    others = [one for one in load_editable_tasks(home, item) if one.id != before.id]
    # A task from evals.json or tool.json is overridden under its id; that file stays as it is.
    save_tasks(home, request.name, (*others, task))
    undo = ("tasks", "edit", request.name, before.id, "--task", json.dumps(before.as_json(), ensure_ascii=False))
    return ChangeTaskResult(skill=item.name, task=task, undo=undo)


@dataclass(frozen=True, kw_only=True)
class RemoveTaskRequest:
    name: str = argument(_SKILL, completes="skills")
    id: str = argument("The id of the task.")


@use_case(
    "tasks remove",
    route="DELETE /skills/{name}/tasks/{id}",
    access=Access.ADMIN,
    example=RemoveTaskRequest(name="csv-summary", id="tea"),
    undo="tasks add",
)
def remove_task(home: Home, request: RemoveTaskRequest) -> ChangeTaskResult:
    """Remove a task from a skill."""
    item, task = home.skills.find(request.name), get_task(home, request.name, request.id)
    kept = load_editable_tasks(home, item)
    if task not in kept:
        where = "its tool.json" if task.origin.kind is TaskOriginKind.TOOL else "its evals/evals.json"
        raise Refused(f"The task '{task.id}' of '{item.name}' stands in {where}.", hint="Take it out there.")
    save_tasks(home, request.name, (one for one in kept if one.id != task.id))
    undo = ("tasks", "add", request.name, "--task", json.dumps(task.as_json(), ensure_ascii=False))
    return ChangeTaskResult(skill=item.name, task=task, undo=undo)


@dataclass(frozen=True, kw_only=True)
class CheckTasksRequest:
    name: str = argument("The skill; else all that have tasks.", default="", completes="skills")


@dataclass(frozen=True, kw_only=True)
class CheckTasksResult:
    tasks: Sequence[TaskValidation]
    is_failed: bool


@use_case("tasks check", route="POST /tasks/check", access=Access.ADMIN, example=CheckTasksRequest(name="csv-summary"))
def check_tasks(home: Home, request: CheckTasksRequest) -> CheckTasksResult:
    """Check that each task can be passed and failed: its reference passes; doing nothing and its wrong result fail."""
    tasks: list[tuple[str, Task]] = []
    for name in [request.name] if request.name else [one.name for one in home.skills.list_skills() if one.summary]:
        # Another process may remove a skill while all of them are checked.
        with nullcontext() if request.name else suppress(NotFound):
            tasks += [(name, task) for task in load_tasks(home, name)]
    found = validate_tasks(home, tasks)
    return CheckTasksResult(tasks=found, is_failed=not all(one.is_sound for one in found))


@dataclass(frozen=True, kw_only=True)
class MineTasksRequest:
    source: MiningSource = option("sessions or transcripts.", "--from", default=MiningSource.SESSIONS)
    skill: str = option("Only tasks of this skill.", default="")
    apply: bool = option("Propose what is found; nothing is used before you say yes.", default=False)


@dataclass(frozen=True, kw_only=True)
class MineTasksResult:
    found: Sequence[MinedTask]


@use_case("tasks mine", route="POST /tasks/mine", access=Access.ADMIN, example=MineTasksRequest())
def mine_tasks(home: Home, request: MineTasksRequest) -> MineTasksResult:
    """Find tasks in requests that were repeated and led to an accepted result."""
    found = find_task_candidates(
        home, request.source, skill=home.skills.find(request.skill).name if request.skill else ""
    )
    return MineTasksResult(found=propose_tasks(home, found) if request.apply else found)


def _build_task_row(request: AddTaskRequest | EditTaskRequest) -> dict[str, Any]:
    """Build a task row from the options that were given."""
    row: dict[str, Any] = {
        key: value for key in ("request", "matches", "setup") if (value := getattr(request, key)) not in (None, "")
    }
    if request.expect:
        row["expect"] = list(request.expect)
    if request.check:
        row["check"] = [_parse_json(text) for text in request.check]
    if request.reference:
        row["reference"] = {"reply": request.reference}
    return row | ({"id": request.id} if isinstance(request, AddTaskRequest) and request.id else {})


def _parse_task_text(text: str) -> dict[str, Any]:
    """Parse a whole task from TOML or JSON."""
    row = _parse_json(text) if text.lstrip().startswith("{") else parse_toml(text, about="The task")
    tasks = row.get("task") if isinstance(row, dict) else None
    return tasks[0] if isinstance(tasks, list) and len(tasks) == 1 else row


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"'{text[:60]}' is not JSON: {error}.", hint='Write {"kind": "contains", "text": "…"}.') from None


def _mark_as_reviewed(settings: Settings, row: dict[str, Any]) -> Task:
    """Build the task, reviewed by this user unless it says otherwise."""
    task = parse_task(row, "the task", origin=TaskOrigin(kind=TaskOriginKind.PERSON))
    return task if task.reviewed_by else replace(task, reviewed_by=settings.signature)
