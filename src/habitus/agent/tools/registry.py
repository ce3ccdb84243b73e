"""The tools that a model can call: what each takes, and how a call becomes a result whatever goes wrong in it."""

from __future__ import annotations

import functools
import inspect
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from habitus.access import Access
from habitus.agent.background import in_thread
from habitus.errors import HabitusError, Invalid, ToolFailed, UserError, did_you_mean
from habitus.events import OK, Event, Outcome, ToolCall, ToolResult, failure, infra
from habitus.evidence.model import Item
from habitus.llm.model import ToolSpec
from habitus.redact import PATTERNS_ONLY, Redactor
from habitus.text import block, encodable, encodable_value, escape_marks

log = logging.getLogger(__name__)

RESULT_CHARS = 20_000


class Arguments(BaseModel):
    """The arguments of a call as the model writes them; a field it should not have written is an error it reads.

    The class also declares the tool: its name in snake case is the tool's, its docstring what the model is told.
    """

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A tool's way to say how its work goes, and to tell the observers what happened."""

    call: str = ""
    turn: str = ""
    round_idx: int = 0
    progress: Callable[[str], None] = lambda text: None
    observe: Callable[[Event], None] = lambda event: None
    report: Callable[[Outcome], None] = lambda outcome: None  # the model's own word on how the turn went
    redactor: Redactor = PATTERNS_ONLY
    sees_images: bool = False  # whether the model that called it does


class Reach(IntEnum):
    """How far what a call does can go, as long as the sandbox holds."""

    NOTHING = 0  # it changes nothing
    HERE = 1  # files of this machine, or what Habitus keeps
    NETWORK = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """`arguments` is the type of what it takes, which also names and describes it unless told otherwise, or the JSON
    Schema where the tool checks for itself."""

    name: str = ""
    description: str = ""
    arguments: type[Arguments] | Mapping[str, object]
    run: Callable[[Any, Running], Awaitable[ToolResult] | ToolResult]  # a plain function runs in a thread
    access: Access | None  # the least that a client of the MCP server has to be; None where it isn't served
    is_parallel: bool = False  # may run beside other calls of the same answer
    keeps: bool = False  # what it is given is stored: secrets are taken out first
    version: int = 0
    skill: str = ""  # whose code or recipe it is
    item: Item | None = None  # what is learned about it; none for the built-in ones
    reach: Reach = Reach.HERE
    takes_away: bool = False  # what was there may be gone after it
    is_repeatable: bool = False  # the same call once more changes nothing more
    is_default: bool = False  # whether the profile of that name has it
    is_pinned: bool = False  # stays in sight where a client keeps the other tools back
    returns: Mapping[str, object] | None = None  # JSON Schema of the object it returns, where that is known

    def __post_init__(self) -> None:
        if isinstance(self.arguments, type):
            object.__setattr__(self, "name", self.name or _snake_case(self.arguments.__name__))
            object.__setattr__(self, "description", self.description or description_of(self.arguments))

    def is_in(self, profile: str | Collection[str]) -> bool:
        """Whether a profile has it, or a choice of names; the code of skills is in every profile."""
        if not isinstance(profile, str):
            return self.name in profile
        match profile_named(profile):
            case Profile.DEFAULT:
                return self.is_default or bool(self.skill)
            case Profile.READ:
                return self.reach is Reach.NOTHING or bool(self.skill)
            case Profile.ALL:
                return True

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    @property
    def parameters(self) -> Mapping[str, object]:
        if isinstance(self.arguments, Mapping):
            return self.arguments
        return _schema(self.arguments)


def description_of(arguments: type[Arguments]) -> str:
    """What the model is told of the tool that takes these."""
    return " ".join((inspect.getdoc(arguments) or "").split())


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


