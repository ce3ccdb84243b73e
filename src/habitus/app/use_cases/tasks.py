"""The tasks of skills: list, add, edit and remove them, check that they discriminate, and mine new ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.tasks.mining import MinedFrom, MinedTask, find_tasks, propose_tasks
from habitus.app.tasks.storing import keep_tasks, kept_tasks, task_named, tasks_of
from habitus.app.tasks.validation import TaskValidation, validate_tasks
from habitus.app.use_cases.declaration import after_option, argument, limit_option, option, page_of, use_case
from habitus.errors import Invalid, NotFound, Refused
from habitus.settings import Settings
from habitus.tasks.files import LONGEST_FIELD, parse_toml, task_of
from habitus.tasks.model import Origin, OriginKind, Task

_SKILL = "The skill."
_WHOLE = "The whole task instead, as TOML or JSON; '-' reads it."
_CHECK = 'A check as JSON, such as {"kind": "file_exists", "path": "out.csv"}; may be repeated.'


@dataclass(frozen=True, kw_only=True)
class TaskList:
    name: str = argument(_SKILL, completes="skills")
    limit: int = limit_option()
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class TaskPage:
    tasks: Sequence[Task]
    next: str | None
    total: int


@use_case("tasks list", route="GET /skills/{name}/tasks", access=Access.ADMIN, example=TaskList(name="csv-summary"))
def list_tasks(home: Home, wanted: TaskList) -> TaskPage:
    """List the tasks that examine a skill: its own, rows of evals/evals.json, and the cases of its tool."""
    found = tasks_of(home, wanted.name)
    page = page_of("tasks", found, lambda task: task.id, limit=wanted.limit, after=wanted.after)
    return TaskPage(tasks=page.items, next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class NewTask:
    name: str = argument(_SKILL, completes="skills")
    request: str = option("What is asked.", default="", longest=LONGEST_FIELD)
    expect: tuple[str, ...] = option("A text that the reply must have; may be repeated.", default=())
    matches: str = option("A pattern that the reply must fit.", default="")
    check: tuple[str, ...] = option(_CHECK, default=())
    setup: str = option("Python that lays out the files.", default="")
    reference: str = option("A reply that passes, for 'tasks check'.", default="")
    id: str = option("Its id; else one is made.", default="")
    task: str = option(_WHOLE, default="")


@dataclass(frozen=True, kw_only=True)
class ChangedTask:
    skill: str
    task: Task
    undo: tuple[str, ...]


@use_case(
    "tasks add",
    route="POST /skills/{name}/tasks",
    access=Access.ADMIN,
    example=NewTask(name="csv-summary", request="Sum up sales.csv", expect=("total",)),
    undo="tasks remove",
    status=201,
)
def add(home: Home, wanted: NewTask) -> ChangedTask:
    """Add a task to a skill: the request, and the checks that decide whether it succeeded."""
    item = home.skills.find(wanted.name)
    if not (wanted.task or wanted.request):
        raise Invalid("The task asks nothing.", hint="Give --request and what shows that it went well, as --expect.")
    task = _as_reviewed(home.settings, _row(wanted.task) if wanted.task else _given_fields(wanted))
    if any(one.id == task.id for one in tasks_of(home, wanted.name)):
        raise Refused(f"'{item.name}' has a task '{task.id}' already.", hint="Edit that, or give another --id.")
    keep_tasks(home, wanted.name, (*kept_tasks(home, item), task))
    return ChangedTask(skill=item.name, task=task, undo=("tasks", "remove", wanted.name, task.id))


@dataclass(frozen=True, kw_only=True)
class TaskEdit:
    name: str = argument(_SKILL, completes="skills")
    id: str = argument("The id of the task.")
    request: str | None = option("What is asked.", longest=LONGEST_FIELD)
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
    example=TaskEdit(name="csv-summary", id="tea", expect=("mean",)),
)
def edit(home: Home, wanted: TaskEdit) -> ChangedTask:
    """Edit a task; a task from another file is then stored in tasks.toml under its id."""
    item, before = home.skills.find(wanted.name), task_named(home, wanted.name, wanted.id)
    if wanted.task:
        row = _row(wanted.task)
    else:
        given = _given_fields(wanted)
        if not given:
            raise Invalid("No change was given.", hint="Give --request, --expect, --check or --task.")
        old = before.as_json()
        # New checks replace the old ones: the two sets together were never meant by anyone.
        has_checks = any(key in given for key in ("expect", "matches", "check"))
        row = {**{key: value for key, value in old.items() if not (has_checks and key == "check")}, **given}
    task = replace(_as_reviewed(home.settings, row), id=before.id)
    others = [one for one in kept_tasks(home, item) if one.id != before.id]
    # A task from evals.json or tool.json is overridden under its id; that file stays as it is.
    keep_tasks(home, wanted.name, (*others, task))
    undo = ("tasks", "edit", wanted.name, before.id, "--task", json.dumps(before.as_json(), ensure_ascii=False))
    return ChangedTask(skill=item.name, task=task, undo=undo)


@dataclass(frozen=True, kw_only=True)
class OneTask:
    name: str = argument(_SKILL, completes="skills")
    id: str = argument("The id of the task.")


@use_case(
    "tasks remove",
    route="DELETE /skills/{name}/tasks/{id}",
    access=Access.ADMIN,
    example=OneTask(name="csv-summary", id="tea"),
    undo="tasks add",
)
def remove(home: Home, wanted: OneTask) -> ChangedTask:
    """Remove a task from a skill."""
    item, task = home.skills.find(wanted.name), task_named(home, wanted.name, wanted.id)
    kept = kept_tasks(home, item)
    if task not in kept:
        where = "its tool.json" if task.origin.kind is OriginKind.TOOL else "its evals/evals.json"
        raise Refused(f"The task '{task.id}' of '{item.name}' stands in {where}.", hint="Take it out there.")
    keep_tasks(home, wanted.name, (one for one in kept if one.id != task.id))
    undo = ("tasks", "add", wanted.name, "--task", json.dumps(task.as_json(), ensure_ascii=False))
    return ChangedTask(skill=item.name, task=task, undo=undo)


@dataclass(frozen=True, kw_only=True)
class TaskCheck:
    name: str = argument("The skill; else all that have tasks.", default="", completes="skills")


@dataclass(frozen=True, kw_only=True)
class CheckedTasks:
    tasks: Sequence[TaskValidation]
    is_failed: bool


@use_case("tasks check", route="POST /tasks/check", access=Access.ADMIN, example=TaskCheck(name="csv-summary"))
def check(home: Home, wanted: TaskCheck) -> CheckedTasks:
    """Check that each task can be passed and failed: its reference passes; doing nothing and its wrong result fail."""
    tasks: list[tuple[str, Task]] = []
    for name in [wanted.name] if wanted.name else [one.name for one in home.skills.listing() if one.summary]:
        # Another process may remove a skill while all of them are checked.
        with nullcontext() if wanted.name else suppress(NotFound):
            tasks += [(name, task) for task in tasks_of(home, name)]
    found = validate_tasks(home, tasks)
    return CheckedTasks(tasks=found, is_failed=not all(one.is_sound for one in found))


@dataclass(frozen=True, kw_only=True)
class TaskMining:
    source: MinedFrom = option("sessions or transcripts.", "--from", default=MinedFrom.SESSIONS)
    skill: str = option("Only tasks of this skill.", default="")
    apply: bool = option("Propose what is found; nothing is used before you say yes.", default=False)


@dataclass(frozen=True, kw_only=True)
class MinedTasks:
    found: Sequence[MinedTask]


@use_case("tasks mine", route="POST /tasks/mine", access=Access.ADMIN, example=TaskMining())
def mine(home: Home, wanted: TaskMining) -> MinedTasks:
    """Find tasks in requests that were repeated and led to an accepted result."""
    found = find_tasks(home, wanted.source, skill=home.skills.find(wanted.skill).name if wanted.skill else "")
    return MinedTasks(found=propose_tasks(home, found) if wanted.apply else found)


def _given_fields(wanted: NewTask | TaskEdit) -> dict[str, Any]:
    """Build a task row from the options that were given."""
    row: dict[str, Any] = {
        key: value for key in ("request", "matches", "setup") if (value := getattr(wanted, key)) not in (None, "")
    }
    if wanted.expect:
        row["expect"] = list(wanted.expect)
    if wanted.check:
        row["check"] = [_json(text) for text in wanted.check]
    if wanted.reference:
        row["reference"] = {"reply": wanted.reference}
    return row | ({"id": wanted.id} if isinstance(wanted, NewTask) and wanted.id else {})


def _row(text: str) -> dict[str, Any]:
    """Parse a whole task from TOML or JSON."""
    row = _json(text) if text.lstrip().startswith("{") else parse_toml(text, about="The task")
    tasks = row.get("task") if isinstance(row, dict) else None
    return tasks[0] if isinstance(tasks, list) and len(tasks) == 1 else row


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"'{text[:60]}' is not JSON: {error}.", hint='Write {"kind": "contains", "text": "…"}.') from None


def _as_reviewed(settings: Settings, row: dict[str, Any]) -> Task:
    """Build the task, reviewed by this user unless it says otherwise."""
    task = task_of(row, "the task", origin=Origin(kind=OriginKind.PERSON))
    return task if task.reviewed_by else replace(task, reviewed_by=settings.signature)
