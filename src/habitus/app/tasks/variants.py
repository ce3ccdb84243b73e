"""Variants by rule: a task with other values, whose answer the skill's own code or the task's validator recomputes.

Variants tell more about one kind of request, not about new ones: with their task they are one family, which belongs to
one split and counts as one observation.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from habitus.app.conversations.running_code import open_tools_and_run_work
from habitus.app.home import Home
from habitus.app.tasks.proposing import TaskCandidate, list_known_task_ids
from habitus.app.tasks.reviewing import list_unreviewed_foreign_tasks
from habitus.app.tasks.storing import load_tasks, load_tool_cases
from habitus.app.tasks.validation import validate_task
from habitus.errors import HabitusError
from habitus.sandbox.model import Permissions
from habitus.tasks.checks import (
    Check,
    FileExistsCheck,
    PythonValidatorCheck,
    ReplyContainsCheck,
    ReplyEqualsCheck,
    ToolCalledCheck,
)
from habitus.tasks.judging import parse_printed_result
from habitus.tasks.model import VARIANT_MARK, Task, TaskOrigin, TaskOriginKind, TaskSolution, compute_task_id
from habitus.tasks.schema import Json
from habitus.tools.execution import is_using_time_or_random_numbers
from habitus.tools.service import ToolService

_MOST_VARIANTS = 3  # of one task
_MOST_NAME_WORDS = 4
# No part of a word, a date, a time, a path or a number with leading zeros, which is a name.
_NUMBER = re.compile(r"(?<![\w.:/-])(?!0\d)\d+(?:\.\d+)?(?![\w:/-]|\.\d)")
# A date, an identifier such as INV-2041, or a number.
_VALUE = re.compile(rf"\b\d{{4}}-\d\d-\d\d\b|\b[A-Za-z]+[-_]?\d{{3,}}\b|{_NUMBER.pattern}")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolPayloadWithAnswer:
    """A payload of the skill's tool and what it answers."""

    payload: Json
    result: Json


def make_task_variants(home: Home, skill: str = "") -> list[TaskCandidate]:
    """Return new variants of the reviewed tasks of a skill, or of all skills."""
    names = [skill] if skill else [item.name for item in home.skills.list_skills() if item.summary]

    async def vary_all(tools: ToolService) -> list[TaskCandidate]:
        return [one for name in names for one in await _make_variants_of_skill_tasks(home, tools, name)]

    return asyncio.run(open_tools_and_run_work(home, vary_all))


async def _make_variants_of_skill_tasks(home: Home, tools: ToolService, name: str) -> list[TaskCandidate]:
    unreviewed, known = list_unreviewed_foreign_tasks(home, name), list_known_task_ids(home, name)
    tasks = [task for task in load_tasks(home, name) if not task.is_for_tool and task not in unreviewed]
    answers: list[ToolPayloadWithAnswer] | None = None
    found: list[TaskCandidate] = []
    for task in tasks:
        if VARIANT_MARK in task.id or not task.has_check_without_model:
            continue
        if not task.validator and answers is None:
            answers = await _recompute_tool_answers(home, tools, name)
        for number in range(1, _MOST_VARIANTS + 1):
            draw = random.Random(f"{task.id}{VARIANT_MARK}{number}")
            by, variant = "its validator", _make_variant_by_changing_files(task, draw)
            if not task.validator:
                by, variant = (
                    "the skill's code",
                    await _make_variant_by_running_code(tools, name, task, answers or (), draw),
                )
            if variant is None or variant.id.rpartition(VARIANT_MARK)[2] in known:
                continue
            if (await validate_task(home, variant)).is_sound:
                evidence = f"'{task.id}' with other values; {by} recomputes the answer"
                found.append(TaskCandidate(skill=name, task=variant, evidence=(evidence,)))
    return found


async def _recompute_tool_answers(home: Home, tools: ToolService, name: str) -> list[ToolPayloadWithAnswer]:
    """Return what the skill's tool answers to its recorded cases; none if a run could have effects or vary."""
    cases = load_tool_cases(home, name)
    if not cases or tools.get(name).permissions != Permissions() or is_using_time_or_random_numbers(tools.code(name)):
        return []
    answers = [(case.payload, await _run_skill_tool(tools, name, case.payload)) for case in cases]
    return [ToolPayloadWithAnswer(payload=payload, result=result) for payload, result in answers if result is not None]