class Registry:
    """Tools by name. The first of two that clash stays; the other is skipped with a warning.

    Those that are `unlisted` can be called by whoever knows their names.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, unlisted: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._unlisted = {tool.name: tool for tool in unlisted}
        self.skipped: list[str] = []
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        if tool.name in self._tools:
            log.warning("The tool %s is not offered: a tool of that name is there already.", tool.name)
            self.skipped.append(tool.name)
        else:
            self._tools[tool.name] = tool

    def all_tools(self) -> tuple[Tool, ...]:
        return tuple(self._tools.values())

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.spec for tool in self.all_tools())

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def _find(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._unlisted.get(name)

    def knows(self, name: str) -> bool:
        return self._find(name) is not None

    def is_parallel(self, call: ToolCall) -> bool:
        tool = self._find(call.name)
        return tool is None or tool.is_parallel

    async def run(self, call: ToolCall, running: Running) -> ToolResult:
        """Run one call. Every way to fail is a result that the model can read and mend."""
        tool = self._find(call.name)
        if tool is None:
            near = did_you_mean(call.name, self._tools) or f"There are: {', '.join(self._tools)}."
            return _failure(f"There is no tool '{call.name}'. {near}")
        try:
            written = running.redactor.redact_json(call.arguments) if tool.keeps else call.arguments
            given = _arguments(tool, written)
            if inspect.iscoroutinefunction(tool.run):
                return _clean(await tool.run(given, running), running.redactor)
            return _clean(await in_thread(partial(_run_plain, tool, given, running)), running.redactor)
        except (ToolFailed, UserError) as error:
            return _clean(_failure(advise_model(error)), running.redactor)
        except Exception as error:
            log.exception("The tool %s has a bug.", call.name)
            said = f"{call.name} broke: {type(error).__name__}. This is not your mistake; try another way."
            return ToolResult(content=said, outcome=infra(f"{type(error).__name__} in {call.name}"))


def _run_plain(tool: Tool, given: object, running: Running) -> ToolResult:
    done = tool.run(given, running)
    assert isinstance(done, ToolResult)
    return done


def _arguments(tool: Tool, text: str) -> object:
    given = _parse_arguments(tool.name, text)
    if isinstance(tool.arguments, Mapping):
        return given
    try:
        return tool.arguments.model_validate(given)
    except ValidationError as error:
        raise ToolFailed(_problems(tool, error)) from None


def _parse_arguments(name: str, text: str) -> dict[str, object]:
    try:
        given = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ToolFailed(f"The arguments of {name} are not JSON: {error}. Send one JSON object.") from None
    if not isinstance(given, dict):
        raise ToolFailed(f"The arguments of {name} must be one JSON object, not {type(given).__name__}.")
    # An escape can spell half a character, which nothing can store.
    return encodable_value(given) if "\\u" in text else given


def _problems(tool: Tool, error: ValidationError) -> str:
    lines = []
    for problem in error.errors()[:5]:
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        lines.append(f"'{where}': {problem['msg'][:1].lower()}{problem['msg'][1:]}")
    properties = tool.parameters["properties"]
    known = ", ".join(properties) if isinstance(properties, Mapping) and properties else "no arguments"
    return f"Wrong arguments for {tool.name}: {'; '.join(lines)}. It takes: {known}."


def _failure(message: str) -> ToolResult:
    return ToolResult(content=block(f"Error: {message}"), outcome=failure(message))


def _clean(result: ToolResult, redactor: Redactor) -> ToolResult:
    """Unable to speak for us and without secrets; cut last, since of a key in two no half would be known."""
    reason = redactor.redact(encodable(result.outcome.reason)).text[:500]
    content = redactor.redact(encodable(result.content)).text
    return cap_result(replace(result, content=escape_marks(content), outcome=replace(result.outcome, reason=reason)))


def cap_result(result: ToolResult) -> ToolResult:
    """The beginning and the end of what is too long, with a mark that says how much is missing."""
    content = result.content
    if len(content) <= RESULT_CHARS:
        return result
    head, tail = RESULT_CHARS * 3 // 4, RESULT_CHARS // 4
    mark = f"\n\n[… {len(content) - head - tail:,} {_LEFT_OUT}\n\n"
    return replace(result, content=content[:head] + mark + content[-tail:])


def is_capped(content: str) -> bool:
    """Whether the middle of a result was left out."""
    return _LEFT_OUT in content


_LEFT_OUT = "characters left out …]"


def json_result(value: object, outcome: Outcome = OK) -> ToolResult:
    """A result as JSON."""
    return ToolResult(content=json.dumps(value, ensure_ascii=False, default=str), outcome=outcome)


@functools.cache  # making one takes a millisecond, and a list of tools is asked for in every round
def _schema(arguments: type[Arguments]) -> Mapping[str, object]:
    schema = _plain(arguments.model_json_schema())
    return {"type": "object", "properties": schema.get("properties", {}), "required": schema.get("required", [])}


def _plain(schema: Any) -> Any:
    """A schema without titles, nulls and defaults that say nothing: the fewer words, the fewer tokens."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        given = [item for item in schema["anyOf"] if item != {"type": "null"}]
        if len(given) == 1:
            schema = {**{key: value for key, value in schema.items() if key != "anyOf"}, **given[0]}
    dropped = {"title", "additionalProperties"} | ({"default"} if schema.get("default") is None else set())
    kept = {
        key: value for key, value in schema.items() if key not in dropped or not isinstance(value, str | bool | None)
    }
    return {
        key: {name: _plain(item) for name, item in value.items()} if key == "properties" else _plain(value)
        for key, value in kept.items()
    }


# Errors as a model reads them: what a person would type is said as what a tool does, or is left to the person.

_COMMAND = re.compile(r"\bhabitus ([a-z]+ [a-z]+|[a-z]+)")
_POINTER = re.compile(r"; (?:see|run) (?='habitus )")
_TOOLS = {
    "skills list": "list_skills shows what there is.",
    "tools list": "manage_skills lists them.",
    "lessons list": "list_lessons shows them.",
}


def advise_model(error: HabitusError) -> str:
    """The error in words, with a mend that the model can follow."""
    if not isinstance(error, UserError) or (typed := _COMMAND.search(error.mend)) is None:
        return explain_absence(str(error))
    mend = _TOOLS.get(typed[1]) or f"Only a person can do that; tell them: {error.mend}"
    return f"{explain_absence(error.message)} {mend}"


def explain_absence(reason: str) -> str:
    """Why something is not to be had, with the command that changes it left to the person."""
    return _POINTER.sub("; only a person can change that, tell them: ", reason)


class Profile(StrEnum):
    DEFAULT = "default"
    READ = "read"  # what changes nothing
    ALL = "all"


def profile_named(name: str) -> Profile:
    if name not in set(Profile):
        mend = did_you_mean(name, Profile) or f"There are: {', '.join(Profile)}."
        raise Invalid(f"There is no profile '{name}' of tools.", mend=mend)
    return Profile(name)
