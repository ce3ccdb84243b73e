"""Judging submissions by the checks of their task, and comparing results: where two differ within a tolerance, and
which fields are stable between runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from habitus.events import OK, Outcome, OutcomeKind, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.redact import MARKER
from habitus.tasks import schema
from habitus.tasks.checks import (
    Check,
    CsvTableEqualsCheck,
    FileEqualsCheck,
    FileExistsCheck,
    PythonValidatorCheck,
    ReplyContainsCheck,
    ReplyEqualsCheck,
    ReplyMatchesPatternCheck,
    ReplyShapeCheck,
    RubricCheck,
    ToolCalledCheck,
    get_check_weight,
    parse_csv_rows,
)
from habitus.tasks.model import Submission, Task, Workspace
from habitus.tasks.patterns import has_pattern_match
from habitus.tasks.schema import Json

AskModel = Callable[[Task, RubricCheck, Submission], Awaitable[Outcome]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    check: Check
    outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskJudgement:
    """The outcome of a submission: ok if every check passed that no model judges, or, without such a check, every
    rubric; `score` is the weighted share of checks that passed.
    """

    outcome: Outcome
    score: float
    results: tuple[CheckResult, ...] = ()


async def judge_submission(task: Task, submission: Submission, *, ask: AskModel | None = None) -> TaskJudgement:
    """Evaluate every check; `ask` lets a model judge rubrics, which are skipped without it."""
    results = [
        CheckResult(check=check, outcome=await _judge_check(task, check, submission, ask))
        for check in task.checks
        if ask is not None or not isinstance(check, RubricCheck) or not task.has_check_without_model
    ]
    return _combine_check_results(task, tuple(results))


def _combine_check_results(task: Task, results: tuple[CheckResult, ...]) -> TaskJudgement:
    counted = [one for one in results if one.outcome.kind is not OutcomeKind.INFRA]
    whole = sum(get_check_weight(one.check) for one in counted)
    score = sum(get_check_weight(one.check) for one in counted if one.outcome.is_ok) / whole if whole else 0.0
    deciding = [one for one in results if not (task.has_check_without_model and isinstance(one.check, RubricCheck))]
    worst = next((one for one in deciding if one.outcome.kind is OutcomeKind.FAILED), None) or next(
        (one for one in deciding if not one.outcome.is_ok), None
    )
    outcome = OK if worst is None else worst.outcome
    return TaskJudgement(outcome=outcome, score=score, results=results)


async def _judge_check(task: Task, check: Check, submission: Submission, ask: AskModel | None) -> Outcome:
    reply = submission.reply
    match check:
        case ReplyContainsCheck(text=text):
            is_said = _normalize_text(text) in _normalize_text(reply)
            return _build_ok_or_failed_outcome(is_said, f"it does not say '{shorten_value(text)}'")
        case ReplyMatchesPatternCheck(pattern=pattern):
            return _build_ok_or_failed_outcome(
                has_pattern_match(pattern, reply), f"nothing in it fits '{shorten_value(pattern)}'"
            )
        case ReplyShapeCheck(schema=schema):
            other = f"it has another shape than expected: {shorten_value(reply.strip())}"
            return _build_ok_or_failed_outcome(is_result_fitting_schema(schema, reply), other)
        case ReplyEqualsCheck():
            other = describe_first_differing_field(check, reply)
            return _build_ok_or_failed_outcome(not other, f"it gives another result: {other}")
        case ToolCalledCheck(tool=tool, command=command):
            calls = (
                (tool and one.tool == tool) or _has_command_words_in_row(command, one.command)
                for one in submission.calls
            )
            return _build_ok_or_failed_outcome(any(calls), f"'{tool or command}' was not called")
        case RubricCheck():
            return (
                build_infrastructure_failure_outcome("no model was asked")
                if ask is None
                else await ask(task, check, submission)
            )
        case _ if submission.workspace is None:
            return build_infrastructure_failure_outcome("no folder is left to look into")
        case PythonValidatorCheck(code=code):
            return await submission.workspace.run_code(code)
        case FileExistsCheck() | FileEqualsCheck() | CsvTableEqualsCheck():
            return await _judge_file_check(check, submission.workspace)
        case never:
            assert_never(never)


async def _judge_file_check(
    check: FileExistsCheck | FileEqualsCheck | CsvTableEqualsCheck, workspace: Workspace
) -> Outcome:
    content = await workspace.read_file(check.path)
    if content is None:
        return build_failed_outcome(f"there is no {check.path}")
    text = content.decode("utf-8", "replace")
    match check:
        case FileExistsCheck():
            return OK
        case FileEqualsCheck(content=expected):
            is_same = _split_lines_without_trailing_newlines(text) == _split_lines_without_trailing_newlines(expected)
            return _build_ok_or_failed_outcome(is_same, f"{check.path} says something else")
        case CsvTableEqualsCheck(table=table, tolerance=tolerance):
            other = _describe_table_difference(parse_csv_rows(table), parse_csv_rows(text), tolerance)
            return _build_ok_or_failed_outcome(not other, f"{check.path}: {other}")


def _build_ok_or_failed_outcome(is_met: bool, reason: str) -> Outcome:
    return OK if is_met else build_failed_outcome(reason)


def _normalize_text(text: str) -> str:
    return " ".join(text.casefold().split())


def _has_command_words_in_row(words: str, command: str) -> bool:
    """Return whether a command line contains these words in a row."""
    wanted, given = words.split(), command.split()
    return bool(wanted) and any(given[at : at + len(wanted)] == wanted for at in range(len(given) - len(wanted) + 1))


def _split_lines_without_trailing_newlines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").rstrip("\n").split("\n")


def _describe_table_difference(expected: list[dict[str, str]], found: list[dict[str, str]], tolerance: float) -> str:
    """Return where two tables differ, in words; empty if they are equal."""
    if set(expected[0]) != set(found[0] if found else {}):
        return f"its columns are {', '.join(found[0]) if found else 'none'}, and should be {', '.join(expected[0])}"
    if len(expected) != len(found):
        return f"it has {len(found) - 1} rows, and should have {len(expected) - 1}"
    for number, (one, other) in enumerate(zip(expected[1:], found[1:], strict=True), 1):
        for name in expected[0]:
            had, has = one.get(name, ""), other.get(name, "")
            if not _is_same_cell(had, has, tolerance):
                is_now, should_be = (shorten_value(cell, 80) or "empty" for cell in (has, had))
                return f"{name} in row {number} is {is_now}, and should be {should_be}"
    return ""


def _is_same_cell(one: str, other: str, tolerance: float) -> bool:
    if one == other:
        return True
    try:
        return abs(float(one) - float(other)) <= tolerance
    except ValueError:
        return False


_DEEPEST, _MOST_KEYS = 4, 40


def parse_printed_result(printed: str) -> Json:
    """Return JSON as its value, anything else as text."""
    text = printed.strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if schema.is_nested_deeper(value, schema.DEEPEST) else value


def infer_json_schema_of_result(printed: str) -> dict[str, Json]:
    """Return the JSON Schema of a result; text that is not JSON is a string."""
    return _infer_json_schema_of_value(parse_printed_result(printed), 0)


def is_result_fitting_schema(shape: Mapping[str, Json], printed: str) -> bool:
    return schema.fits_schema(shape, parse_printed_result(printed)) or schema.fits_schema(shape, printed)


def _infer_json_schema_of_value(value: Json, depth: int) -> dict[str, Json]:
    match value:
        case bool():
            return {"type": "boolean"}
        case int() | float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            kinds = [_infer_json_schema_of_value(item, depth + 1) for item in value[:20]] if depth < _DEEPEST else []
            is_uniform = bool(kinds) and all(kind == kinds[0] for kind in kinds)
            return {"type": "array", "items": kinds[0]} if is_uniform else {"type": "array"}
        case dict() if depth < _DEEPEST and len(value) <= _MOST_KEYS:
            below = {key: _infer_json_schema_of_value(item, depth + 1) for key, item in value.items()}
            return {"type": "object", "properties": below, "required": sorted(below)}
        case dict():
            return {"type": "object"}
        case _:
            return {}  # a null may be anything in the next run


MAX_RESULT_CHARS = 16 * 1024  # longer results are not stored
MIN_DISTINCT_RESULTS = 3  # with fewer, a constant or half a program could pass
_TOLERANCE = 1e-9  # relative; summation order changes the last digits
_WHOLE = "the whole result"


def describe_first_differing_field(expected: ReplyEqualsCheck, printed: str) -> str:
    """Return the first field that differs from the expected result, in words; empty if none does."""
    now = _get_at_path(parse_printed_result(printed), expected.path)
    wrong = [path for path in find_differing_paths(expected.value, now) if not _is_path_within(path, expected.apart)]
    if not wrong:
        return ""
    had, has = (shorten_value(_get_at_path(value, wrong[0]), 80) for value in (expected.value, now))
    where = ".".join(part for part in (expected.path, wrong[0]) if part)
    return f"{where or _WHOLE} is {has}, and should be {had}"


def drop_fields_that_changed_since_recording(expected: ReplyEqualsCheck) -> ReplyEqualsCheck | None:
    """Return the check as it is stored: fields that changed since they were recorded will change again."""
    return exclude_fields_from_check(replace(expected, moved=()), expected.moved)


def make_check_valid_today_only(expected: ReplyEqualsCheck) -> ReplyEqualsCheck:
    """Return the check for a trial today only: tomorrow any field may differ."""
    return replace(expected, moved=("",))


def exclude_fields_from_check(expected: ReplyEqualsCheck, fields: Iterable[str]) -> ReplyEqualsCheck | None:
    """Return the check without these fields; None if nothing is left to compare."""
    apart = tuple(sorted({*expected.apart, *fields}))
    is_comparable = "" not in apart and bool(_list_leaves(expected.value, apart))
    return replace(expected, apart=apart) if is_comparable else None


def derive_expected_result(
    printed: Sequence[str], *, before: Iterable[str] = (), redacted: Callable[[str], str] = str
) -> ReplyEqualsCheck | None:
    """Return the result that runs on the same input agree on; `before` are earlier results that may be outdated.

    None if it is too long to store, or no field is stable.
    """
    first = redacted(printed[0].strip())
    if len(first) > MAX_RESULT_CHARS:
        return None
    value = parse_printed_result(first)
    unsteady = {
        path
        for other in printed[1:]
        for path in find_differing_paths(parse_printed_result(printed[0]), parse_printed_result(other))
    }
    secret = {path for path, leaf in _list_leaves(value, ()) if isinstance(leaf, str) and MARKER.search(leaf)}
    moved = {path for old in before for path in find_differing_paths(parse_printed_result(old), value)} - unsteady
    return exclude_fields_from_check(ReplyEqualsCheck(value=value, moved=tuple(sorted(moved))), unsteady | secret)


def has_enough_distinct_results(expected: Collection[ReplyEqualsCheck]) -> bool:
    """Return whether these results, each of another input, distinguish a right program from a constant."""
    compared = (_list_leaves(one.value, one.apart) for one in expected)
    return len({json.dumps(leaves, sort_keys=True, ensure_ascii=False) for leaves in compared}) >= MIN_DISTINCT_RESULTS


def find_differing_paths(one: Json, other: Json, path: str = "") -> list[str]:
    """Return the paths at which two results differ; the whole has the empty path."""
    ours, theirs = dict(_list_json_items(one)), dict(_list_json_items(other))
    is_alike = type(one) is type(other) and (isinstance(one, dict) or len(ours) == len(theirs))
    if not is_alike or not isinstance(one, dict | list):
        return [] if _is_same_value(one, other) else [path]
    found: list[str] = []
    for key in dict.fromkeys((*ours, *theirs)):
        below = _append_key_to_dotted_path(path, key)
        found += find_differing_paths(ours[key], theirs[key], below) if key in ours and key in theirs else [below]
    return found


def _list_json_items(value: Json) -> list[tuple[str, Json]]:
    """Return the fields of an object or the items of a list, by key."""
    if isinstance(value, dict):
        return list(value.items())
    return [(str(at), item) for at, item in enumerate(value)] if isinstance(value, list) else []


def _is_same_value(one: Json, other: Json) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float) and float in (type(one), type(other)):
        try:
            return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-12) or (one != one and other != other)
        except OverflowError:
            return False
    return type(one) is type(other) and bool(one == other)


def _append_key_to_dotted_path(path: str, key: str) -> str:
    step = key.replace("\\", "\\\\").replace(".", "\\.")
    return f"{path}.{step}" if path else step


def _is_path_within(path: str, apart: Collection[str]) -> bool:
    return any(not one or path == one or path.startswith(f"{one}.") for one in apart)


def _list_leaves(value: Json, apart: Collection[str], path: str = "") -> list[tuple[str, Json]]:
    """Return every field without subfields, except those in `apart`."""
    if path and _is_path_within(path, apart):
        return []
    items = _list_json_items(value)
    leaves = [leaf for key, item in items for leaf in _list_leaves(item, apart, _append_key_to_dotted_path(path, key))]
    return leaves if items else [(path, value)]


def _get_at_path(value: Json, path: str) -> Json:
    """Return the value at a path; "nothing" if there is no such field."""
    return dict(_list_values_with_paths(value)).get(path, "nothing")


def _list_values_with_paths(value: Json, path: str = "") -> list[tuple[str, Json]]:
    below = (
        node
        for key, item in _list_json_items(value)
        for node in _list_values_with_paths(item, _append_key_to_dotted_path(path, key))
    )
    return [(path, value), *below]


def shorten_value(value: Json, most: int = 120) -> str:
    """Return a value in one line, for a message or a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
