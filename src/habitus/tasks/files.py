"""Task files: parse and write `evals/tasks.toml` and rows of other files with the same fields."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from habitus.errors import Invalid, did_you_mean
from habitus.tasks.checks import (
    Check,
    PythonValidatorCheck,
    ReplyContainsCheck,
    ReplyMatchesPatternCheck,
    RubricCheck,
    check_to_row,
    find_reason_path_leaves_folder,
    parse_check,
)
from habitus.tasks.model import Task, TaskOrigin, TaskOriginKind, TaskSolution, compute_task_id
from habitus.tasks.patterns import count_pattern_instructions
from habitus.tasks.schema import Json

MAX_FIELD_CHARS = 20_000  # characters of one text
MAX_TASKS = 1_000  # tasks of one file
_MAX_CHECKS = 100  # of one task
# Instructions of all patterns of a file together: a stranger's file could compile for hours otherwise.
_MAX_PATTERN_SIZE = 4_000_000
_FIELDS = ("id", "request", "payload", "files", "setup", "check", "origin", "reviewed_by", "domain", "reference")
_KNOWN = (*_FIELDS, "wrong", "expect", "matches", "validator", "task")
_REQUESTS = ("request", "task", "query", "prompt")
_FORM = 'Write [[task]] with a request and a [[task.check]], such as kind = "contains" with a text.'


def parse_task_rows(
    rows: Sequence[tuple[str, Any]], *, about: str, origin: TaskOrigin | None = None, is_foreign: bool = False
) -> list[Task]:
    """Parse the rows of one file, each with its place in it; raise `Invalid` for too many, or patterns too large."""
    if len(rows) > MAX_TASKS:
        raise Invalid(f"{about} has {len(rows):,} tasks.", hint=f"{MAX_TASKS:,} is the most.")
    tasks: list[Task] = []
    size = 0
    for where, row in rows:
        tasks.append(parse_task(row, where, origin=origin, is_foreign=is_foreign))
        size += sum(
            count_pattern_instructions(check.pattern)
            for check in tasks[-1].checks
            if isinstance(check, ReplyMatchesPatternCheck)
        )
        if size > _MAX_PATTERN_SIZE:
            raise Invalid(f"The patterns of {about} are too large together.", hint="Use smaller repetitions.")
    return tasks


def parse_tasks_toml(text: str, *, about: str) -> tuple[Task, ...]:
    """Parse the tasks of a `tasks.toml`."""
    rows = parse_toml(text, about=about)
    unknown = sorted(rows.keys() - {"task"})
    listed = rows.get("task", [])
    if unknown or not isinstance(listed, list):
        raise Invalid(f"{about} has '{unknown[0] if unknown else 'task'}' where [[task]] belongs.", hint=_FORM)
    tasks = parse_task_rows([(f"task {number} of {about}", row) for number, row in enumerate(listed, 1)], about=about)
    ids = [task.id for task in tasks]
    if twice := next((id for id in ids if ids.count(id) > 1), ""):
        raise Invalid(f"{about} has two tasks with the id '{twice}'.", hint="Give one of them another.")
    return tuple(tasks)


def parse_toml(text: str, *, about: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Invalid(f"{about} is not TOML: {error}.", hint="Correct it.") from None


def serialize_tasks(tasks: Iterable[Task]) -> str:
    """Return the text that `parse_tasks_toml` parses."""
    import tomlkit  # slow to import, needed only for writing

    return tomlkit.dumps({"task": [_task_to_row(task) for task in tasks]})


def serialize_task(task: Task) -> str:
    """Return a file with this task alone."""
    import tomlkit

    return tomlkit.dumps(_task_to_row(task))


def parse_task(
    row: Any, where: str, *, origin: TaskOrigin | None = None, id: str = "", is_foreign: bool = False
) -> Task:
    """Return the task of a row; `is_foreign` ignores unknown fields, which another program may have written."""
    given = {key: _to_json_value(value) for key, value in row.items()} if isinstance(row, Mapping) else {}
    given = _decode_json_field(given, "payload", where)
    if not is_foreign and (unknown := sorted(given.keys() - set(_KNOWN))):
        hint = did_you_mean(unknown[0], _KNOWN) or f"There are: {', '.join(_FIELDS)}, wrong."
        raise Invalid(f"A task has no '{unknown[0]}', in {where}.", hint=hint)
    request = next((_get_text_field(given, key, where) for key in _REQUESTS if given.get(key)), "")
    payload = given.get("payload")
    if not request.strip() and "payload" not in given:
        raise Invalid(f"There is no 'request' in {where}.", hint=_FORM)
    checks = _parse_checks(given, where)
    if not checks:
        raise Invalid(f"There is no check in {where}, so it can't be judged.", hint=_FORM)
    files, setup = _parse_files(given, where, is_foreign), _get_text_field(given, "setup", where)
    return Task(
        id=_parse_id(given, where) or id or compute_task_id(request, payload, files, setup),
        request=request,
        payload=payload,
        files=files,
        setup=setup,
        checks=checks,
        origin=_parse_origin(given, where) or origin or TaskOrigin(kind=TaskOriginKind.FILE),
        reviewed_by=_get_text_field(given, "reviewed_by", where),
        domain=_get_text_field(given, "domain", where),
        reference=_parse_solution(given, "reference", where),
        wrong=_parse_solution(given, "wrong", where),
    )


def parse_json_rows(text: str, *, about: str) -> Sequence[Any]:
    """Return the rows of a JSON file: a list, or one under 'evals', 'cases' or 'tasks'."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{about} is not JSON: {error}.", hint="Correct it.") from None
    rows = (
        next((data[key] for key in ("evals", "cases", "tasks") if key in data), None)
        if isinstance(data, dict)
        else data
    )
    if not isinstance(rows, list):
        raise Invalid(
            f"{about} has no list of tasks.", hint='Write [{"request": "…", "expect": "a part of a good answer"}].'
        )
    return rows


