"""Judging a rollout: every check of its task asked, and what they come to together."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never

from habitus.events import OK, Outcome, OutcomeKind, failed, infra
from habitus.tasks.checks import (
    Called,
    Check,
    Contains,
    Equals,
    FileEquals,
    FileExists,
    Matches,
    Rubric,
    Shape,
    TableEquals,
    Validator,
    rows_of,
    weight_of,
)
from habitus.tasks.comparing import difference, has_shape, short
from habitus.tasks.model import Place, Rollout, Task

AskModel = Callable[[Task, Rubric, Rollout], Awaitable[Outcome]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    check: Check
    outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """How a rollout went. `outcome` is ok when every check passed that no model judges, or, where there is no such
    check, every rubric; `score` is the weighted share of the checks that passed."""

    outcome: Outcome
    score: float
    results: tuple[CheckResult, ...] = ()


async def judge(task: Task, rollout: Rollout, *, ask: AskModel | None = None) -> Judgement:
    """What a rollout came to; `ask` has rubrics judged by a model, and without it they are left out."""
    if not rollout.outcome.is_ok:
        return Judgement(outcome=rollout.outcome, score=0.0)
    results = [
        CheckResult(check=check, outcome=await _judge_check(task, check, rollout, ask))
        for check in task.checks
        if ask is not None or not isinstance(check, Rubric) or not task.is_deterministic
    ]
    return _together(task, tuple(results))


def _together(task: Task, results: tuple[CheckResult, ...]) -> Judgement:
    counted = [one for one in results if one.outcome.kind is not OutcomeKind.INFRA]
    whole = sum(weight_of(one.check) for one in counted)
    score = sum(weight_of(one.check) for one in counted if one.outcome.is_ok) / whole if whole else 0.0
    deciding = [one for one in results if not (task.is_deterministic and isinstance(one.check, Rubric))]
    worst = next((one for one in deciding if one.outcome.kind is OutcomeKind.FAILED), None) or next(
        (one for one in deciding if not one.outcome.is_ok), None
    )
    outcome = OK if worst is None else worst.outcome
    return Judgement(outcome=outcome, score=score, results=results)


async def _judge_check(task: Task, check: Check, rollout: Rollout, ask: AskModel | None) -> Outcome:
    match check:
        case Contains() | Matches() | Equals() | Shape() | Called():
            return _of_reply(check, rollout)
        case FileExists() | FileEquals() | TableEquals():
            return (
                infra("no folder is left to look into")
                if rollout.place is None
                else await _of_file(check, rollout.place)
            )
        case Validator(code=code):
            return infra("no folder is left to look into") if rollout.place is None else await rollout.place.run(code)
        case Rubric():
            return infra("no model was asked") if ask is None else await ask(task, check, rollout)
        case never:
            assert_never(never)


def _of_reply(check: Contains | Matches | Equals | Shape | Called, rollout: Rollout) -> Outcome:
    reply = rollout.reply
    match check:
        case Contains(text=text):
            return _claim(_plain(text) in _plain(reply), f"it does not say '{short(text)}'")
        case Matches(pattern=pattern):
            return _claim(re.search(pattern, reply) is not None, f"nothing in it fits '{short(pattern)}'")
        case Shape(schema=schema):
            return _claim(has_shape(schema, reply), f"it has another shape than expected: {short(reply.strip())}")
        case Equals():
            other = difference(check, reply)
            return _claim(not other, f"it gives another result: {other}")
        case Called(tool=tool, command=command):
            met = any((tool and one.tool == tool) or (command and _has(command, one.command)) for one in rollout.calls)
            return _claim(met, f"'{tool or command}' was not called")


async def _of_file(check: FileExists | FileEquals | TableEquals, place: Place) -> Outcome:
    content = await place.read(check.path)
    if content is None:
        return failed(f"there is no {check.path}")
    text = content.decode("utf-8", "replace")
    match check:
        case FileExists():
            return OK
        case FileEquals(content=expected):
            return _claim(_lines(text) == _lines(expected), f"{check.path} says something else")
        case TableEquals(table=table, tolerance=tolerance):
            other = _other_row(rows_of(table), rows_of(text), tolerance)
            return _claim(not other, f"{check.path}: {other}")


def _claim(is_met: bool, reason: str) -> Outcome:
    return OK if is_met else failed(reason)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _has(words: str, command: str) -> bool:
    """Whether a command line has these words, one after the other."""
    wanted, given = words.split(), command.split()
    return any(given[at : at + len(wanted)] == wanted for at in range(len(given) - len(wanted) + 1))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").rstrip("\n").split("\n")


def _other_row(expected: list[dict[str, str]], found: list[dict[str, str]], tolerance: float) -> str:
    """Where two tables differ, in words; nothing where they don't."""
    if set(expected[0]) != set(found[0] if found else {}):
        return f"its columns are {', '.join(found[0]) if found else 'none'}, and should be {', '.join(expected[0])}"
    if len(expected) != len(found):
        return f"it has {len(found) - 1} rows, and should have {len(expected) - 1}"
    for number, (one, other) in enumerate(zip(expected[1:], found[1:], strict=True), 1):
        for name in expected[0]:
            had, has = one.get(name, ""), other.get(name, "")
            if not _is_same_cell(had, has, tolerance):
                return (
                    f"{name} in row {number} is {short(has, 80) or 'empty'}, and should be {short(had, 80) or 'empty'}"
                )
    return ""


def _is_same_cell(one: str, other: str, tolerance: float) -> bool:
    if one == other:
        return True
    try:
        return abs(float(one) - float(other)) <= tolerance
    except ValueError:
        return False
