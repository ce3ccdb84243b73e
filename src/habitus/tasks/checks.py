"""The kinds of checks of a task, parsed from rows of a file and written back."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, get_args

from habitus.errors import Invalid, ToolFailed, did_you_mean
from habitus.tasks.patterns import count_pattern_instructions
from habitus.tasks.schema import Json, validate_result_schema

_RUBRIC = 0.25  # weight relative to a check that no model judges


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyContainsCheck:
    """The reply contains this text, ignoring case and white space."""

    kind: ClassVar[str] = "contains"
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyMatchesPatternCheck:
    """This regular expression matches somewhere in the reply."""

    kind: ClassVar[str] = "matches"
    pattern: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyEqualsCheck:
    """The reply is this value, or has it at `path` (keys and indices joined by dots; empty for the whole reply).

    `apart` are fields that are not compared: they vary between runs, or were secret. `moved` are fields that had
    another value when they were recorded: used in a trial, and not stored.
    """

    kind: ClassVar[str] = "equals"
    value: Json = None
    path: str = ""
    apart: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def compared_parts_description(self) -> str:
        """What is compared, in words."""
        return f"values but {', '.join(self.apart)}" if self.apart else "values"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyShapeCheck:
    """The reply has these keys and types, as JSON Schema."""

    kind: ClassVar[str] = "shape"
    schema: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileExistsCheck:
    kind: ClassVar[str] = "file_exists"
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEqualsCheck:
    """A file has exactly this content, ignoring line endings and trailing newlines."""

    kind: ClassVar[str] = "file_equals"
    path: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvTableEqualsCheck:
    """A CSV file has these rows: columns by name, rows in order, numbers within the tolerance."""

    kind: ClassVar[str] = "table_equals"
    path: str
    table: str
    tolerance: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCalledCheck:
    """A tool of this name was called, or a command line that contains these words."""

    kind: ClassVar[str] = "called"
    tool: str = ""
    command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonValidatorCheck:
    """Python that ends without an error, run in the sandbox in the task's folder."""

    kind: ClassVar[str] = "validator"
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RubricCheck:
    """A sentence about a good result, judged by a model: it has a lower weight."""

    kind: ClassVar[str] = "rubric"
    text: str


Check = (
    ReplyContainsCheck
    | ReplyMatchesPatternCheck
    | ReplyEqualsCheck
    | ReplyShapeCheck
    | FileExistsCheck
    | FileEqualsCheck
    | CsvTableEqualsCheck
    | ToolCalledCheck
    | PythonValidatorCheck
    | RubricCheck
)
CHECK_TYPES: Mapping[str, type[Check]] = {each.kind: each for each in get_args(Check)}


def get_check_weight(check: Check) -> float:
    return _RUBRIC if isinstance(check, RubricCheck) else 1.0


def parse_check(row: Any, where: str) -> Check:
    """Return the check of a row; an unknown kind or field is an error."""
    given = dict(row) if isinstance(row, dict) else {}
    kind = given.pop("kind", "")
    if kind not in CHECK_TYPES:
        hint = did_you_mean(str(kind), CHECK_TYPES) or f"There are: {', '.join(CHECK_TYPES)}."
        raise Invalid(f"'{kind}' is not a check, in {where}.", hint=hint)
    made = CHECK_TYPES[kind]
    known = {each.name: each for each in fields(made) if each.name != "moved"}
    if unknown := sorted(given.keys() - known.keys()):
        hint = did_you_mean(unknown[0], known) or f"It has: {', '.join(known)}."
        raise Invalid(f"The check '{kind}' has no '{unknown[0]}', in {where}.", hint=hint)
    for name, each in known.items():
        if name not in given and each.default is MISSING:
            raise Invalid(f"The check '{kind}' needs '{name}', in {where}.", hint="Write it.")
    values = {name: _coerce_field(name, known[name].type, value, kind, where) for name, value in given.items()}
    check = made(**values)
    if isinstance(check, ReplyEqualsCheck):
        check = replace(check, path=_normalize_json_path(check.path))
    if problem := _find_check_problem(check):
        raise Invalid(f"The check '{kind}' can't be used, in {where}: {problem}.", hint="Correct it.")
    return check


