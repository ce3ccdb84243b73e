"""Task data model: the task, a stored solution, and a submission with its workspace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from habitus.events import Outcome
from habitus.tasks.checks import (
    Check,
    CsvTableEqualsCheck,
    FileEqualsCheck,
    FileExistsCheck,
    PythonValidatorCheck,
    ReplyContainsCheck,
    ReplyEqualsCheck,
    ReplyShapeCheck,
    RubricCheck,
    ToolCalledCheck,
    check_to_row,
)
from habitus.tasks.schema import Json

SHAPE_ONLY = "shape only"
VARIANT_MARK = "~"  # in an id, between the family and the variant
_ID_CHARS = 12


class TaskOriginKind(StrEnum):
    PERSON = "person"  # written by a person
    BUNDLED = "bundled"  # shipped with Habitus
    SELF_PLAY = "self-play"  # invented by a model
    DRAFTED = "drafted"  # written from the skill's text by a model or the person's agent
    VARIANT = "variant"  # another task with other values, by rule
    SESSION = "session"  # asked in a Habitus session
    TRANSCRIPT = "transcript"  # asked in a session of another agent
    TOOL = "tool"  # a successful tool call
    FILE = "file"  # a file without more information
    IMPORTED = "imported"  # came with an import to a skill that was here


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOrigin:
    """Where a task came from; one from a conversation is erased with its person."""

    kind: TaskOriginKind = TaskOriginKind.PERSON
    conversation: str = ""
    user: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskSolution:
    """A stored solution: the reply, Python that writes its files, and the tools it calls."""

    reply: str = ""
    code: str = ""
    calls: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        row = {"reply": self.reply, "code": self.code, "calls": list(self.calls)}
        return {key: value for key, value in row.items() if value} or {"reply": ""}


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A request with its checks. Setup, solutions and validators are Python, each run in its own process in one folder:
    they share only files.
    """

    id: str
    request: str = ""  # for an agent
    payload: Json = None  # or for a tool
    files: Mapping[str, str] = field(default_factory=dict)  # path → text
    setup: str = ""
    checks: tuple[Check, ...] = ()
    origin: TaskOrigin = field(default_factory=TaskOrigin)
    reviewed_by: str = ""
    domain: str = ""
    reference: TaskSolution | None = None  # passes
    wrong: TaskSolution | None = None  # a plausible mistake, which must not pass

    def as_json(self) -> dict[str, Json]:
        """Return the row of a file for this task; the same over REST and with --json."""
        origin = {"kind": self.origin.kind.value, "conversation": self.origin.conversation, "user": self.origin.user}
        row: dict[str, Json] = {
            "id": self.id,
            "request": self.request,
            "payload": self.payload,
            "files": dict(self.files),
            "setup": self.setup,
            "origin": {key: value for key, value in origin.items() if value},
            "reviewed_by": self.reviewed_by,
            "domain": self.domain,
            "reference": self.reference.as_json() if self.reference is not None else None,
            "wrong": self.wrong.as_json() if self.wrong is not None else None,
            "check": [check_to_row(check) for check in self.checks],
        }
        return {
            key: value
            for key, value in row.items()
            if value not in ("", {}, None) or (key == "payload" and self.is_for_tool)
        }

    @property
    def is_for_tool(self) -> bool:
        return not self.request

    @property
    def expected_result(self) -> ReplyEqualsCheck | None:
        """The whole result to compare with, if there is one."""
        return next((one for one in self.checks if isinstance(one, ReplyEqualsCheck) and not one.path), None)

    def with_expected_result(self, expected: ReplyEqualsCheck | None) -> Task:
        """Return the task with another expected result, or none."""
        others = tuple(one for one in self.checks if one is not self.expected_result)
        return replace(self, checks=(*others, expected) if expected is not None else others)

    @property
    def result_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of a valid result."""
        return next((one.schema for one in self.checks if isinstance(one, ReplyShapeCheck)), {})

    @property
    def compared_parts_description(self) -> str:
        """What is compared of a tool's result, in words."""
        return self.expected_result.compared_parts_description if self.expected_result is not None else SHAPE_ONLY

    @property
    def validator(self) -> str:
        """The code of all validators."""
        return "\n".join(one.code for one in self.checks if isinstance(one, PythonValidatorCheck))

    @property
    def hash(self) -> str:
        """A hash of the exercise, to recognise what was learned from it."""
        return hashlib.sha256("\0".join((self.request, self.setup, self.validator)).encode()).hexdigest()[:16]

    @property
    def stored_or_implied_solution(self) -> TaskSolution | None:
        """The stored reference, or the solution that the checks themselves spell out."""
        if self.reference is not None or not all(
            isinstance(one, ReplyContainsCheck | ToolCalledCheck | ReplyShapeCheck | ReplyEqualsCheck)
            for one in self.checks
        ):
            return self.reference
        if self.expected_result is not None:
            return TaskSolution(reply=json.dumps(self.expected_result.value, ensure_ascii=False))
        if any(isinstance(one, ReplyShapeCheck | ReplyEqualsCheck) for one in self.checks):
            return None
        texts = [one.text for one in self.checks if isinstance(one, ReplyContainsCheck)]
        calls = tuple(one.tool or one.command for one in self.checks if isinstance(one, ToolCalledCheck))
        return TaskSolution(reply=" ".join(texts), calls=calls)

    @property
    def needs_workspace(self) -> bool:
        """Whether the task needs a folder."""
        of_files = FileExistsCheck | FileEqualsCheck | CsvTableEqualsCheck | PythonValidatorCheck
        return bool(self.files or self.setup) or any(isinstance(one, of_files) for one in self.checks)

    @property
    def has_check_without_model(self) -> bool:
        return any(not isinstance(one, RubricCheck) for one in self.checks)


def compute_task_id(request: str, payload: Json, files: Mapping[str, str], setup: str) -> str:
    """Return the id of a task that has none: the same for the same task, wherever it is stored."""
    whole = json.dumps([request, payload, dict(files), setup], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]


def get_task_family(id: str) -> str:
    """Return the family of a task: `sum~2` is a variant of `sum`, and both count as one observation."""
    return id.partition(VARIANT_MARK)[0]


class Workspace(Protocol):
    """The folder in which a task is solved."""

    async def read_file(self, path: str) -> bytes | None: ...

    async def run_code(self, code: str) -> Outcome:
        """Run Python in the folder, in the sandbox."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallOfAttempt:
    """A tool call; `command` is the command line of a shell."""

    tool: str
    arguments: str = ""
    command: str = ""


def parse_submitted_call(tool: str, arguments: str) -> ToolCallOfAttempt:
    """Return a call with its arguments as a model wrote them."""
    try:
        given = json.loads(arguments)
    except ValueError:
        given = None
    command = given.get("command") if isinstance(given, dict) else None
    return ToolCallOfAttempt(tool=tool, arguments=arguments, command=command if isinstance(command, str) else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """What an attempt submits to be judged."""

    reply: str = ""
    calls: tuple[ToolCallOfAttempt, ...] = ()
    workspace: Workspace | None = None