async def _run_skill_tool(tools: ToolService, name: str, payload: Json) -> Json:
    """Return the result of the skill's tool in the sandbox; None if it has none."""
    try:
        run = await tools.run(name, payload, counts=False)
    except HabitusError:
        return None
    return parse_printed_result(run.stdout) if run.outcome.is_ok else None


async def _make_variant_by_running_code(
    tools: ToolService, name: str, task: Task, answers: Sequence[ToolPayloadWithAnswer], draw: random.Random
) -> Task | None:
    """Return the task with other values, if the skill's tool gives its answer today and gives another one for them."""
    texts = (task.request, *task.files.values())
    for answer in answers:
        asked = {value for text in texts for value in _VALUE.findall(text)}
        values = _pick_other_values(
            [one for one in _find_dates_ids_and_numbers_in_json(answer.payload) if one in asked], draw
        )
        values |= _pick_other_names(answer.payload, answers, "\n".join(texts), draw)
        if not values or _replace_answers_in_checks(task.checks, answer.result, answer.result) is None:
            continue
        result = await _run_skill_tool(tools, name, _replace_values_in_json(answer.payload, values))
        checks = _replace_answers_in_checks(task.checks, answer.result, result) if result is not None else None
        if checks is None or checks == task.checks:
            continue
        request = _replace_values_in_text(task.request, values)
        files = {path: _replace_values_in_text(text, values) for path, text in task.files.items()}
        calls = tuple(one.tool or one.command for one in checks if isinstance(one, ToolCalledCheck))
        at_path = next((one for one in checks if isinstance(one, ReplyEqualsCheck) and one.path), None)
        reference = (
            TaskSolution(reply=json.dumps(result, ensure_ascii=False), calls=calls) if at_path is not None else None
        )
        # The old answer must not pass, or the variant would not tell who has looked at its values.
        return _make_variant(task, request, files, checks, reference=reference, wrong=task.stored_or_implied_solution)
    return None


def _make_variant_by_changing_files(task: Task, draw: random.Random) -> Task | None:
    """Return the task with other values in its files, where a validator finds the answer in them by itself."""
    is_recomputed = all(
        isinstance(one, PythonValidatorCheck | FileExistsCheck | ToolCalledCheck) for one in task.checks
    )
    if not (task.validator and is_recomputed and task.reference and task.reference.code):
        return None
    fixed = set(_VALUE.findall(task.request))
    values = _pick_other_values(
        dict.fromkeys(one for text in task.files.values() for one in _VALUE.findall(text) if one not in fixed), draw
    )
    files = {path: _replace_values_in_text(text, values) for path, text in task.files.items()}
    return _make_variant(task, task.request, files, task.checks, task.reference, task.wrong) if values else None


def _make_variant(
    task: Task,
    request: str,
    files: Mapping[str, str],
    checks: tuple[Check, ...],
    reference: TaskSolution | None,
    wrong: TaskSolution | None,
) -> Task:
    return replace(
        task,
        id=f"{task.id}{VARIANT_MARK}{compute_task_id(request, None, files, task.setup)}",
        request=request,
        files=files,
        checks=checks,
        # Whose words they were stays known, so erasing a person takes the variants along.
        origin=TaskOrigin(kind=TaskOriginKind.VARIANT, conversation=task.origin.conversation, user=task.origin.user),
        reviewed_by="",
        reference=reference,
        wrong=wrong,
    )


def _pick_other_values(values: Collection[str], draw: random.Random) -> dict[str, str]:
    """Return another value of the same form for each: a date, an identifier, or a number with as many digits."""
    return {value: _pick_other_value(value, draw) for value in values if set(value) - set("0.")}


def _pick_other_value(value: str, draw: random.Random) -> str:
    with suppress(ValueError):
        # With its hyphens: fromisoformat also reads 20261119, which is a number.
        return (datetime.strptime(value, "%Y-%m-%d") + timedelta(days=draw.randint(1, 300))).date().isoformat()
    prefix = value.rstrip("0123456789.")
    whole, point, decimals = value.removeprefix(prefix).partition(".")
    while True:
        first = draw.choice("123456789") if whole != "0" else "0"
        rest = "".join(draw.choice("0123456789") for _ in whole[1:])
        drawn = f"{prefix}{first}{rest}{point}{''.join(draw.choice('0123456789') for _ in decimals)}"
        if drawn != value:
            return drawn