def describe_check(check: Check) -> str:
    """Return what passes a check, in words."""
    match check:
        case ReplyContainsCheck(text=text):
            return f"the reply contains “{text}”"
        case ReplyMatchesPatternCheck(pattern=pattern):
            return f"the reply matches {pattern}"
        case ReplyEqualsCheck(value=value, path=path):
            return f"the reply {f'has at {path}' if path else 'is'} {json.dumps(value, ensure_ascii=False)}"
        case ReplyShapeCheck():
            return "the reply has the expected fields"
        case FileExistsCheck(path=path):
            return f"{path} exists"
        case FileEqualsCheck(path=path) | CsvTableEqualsCheck(path=path):
            return f"{path} has the expected content"
        case ToolCalledCheck(tool=tool, command=command):
            return f"it calls {tool or command}"
        case PythonValidatorCheck():
            return "its validator accepts the files"
        case RubricCheck(text=text):
            return f"a model agrees: {text}"


def check_to_row(check: Check) -> dict[str, Json]:
    """Return the row of a file for this check."""
    row: dict[str, Json] = {"kind": check.kind}
    for each in fields(check):
        value = getattr(check, each.name)
        if each.name != "moved" and value != each.default:
            row[each.name] = list(value) if isinstance(value, tuple) else value
    return row


def _coerce_field(name: str, type_: Any, value: Json, kind: str, where: str) -> Any:
    """Return the value in the type of the field."""
    match type_:
        case "str":
            if not isinstance(value, str):
                raise Invalid(f"'{name}' of the check '{kind}' is not text, in {where}.", hint="Write it in quotes.")
        case "float":
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise Invalid(
                    f"'{name}' of the check '{kind}' is not a number, in {where}.", hint="Write one, as 0.01."
                )
            return float(value)
        case "tuple[str, ...]":
            if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
                raise Invalid(f"'{name}' of the check '{kind}' is not a list of texts, in {where}.", hint="Write one.")
            return tuple(value)
    return value


def _normalize_json_path(path: str) -> str:
    """Return a JSONPath in dotted form: `$.rows[0].name` becomes `rows.0.name`."""
    return re.sub(r"\[(\d+)\]", r".\1", path.removeprefix("$")).lstrip(".")


def _find_check_problem(check: Check) -> str:
    """Return why a check could never be evaluated; empty if it can."""
    match check:
        case ReplyContainsCheck(text=text) | RubricCheck(text=text):
            return "" if text.strip() else "'text' is empty"
        case PythonValidatorCheck(code=code):
            return "" if code.strip() else "'code' is empty"
        case ToolCalledCheck(tool=tool, command=command):
            return "" if bool(tool.strip()) is not bool(command.strip()) else "give 'tool' or 'command', one of them"
        case FileExistsCheck(path=path) | FileEqualsCheck(path=path):
            return find_reason_path_leaves_folder(path)
        case CsvTableEqualsCheck(path=path, table=table):
            return find_reason_path_leaves_folder(path) or ("" if parse_csv_rows(table) else "'table' has no header")
        case ReplyMatchesPatternCheck(pattern=pattern):
            try:
                count_pattern_instructions(pattern)
            except Invalid as error:
                return f"{error.message} {error.hint}".rstrip(".")
            return "" if pattern else "'pattern' is empty"
        case ReplyShapeCheck(schema=schema):
            try:
                validate_result_schema(schema)
            except ToolFailed as error:
                return str(error).rstrip(".")
    return ""


def find_reason_path_leaves_folder(path: str) -> str:
    """Return why a path leaves the task's folder; empty if it does not."""
    parts = path.replace("\\", "/").split("/")
    is_inside = bool(path.strip()) and not path.startswith(("/", "~")) and ".." not in parts and ":" not in parts[0]
    return "" if is_inside else f"'{path}' is not a path inside the folder"


def parse_csv_rows(table: str) -> list[dict[str, str]]:
    """Return the rows of a CSV text keyed by header; the first row is the header itself."""
    lines = [line for line in csv.reader(io.StringIO(table.lstrip("\ufeff"), newline="")) if any(line)]
    if not lines:
        return []
    header = [name.strip() for name in lines[0]]
    return [dict(zip(header, (cell.strip() for cell in line), strict=False)) for line in lines]
