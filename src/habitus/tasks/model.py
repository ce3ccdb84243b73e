"""The nouns of tasks: the task itself, a solution kept beside it, and a submission with its workspace."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from habitus.events import Outcome
from habitus.tasks.checks import (
    Called,
    Check,
    Contains,
    Equals,
    FileEquals,
    FileExists,
    Rubric,
    Shape,
    TableEquals,
    Validator,
    row_of,
)
from habitus.tasks.schema import Json

SHAPE_ONLY = "shape only"
_ID_CHARS = 12


class OriginKind(StrEnum):
    PERSON = "person"  # somebody wrote it
    BUNDLED = "bundled"  # it came with Habitus
    SELF_PLAY = "self-play"  # a model made it up
    SESSION = "session"  # it was asked in a conversation of ours
    TRANSCRIPT = "transcript"  # it was asked in a conversation of another agent
    TOOL = "tool"  # a call of a tool that went well
    FILE = "file"  # a file that says no more


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where a task came from; one of a conversation goes when its person is forgotten."""

    kind: OriginKind = OriginKind.PERSON
    conversation: str = ""
    user: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Solution:
    """A result on file: the reply, Python that leaves the files of it, and the tools it calls."""

    reply: str = ""
    code: str = ""
    calls: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        row = {"reply": self.reply, "code": self.code, "calls": list(self.calls)}
        return {key: value for key, value in row.items() if value} or {"reply": ""}


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Something to do. Setup, solutions and validators are Python, each run in a process of its own in one folder:
    what one leaves for the next are files."""

    id: str
    request: str = ""  # for an agent
    payload: Json = None  # or for a tool
    files: Mapping[str, str] = field(default_factory=dict)  # path → text
    setup: str = ""
    checks: tuple[Check, ...] = ()
    origin: Origin = field(default_factory=Origin)
    reviewed_by: str = ""
    domain: str = ""
    reference: Solution | None = None  # one that passes
    wrong: Solution | None = None  # one that a hurried solver would give, and that must not pass

    def as_json(self) -> dict[str, Json]:
        """The row of a file that says this task; the same over REST and with --json."""
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
            "check": [row_of(check) for check in self.checks],
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
    def expected_result(self) -> Equals | None:
        """The whole result to compare others with, if there is one."""
        return next((one for one in self.checks if isinstance(one, Equals) and not one.path), None)

    def expecting(self, expected: Equals | None) -> Task:
        """The same with another result to compare with, or none."""
        others = tuple(one for one in self.checks if one is not self.expected_result)
        return replace(self, checks=(*others, expected) if expected is not None else others)

    @property
    def shape(self) -> Mapping[str, Json]:
        """The shape that a result has to have, as JSON Schema."""
        return next((one.schema for one in self.checks if isinstance(one, Shape)), {})

    @property
    def compares(self) -> str:
        """The compared part of a tool's result, in words."""
        return self.expected_result.compares if self.expected_result is not None else SHAPE_ONLY

    @property
    def validator(self) -> str:
        """All programs that judge it."""
        return "\n".join(one.code for one in self.checks if isinstance(one, Validator))

    @property
    def hash(self) -> str:
        """Of the exercise that it is, to know what was drawn from it."""
        return hashlib.sha256("\0".join((self.request, self.setup, self.validator)).encode()).hexdigest()[:16]

    @property
    def implied_reference(self) -> Solution | None:
        """The solution that passes: that on file, or the one that the checks themselves spell out."""
        if self.reference is not None or not all(
            isinstance(one, Contains | Called | Shape | Equals) for one in self.checks
        ):
            return self.reference
        if self.expected_result is not None:
            return Solution(reply=json.dumps(self.expected_result.value, ensure_ascii=False))
        if any(isinstance(one, Shape | Equals) for one in self.checks):
            return None
        texts = [one.text for one in self.checks if isinstance(one, Contains)]
        calls = tuple(one.tool or one.command for one in self.checks if isinstance(one, Called))
        return Solution(reply=" ".join(texts), calls=calls)

    @property
    def needs_workspace(self) -> bool:
        """Whether there is a folder to it."""
        of_files = FileExists | FileEquals | TableEquals | Validator
        return bool(self.files or self.setup) or any(isinstance(one, of_files) for one in self.checks)

    @property
    def is_deterministic(self) -> bool:
        return any(not isinstance(one, Rubric) for one in self.checks)


def id_for(request: str, payload: Json, files: Mapping[str, str], setup: str) -> str:
    """The id of a task that has none: the same for the same task, wherever it lies."""
    whole = json.dumps([request, payload, dict(files), setup], sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARS]


class Workspace(Protocol):
    """The folder in which a task is solved, while it exists."""

    async def read(self, path: str) -> bytes | None: ...

    async def run(self, code: str) -> Outcome:
        """Python in the sandbox, there."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A tool that was called; `command` is what a shell was given."""

    tool: str
    arguments: str = ""
    command: str = ""


def call_of(tool: str, arguments: str) -> Call:
    """A call with its arguments as a model wrote them."""
    try:
        given = json.loads(arguments)
    except ValueError:
        given = None
    command = given.get("command") if isinstance(given, dict) else None
    return Call(tool=tool, arguments=arguments, command=command if isinstance(command, str) else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """What an attempt hands in to be judged."""

    reply: str = ""
    calls: tuple[Call, ...] = ()
    workspace: Workspace | None = None