def _pick_other_names(
    payload: Json, answers: Sequence[ToolPayloadWithAnswer], text: str, draw: random.Random
) -> dict[str, str]:
    """Return another name for each that the text has, put together from the words of all recorded payloads."""
    names: dict[str, str] = {}
    for path, name in _list_name_like_texts_in_payload(payload):
        if not _build_name_pattern(name).search(text):
            continue
        recorded = [
            other.split()
            for one in answers
            for place, other in _list_name_like_texts_in_payload(one.payload)
            if place == path
        ]
        drawn = " ".join(
            draw.choice([words[number] for words in recorded if len(words) > number])
            for number in range(len(name.split()))
        )
        # What is asked elsewhere is a task of its own.
        if drawn.split() not in recorded:
            names[name] = drawn
    return names


def _list_name_like_texts_in_payload(payload: Json) -> list[tuple[str, str]]:
    leaves = ((path, leaf) for path, leaf in _list_json_leaves(payload) if isinstance(leaf, str))
    return [
        (path, leaf)
        for path, leaf in leaves
        if 0 < len(leaf.split()) <= _MOST_NAME_WORDS and not any(map(str.isdigit, leaf))
    ]


def _build_name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")


def _replace_values_in_text(text: str, values: Mapping[str, str]) -> str:
    names = sorted((one for one in values if not _VALUE.fullmatch(one)), key=len, reverse=True)
    either = "|".join([*(_build_name_pattern(one).pattern for one in names), _VALUE.pattern])
    return re.sub(either, lambda found: values.get(found[0], found[0]), text)


def _find_dates_ids_and_numbers_in_json(value: Json) -> list[str]:
    return [found for _, leaf in _list_json_leaves(value) for found in _VALUE.findall(_render_leaf(leaf))]


def _replace_values_in_json(value: Json, values: Mapping[str, str]) -> Json:
    match value:
        case dict():
            return {key: _replace_values_in_json(item, values) for key, item in value.items()}
        case list():
            return [_replace_values_in_json(item, values) for item in value]
        case str():
            return _replace_values_in_text(value, values)
        case int() | float() if not isinstance(value, bool) and _render_leaf(value) in values:
            return type(value)(values[_render_leaf(value)])
    return value


def _replace_answers_in_checks(checks: Sequence[Check], before: Json, after: Json) -> tuple[Check, ...] | None:
    """Return the checks with the answers of another result; None if one has an answer that is not in the first."""
    now = dict(_list_json_leaves(after))
    changed: list[Check] = []
    for check in checks:
        match check:
            case ReplyContainsCheck(text=text):
                path = next((path for path, leaf in _list_json_leaves(before) if _is_same_value(leaf, text)), None)
                new = _format_like_old_answer(now[path], text) if path in now else ""
                if not new:
                    return None
                changed.append(ReplyContainsCheck(text=new))
            case ReplyEqualsCheck(value=value, path=path) if not check.apart and _get_leaf_at(before, path) == value:
                changed.append(replace(check, value=_get_leaf_at(after, path)))
            case ToolCalledCheck():
                changed.append(check)
            case _:
                return None
    return tuple(changed)


def _list_json_leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in below:
        yield from _list_json_leaves(item, f"{path}.{key}" if path else str(key))
    if not isinstance(value, dict | list):
        yield path, value
    if isinstance(value, str):  # a sentence with the answer in it
        yield from ((f"{path}#{number}", found) for number, found in enumerate(_VALUE.findall(value)))


def _get_leaf_at(value: Json, path: str) -> Json:
    return dict(_list_json_leaves(value)).get(path) if path else value


def _is_same_value(leaf: Json, text: str) -> bool:
    if isinstance(leaf, int | float) and not isinstance(leaf, bool) and _NUMBER.fullmatch(text):
        return float(text) == leaf
    return bool(leaf == text)


def _format_like_old_answer(leaf: Json, text: str) -> str:
    """Return a value as the old answer was written: with as many decimals; empty if it has more."""
    if not isinstance(leaf, int | float) or isinstance(leaf, bool):
        return leaf if isinstance(leaf, str) else ""
    decimals = len(text.partition(".")[2])
    return f"{leaf:.{decimals}f}" if round(leaf, decimals) == leaf else ""


def _render_leaf(leaf: Json) -> str:
    return leaf if isinstance(leaf, str) else f"{leaf}" if isinstance(leaf, int | float) else ""
