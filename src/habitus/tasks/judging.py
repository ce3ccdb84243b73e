"""Judging a submission: every check of its task asked, and what they come to together; and comparing results: where two
differ within a tolerance, and which fields stay the same from run to run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from habitus.events import OK, Outcome, OutcomeKind, build_failed_outcome, build_infra_outcome
from habitus.redact import MARKER
from habitus.tasks import schema
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
from habitus.tasks.model import Submission, Task, Workspace
from habitus.tasks.patterns import find_match
from habitus.tasks.schema import Json

AskModel = Callable[[Task, Rubric, Submission], Awaitable[Outcome]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    check: Check
    outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """How a submission went. `outcome` is ok when every check passed that no model judges, or, where there is no such
    check, every rubric; `score` is the weighted share of the checks that passed."""

    outcome: Outcome
    score: float
    results: tuple[CheckResult, ...] = ()


async def judge(task: Task, submission: Submission, *, ask: AskModel | None = None) -> Judgement:
    """Ask every check; `ask` has rubrics judged by a model, and without it they are left out."""
    results = [
        CheckResult(check=check, outcome=await _judge_check(task, check, submission, ask))
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


async def _judge_check(task: Task, check: Check, submission: Submission, ask: AskModel | None) -> Outcome:
    match check:
        case Contains() | Matches() | Equals() | Shape() | Called():
            return _of_reply(check, submission)
        case FileExists() | FileEquals() | TableEquals():
            return (
                build_infra_outcome("no folder is left to look into")
                if submission.workspace is None
                else await _of_file(check, submission.workspace)
            )
        case Validator(code=code):
            return (
                build_infra_outcome("no folder is left to look into")
                if submission.workspace is None
                else await submission.workspace.run(code)
            )
        case Rubric():
            return build_infra_outcome("no model was asked") if ask is None else await ask(task, check, submission)
        case never:
            assert_never(never)


def _of_reply(check: Contains | Matches | Equals | Shape | Called, submission: Submission) -> Outcome:
    reply = submission.reply
    match check:
        case Contains(text=text):
            return _claim(_plain(text) in _plain(reply), f"it does not say '{short(text)}'")
        case Matches(pattern=pattern):
            return _claim(find_match(pattern, reply), f"nothing in it fits '{short(pattern)}'")
        case Shape(schema=schema):
            return _claim(has_shape(schema, reply), f"it has another shape than expected: {short(reply.strip())}")
        case Equals():
            other = difference(check, reply)
            return _claim(not other, f"it gives another result: {other}")
        case Called(tool=tool, command=command):
            met = any(
                (tool and one.tool == tool) or (command and _has(command, one.command)) for one in submission.calls
            )
            return _claim(met, f"'{tool or command}' was not called")


async def _of_file(check: FileExists | FileEquals | TableEquals, workspace: Workspace) -> Outcome:
    content = await workspace.read(check.path)
    if content is None:
        return build_failed_outcome(f"there is no {check.path}")
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
    return OK if is_met else build_failed_outcome(reason)


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


_DEEPEST, _MOST_KEYS = 4, 40


def result_of(printed: str) -> Json:
    """JSON by its value, anything else as text."""
    text = printed.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if schema.is_deeper(value, schema.DEEPEST) else value


def shape_of(printed: str) -> dict[str, Json]:
    """JSON has the shape of its value, anything else is text."""
    return _shape(result_of(printed), 0)


def has_shape(shape: Mapping[str, Json], printed: str) -> bool:
    return schema.fits(shape, result_of(printed)) or schema.fits(shape, printed)


def _shape(value: Json, depth: int) -> dict[str, Json]:
    match value:
        case bool():
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            kinds = [_shape(item, depth + 1) for item in value[:20]] if depth < _DEEPEST else []
            is_uniform = bool(kinds) and all(kind == kinds[0] for kind in kinds)
            return {"type": "array", "items": kinds[0]} if is_uniform else {"type": "array"}
        case dict() if depth < _DEEPEST and len(value) <= _MOST_KEYS:
            below = {key: _shape(item, depth + 1) for key, item in value.items()}
            return {"type": "object", "properties": below, "required": sorted(below)}
        case dict():
            return {"type": "object"}
        case _:
            return {}  # null today may be anything tomorrow


LONGEST_RESULT = 16 * 1024  # characters of a result that is kept
LEAST = 3  # different inputs whose results differ: with fewer, a constant or half a program could pass
_TOLERANCE = 1e-9  # of numbers, relative: another order of the same sum is no other result
_WHOLE = "the whole result"


def difference(expected: Equals, printed: str) -> str:
    """The first field in which a result is another than expected, in words; nothing where it is the same."""
    now = _at(result_of(printed), expected.path)
    wrong = [path for path in differing(expected.value, now) if not _is_within(path, expected.apart)]
    if not wrong:
        return ""
    had, has = (short(_at(value, wrong[0]), 80) for value in (expected.value, now))
    where = ".".join(part for part in (expected.path, wrong[0]) if part)
    return f"{where or _WHOLE} is {has}, and should be {had}"


def lasting(expected: Equals) -> Equals | None:
    """As it is kept: what has changed since it was recorded will change again."""
    return leave_out(replace(expected, moved=()), expected.moved)


def for_now(expected: Equals) -> Equals:
    """Good for a trial today, and not kept: tomorrow any of it may be otherwise."""
    return replace(expected, moved=("",))


def leave_out(expected: Equals, fields: Iterable[str]) -> Equals | None:
    """The same without these fields; none where nothing remains to compare."""
    apart = tuple(sorted({*expected.apart, *fields}))
    is_comparable = "" not in apart and bool(_leaves(expected.value, apart))
    return replace(expected, apart=apart) if is_comparable else None


def expect(
    printed: Sequence[str], *, before: Iterable[str] = (), redacted: Callable[[str], str] = str
) -> Equals | None:
    """The result that runs on the same input agree on; `before` are earlier results that may have been overtaken since.

    None where it is too long to keep, or nothing in it stays the same.
    """
    first = redacted(printed[0].strip())
    if len(first) > LONGEST_RESULT:
        return None
    value = result_of(first)
    unsteady = {path for other in printed[1:] for path in differing(result_of(printed[0]), result_of(other))}
    secret = {path for path, leaf in _leaves(value, ()) if isinstance(leaf, str) and MARKER.search(leaf)}
    moved = {path for old in before for path in differing(result_of(old), value)} - unsteady
    return leave_out(Equals(value=value, moved=tuple(sorted(moved))), unsteady | secret)


def is_enough(expected: Collection[Equals]) -> bool:
    """Whether these results, each of another input, tell a right program from one that only looks so."""
    compared = (_leaves(one.value, one.apart) for one in expected)
    return len({json.dumps(leaves, sort_keys=True, ensure_ascii=False) for leaves in compared}) >= LEAST


def differing(one: Json, other: Json, path: str = "") -> list[str]:
    """The fields in which two results differ; the whole has the empty path."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = dict.fromkeys((*one, *other))
        return [
            found
            for key in keys
            for found in (
                differing(one[key], other[key], _below(path, key))
                if key in one and key in other
                else [_below(path, key)]
            )
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for at, (a, b) in pairs for found in differing(a, b, _below(path, str(at)))]
    return [] if _is_same(one, other) else [path]


