"""The checks of a task: each kind with its fields, read from the row of a file and written as one."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, get_args

from habitus.errors import Invalid, ToolFailed, did_you_mean
from habitus.tasks.patterns import compile_pattern
from habitus.tasks.schema import Json, check_shape

_RUBRIC = 0.25  # of the weight that a check has which no model judges


@dataclass(frozen=True, kw_only=True, slots=True)
class Contains:
    """The reply has this text, whatever the case of its letters and the spaces between its words."""

    kind: ClassVar[str] = "contains"
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Matches:
    """The reply has a place that this regular expression fits."""

    kind: ClassVar[str] = "matches"
    pattern: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Equals:
    """The reply is this value, or has it at `path` (keys and places with points; the whole is the empty one).

    `apart` are fields that can't be compared: they change from run to run, or were secret. `moved` are fields that
    were otherwise when they were recorded: good for a trial, and not kept.
    """

    kind: ClassVar[str] = "equals"
    value: Json = None
    path: str = ""
    apart: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def compares(self) -> str:
        """The compared part of a result, in words."""
        return f"values but {', '.join(self.apart)}" if self.apart else "values"


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The reply has these keys and types, as JSON Schema."""

    kind: ClassVar[str] = "shape"
    schema: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileExists:
    kind: ClassVar[str] = "file_exists"
    path: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEquals:
    """A file says exactly this; line ends and those at the end of the file make no difference."""

    kind: ClassVar[str] = "file_equals"
    path: str
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TableEquals:
    """A CSV file has these rows: columns by their names, rows in order, numbers within the tolerance."""

    kind: ClassVar[str] = "table_equals"
    path: str
    table: str
    tolerance: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Called:
    """A tool of this name was called, or a command line that has these words."""

    kind: ClassVar[str] = "called"
    tool: str = ""
    command: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validator:
    """Python that ends without an error, run in the sandbox in the folder that was worked in."""

    kind: ClassVar[str] = "validator"
    code: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rubric:
    """A sentence about a good result, judged by a model: it weighs less."""

    kind: ClassVar[str] = "rubric"
    text: str


Check = Contains | Matches | Equals | Shape | FileExists | FileEquals | TableEquals | Called | Validator | Rubric
KINDS: Mapping[str, type[Check]] = {each.kind: each for each in get_args(Check)}


def weight_of(check: Check) -> float:
    return _RUBRIC if isinstance(check, Rubric) else 1.0


def check_of(row: Any, where: str) -> Check:
    """The check that a row of a file says; an unknown one is an error."""
    given = dict(row) if isinstance(row, dict) else {}
    kind = given.pop("kind", "")
    if kind not in KINDS:
        hint = did_you_mean(str(kind), KINDS) or f"There are: {', '.join(KINDS)}."
        raise Invalid(f"'{kind}' is not a check, in {where}.", hint=hint)
    made = KINDS[kind]
    known = {each.name: each for each in fields(made) if each.name != "moved"}
    if unknown := sorted(given.keys() - known.keys()):
        hint = did_you_mean(unknown[0], known) or f"It has: {', '.join(known)}."
        raise Invalid(f"The check '{kind}' has no '{unknown[0]}', in {where}.", hint=hint)
    for name, each in known.items():
        if name not in given and each.default is MISSING:
            raise Invalid(f"The check '{kind}' needs '{name}', in {where}.", hint="Write it.")
    values = {name: _fitting(name, known[name].type, value, kind, where) for name, value in given.items()}
    check = made(**values)
    if isinstance(check, Equals):
        check = replace(check, path=_points(check.path))
    if problem := _problem(check):
        raise Invalid(f"The check '{kind}' can't be used, in {where}: {problem}.", hint="Correct it.")
    return check


def row_of(check: Check) -> dict[str, Json]:
    """The row of a file that says this check."""
    row: dict[str, Json] = {"kind": check.kind}
    for each in fields(check):
        value = getattr(check, each.name)
        if each.name != "moved" and value != each.default:
            row[each.name] = list(value) if isinstance(value, tuple) else value
    return row


def _fitting(name: str, type_: Any, value: Json, kind: str, where: str) -> Any:
    """A value of the type that the field has."""
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


def _points(path: str) -> str:
    """A path as JSONPath writes it, with points alone: `$.rows[0].name` is `rows.0.name`."""
    return re.sub(r"\[(\d+)\]", r".\1", path.removeprefix("$")).lstrip(".")


def _problem(check: Check) -> str:
    """Why a check could never be asked, in words; nothing where it can."""
    match check:
        case Contains(text=text) | Rubric(text=text):
            return "" if text.strip() else "'text' is empty"
        case Validator(code=code):
            return "" if code.strip() else "'code' is empty"
        case Called(tool=tool, command=command):
            return "" if bool(tool.strip()) is not bool(command.strip()) else "give 'tool' or 'command', one of them"
        case FileExists(path=path) | FileEquals(path=path):
            return path_problem(path)
        case TableEquals(path=path, table=table):
            return path_problem(path) or ("" if rows_of(table) else "'table' has no header")
        case Matches(pattern=pattern):
            try:
                compile_pattern(pattern)
            except Invalid as error:
                return f"{error.message} {error.hint}".rstrip(".")
            return "" if pattern else "'pattern' is empty"
        case Shape(schema=schema):
            try:
                check_shape(schema)
            except ToolFailed as error:
                return str(error).rstrip(".")
    return ""


def path_problem(path: str) -> str:
    """Why a path leads out of the folder that is worked in; nothing where it does not."""
    parts = path.replace("\\", "/").split("/")
    is_inside = bool(path.strip()) and not path.startswith(("/", "~")) and ".." not in parts and ":" not in parts[0]
    return "" if is_inside else f"'{path}' is not a path inside the folder"


def rows_of(table: str) -> list[dict[str, str]]:
    """The rows of a CSV text, the header's names as keys; the header itself is the first."""
    lines = [line for line in csv.reader(io.StringIO(table.lstrip("\ufeff"), newline="")) if any(line)]
    if not lines:
        return []
    header = [name.strip() for name in lines[0]]
    return [dict(zip(header, (cell.strip() for cell in line), strict=False)) for line in lines]