def is_evals_row_with_expected_result(row: Any) -> bool:
    """Return whether a row of `evals/evals.json` states an expected result, and is not only a trigger case."""
    return isinstance(row, dict) and any(row.get(key) for key in ("expect", "matches", "check", "expectations"))


def _parse_checks(given: Mapping[str, Any], where: str) -> tuple[Check, ...]:
    """Return the checks of the rows, and those of the short forms."""
    rows = given.get("check", [])
    if not isinstance(rows, list):
        raise Invalid(f"'check' is not a list in {where}.", hint=_FORM)
    if len(rows) > _MAX_CHECKS:
        raise Invalid(f"{where} has {len(rows):,} checks.", hint=f"{_MAX_CHECKS} is the most.")
    found: list[Check] = [parse_check(_decode_json_field(row, "value", where), where) for row in rows]
    found += [ReplyContainsCheck(text=text) for text in _get_text_list_field(given, "expect", where)]
    if matches := _get_text_field(given, "matches", where):
        found.append(parse_check({"kind": ReplyMatchesPatternCheck.kind, "pattern": matches}, where))
    if validator := _get_text_field(given, "validator", where):
        found.append(PythonValidatorCheck(code=validator))
    return (*found, *(RubricCheck(text=text) for text in _get_text_list_field(given, "expectations", where)))


def _parse_id(given: Mapping[str, Any], where: str) -> str:
    id = given.get("id", "")
    if isinstance(id, int) and not isinstance(id, bool):
        return str(id)
    if not isinstance(id, str) or len(id) > 80 or (id and not id.isprintable()):
        raise Invalid(f"The id of {where} is not a short text.", hint="Write letters, digits and hyphens.")
    return id.strip()


def _get_text_field(given: Mapping[str, Any], key: str, where: str) -> str:
    value = given.get(key, "")
    if not isinstance(value, str):
        raise Invalid(f"'{key}' of {where} is not text.", hint="Write it in quotes.")
    if len(value) > MAX_FIELD_CHARS:
        raise Invalid(f"'{key}' of {where} has {len(value):,} characters.", hint=f"Keep it below {MAX_FIELD_CHARS:,}.")
    return value


def _get_text_list_field(given: Mapping[str, Any], key: str, where: str) -> list[str]:
    value = given.get(key) or []
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise Invalid(f"'{key}' of {where} is neither text nor a list of texts.", hint=_FORM)
    return texts


def _parse_files(given: Mapping[str, Any], where: str, is_foreign: bool) -> dict[str, str]:
    files = given.get("files", {})
    if is_foreign and not isinstance(files, Mapping):
        return {}
    if not isinstance(files, Mapping) or not all(isinstance(text, str) for text in files.values()):
        raise Invalid(f"'files' of {where} is not a table of path and text.", hint='Write files = { "a.csv" = "…" }.')
    if problem := next(filter(None, map(find_reason_path_leaves_folder, files)), ""):
        raise Invalid(f"'files' of {where}: {problem}.", hint="Name it by its path in the task's folder.")
    return dict(files)


def _parse_origin(given: Mapping[str, Any], where: str) -> TaskOrigin | None:
    value = given.get("origin")
    if value is None:
        return None
    row = {"kind": value} if isinstance(value, str) else value
    if not isinstance(row, Mapping) or row.get("kind") not in list(TaskOriginKind):
        raise Invalid(f"'origin' of {where} is unknown.", hint=f"There are: {', '.join(TaskOriginKind)}.")
    return TaskOrigin(
        kind=TaskOriginKind(row["kind"]),
        conversation=_get_text_field(row, "conversation", where),
        user=_get_text_field(row, "user", where),
    )


def _parse_solution(given: Mapping[str, Any], key: str, where: str) -> TaskSolution | None:
    """Parse a table, or the code alone."""
    value = given.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        return TaskSolution(code=_get_text_field(given, key, where))
    if not isinstance(value, Mapping) or not value or (value.keys() - {"reply", "code", "calls"}):
        raise Invalid(f"'{key}' of {where} is not a solution.", hint="Give reply, code or calls.")
    calls = tuple(_get_text_list_field(value, "calls", where))
    return TaskSolution(
        reply=_get_text_field(value, "reply", where), code=_get_text_field(value, "code", where), calls=calls
    )


def _to_json_value(value: Any) -> Json:
    """Convert values that TOML has beyond JSON to text."""
    match value:
        case dict():
            return {key: _to_json_value(item) for key, item in value.items()}
        case list():
            return [_to_json_value(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
    return value


def _decode_json_field(row: Any, key: str, where: str) -> Any:
    """Decode a field that was written as JSON text."""
    if not isinstance(row, dict) or f"{key}_json" not in row:
        return row
    try:
        value = json.loads(row[f"{key}_json"])
    except (ValueError, TypeError, RecursionError):
        raise Invalid(f"'{key}_json' of {where} is not JSON text.", hint="Correct it.") from None
    return {**{name: item for name, item in row.items() if name != f"{key}_json"}, key: value}


def _task_to_row(task: Task) -> dict[str, Json]:
    return {**_make_toml_row(task.as_json()), "check": [_make_toml_row(check_to_row(check)) for check in task.checks]}


def _make_toml_row(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return a row that TOML can hold: a value that contains null is written as JSON text."""
    return {
        f"{key}_json" if _has_null(item) else key: json.dumps(item, ensure_ascii=False) if _has_null(item) else item
        for key, item in row.items()
        if key != "check"
    }


def _has_null(value: Json) -> bool:
    below = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return value is None or any(map(_has_null, below))