def _is_same(one: Json, other: Json) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float) and float in (type(one), type(other)):
        try:
            return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-12) or (one != one and other != other)
        except OverflowError:
            return False
    return type(one) is type(other) and bool(one == other)


def _below(path: str, key: str) -> str:
    step = key.replace("\\", "\\\\").replace(".", "\\.")
    return f"{path}.{step}" if path else step


def _is_within(path: str, apart: Collection[str]) -> bool:
    return any(not one or path == one or path.startswith(f"{one}.") for one in apart)


def _leaves(value: Json, apart: Collection[str], path: str = "") -> list[tuple[str, Json]]:
    """Every field that has no fields itself, but for those apart."""
    if path and _is_within(path, apart):
        return []
    if isinstance(value, dict) and value:
        return [leaf for key, item in value.items() for leaf in _leaves(item, apart, _below(path, key))]
    if isinstance(value, list) and value:
        return [leaf for at, item in enumerate(value) for leaf in _leaves(item, apart, _below(path, str(at)))]
    return [(path, value)]


def _at(value: Json, path: str) -> Json:
    """The value at a path; "nothing" where there is no such field."""
    return dict(_nodes(value)).get(path, "nothing")


def _nodes(value: Json, path: str = "") -> list[tuple[str, Json]]:
    below: list[tuple[str, Json]] = []
    if isinstance(value, dict):
        below = [node for key, item in value.items() for node in _nodes(item, _below(path, key))]
    elif isinstance(value, list):
        below = [node for at, item in enumerate(value) for node in _nodes(item, _below(path, str(at)))]
    return [(path, value), *below]


def short(value: Json, most: int = 120) -> str:
    """A value in one line, for a message or a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
