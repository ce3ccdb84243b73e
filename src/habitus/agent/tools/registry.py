"""The tools a model can call: their arguments, and how a call becomes a result whatever goes wrong."""

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
from habitus.agent.background import run_in_thread
from habitus.errors import HabitusError, Invalid, ToolFailed, UserError, did_you_mean
from habitus.events import (
    OK,
    AgentEvent,
    Outcome,
    ToolCall,
    ToolResult,
    build_failed_outcome,
    build_infrastructure_failure_outcome,
)
from habitus.evidence.model import EvidenceItem
from habitus.llm.model import ToolSpec
from habitus.redact import PATTERNS_ONLY, Redactor
from habitus.text import (
    escape_lines_resembling_prompt_marks,
    escape_prompt_marks,
    replace_surrogates,
    replace_surrogates_in_value,
)

log = logging.getLogger(__name__)

# Longer results crowd out the conversation; the model can page through files instead.
RESULT_CHARS = 20_000


class ToolArguments(BaseModel):
    """The arguments of a tool call. Unknown fields are refused, so that the model reads what is wrong.

    A subclass also declares the tool: its name in snake case is the tool's name, its docstring the description for the
    model.
    """

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallContext:
    """The context of a running call: reports progress, events and outcomes."""

    call: str = ""
    turn: str = ""
    round_idx: int = 0
    progress: Callable[[str], None] = lambda text: None
    observe: Callable[[AgentEvent], None] = lambda event: None
    # The model's own report of the outcome.
    report: Callable[[Outcome], None] = lambda outcome: None
    redactor: Redactor = PATTERNS_ONLY
    # Whether the calling model sees images.
    sees_images: bool = False


class ToolEffectReach(IntEnum):
    """How far the effects of a call can go while the sandbox holds."""

    NOTHING = 0  # changes nothing
    HERE = 1  # files on this machine, or the home
    NETWORK = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool. `arguments` is a model that also names and describes it by default, or a JSON Schema if it validates
    itself.
    """

    name: str = ""
    description: str = ""
    arguments: type[ToolArguments] | Mapping[str, object]
    # A plain function runs in a thread.
    run: Callable[[Any, ToolCallContext], Awaitable[ToolResult] | ToolResult]
    # The minimum role of an MCP client; None if the tool is not served there.
    access: Access | None
    # May run beside other calls of the same answer.
    is_parallel: bool = False
    # The arguments are stored, so secrets are redacted first.
    stores_arguments: bool = False
    version: int = 0
    # The skill whose code or recipe it is.
    skill: str = ""
    # The item for which evidence is collected; None for built-in tools.
    item: EvidenceItem | None = None
    reach: ToolEffectReach = ToolEffectReach.HERE
    # May delete or overwrite something.
    is_destructive: bool = False
    # Repeating the call changes nothing more.
    is_repeatable: bool = False
    # Whether it is in the default profile.
    is_default: bool = False
    # Stays listed if a client defers the other tools.
    is_pinned: bool = False
    # JSON Schema of the result, if known.
    returns: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.arguments, type):
            object.__setattr__(self, "name", self.name or _derive_tool_name_from_arguments_class(self.arguments))
            object.__setattr__(
                self, "description", self.description or get_docstring_as_tool_description(self.arguments)
            )

    def is_in_profile(self, profile: str | Collection[str]) -> bool:
        """Whether the tool belongs to a profile or a list of names; the code of skills is in every profile."""
        if not isinstance(profile, str):
            return self.name in profile
        match parse_tool_profile(profile):
            case ToolProfile.DEFAULT:
                return self.is_default or bool(self.skill)
            case ToolProfile.READ:
                return self.reach is ToolEffectReach.NOTHING or bool(self.skill)
            case ToolProfile.ALL:
                return True

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    @property
    def parameters(self) -> Mapping[str, object]:
        if isinstance(self.arguments, Mapping):
            return self.arguments
        return _build_parameters_schema(self.arguments)


def get_docstring_as_tool_description(arguments: type[ToolArguments]) -> str:
    """Return the description for the model: the docstring on one line."""
    return " ".join((inspect.getdoc(arguments) or "").split())


def _derive_tool_name_from_arguments_class(arguments: type[ToolArguments]) -> str:
    """Return the tool's name by its arguments' class: `list_skills` for `ListSkillsArguments`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", arguments.__name__.removesuffix("Arguments")).lower()


class ToolRegistry:
    """Tools by name. Of two with the same name the second is skipped with a warning.

    `unlisted` tools are not offered but can be called by name.
    """

    def __init__(self, tools: Iterable[Tool] = (), *, unlisted: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._unlisted = {tool.name: tool for tool in unlisted}
        self.skipped: list[str] = []
        for tool in tools:
            self.add_tool(tool)

    def add_tool(self, tool: Tool) -> None:
        """Add a tool, unless its name is taken."""
        if tool.name in self._tools:
            log.warning("The tool %s is not offered: a tool of that name is there already.", tool.name)
            self.skipped.append(tool.name)
        else:
            self._tools[tool.name] = tool

    def list_tools(self) -> tuple[Tool, ...]:
        """Return the listed tools."""
        return tuple(self._tools.values())

    def list_specs(self) -> tuple[ToolSpec, ...]:
        """Return the specifications of the listed tools."""
        return tuple(tool.spec for tool in self.list_tools())

    def list_tool_names(self) -> tuple[str, ...]:
        """Return the names of the listed tools."""
        return tuple(self._tools)

    def _find_tool(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._unlisted.get(name)

    def has_tool(self, name: str) -> bool:
        """Whether a tool can be called, listed or not."""
        return self._find_tool(name) is not None

    def is_parallel(self, call: ToolCall) -> bool:
        """Whether a call may run beside others; an unknown tool fails at once, so it may."""
        tool = self._find_tool(call.name)
        return tool is None or tool.is_parallel

    async def run_call(self, call: ToolCall, running: ToolCallContext) -> ToolResult:
        """Run one call. Every failure becomes a result that the model can read and act on."""
        tool = self._find_tool(call.name)
        if tool is None:
            near = did_you_mean(call.name, self._tools) or f"There are: {', '.join(self._tools)}."
            return _build_failure_result(f"There is no tool '{call.name}'. {near}")
        try:
            written = running.redactor.redact_json(call.arguments) if tool.stores_arguments else call.arguments
            given = _parse_and_validate_arguments(tool, written)
            if inspect.iscoroutinefunction(tool.run):
                return _redact_and_truncate_result(await tool.run(given, running), running.redactor)
            return _redact_and_truncate_result(
                await run_in_thread(partial(_run_sync_tool, tool, given, running)), running.redactor
            )
        except (ToolFailed, UserError) as error:
            return _redact_and_truncate_result(_build_failure_result(render_error_for_model(error)), running.redactor)
        except Exception as error:
            log.exception("The tool %s has a bug.", call.name)
            said = f"{call.name} broke: {type(error).__name__}. This is not your mistake; try another way."
            return ToolResult(
                content=said, outcome=build_infrastructure_failure_outcome(f"{type(error).__name__} in {call.name}")
            )


def _run_sync_tool(tool: Tool, given: object, running: ToolCallContext) -> ToolResult:
    done = tool.run(given, running)
    assert isinstance(done, ToolResult)
    return done


def _parse_and_validate_arguments(tool: Tool, text: str) -> object:
    given = _parse_json_arguments(tool.name, text)
    if isinstance(tool.arguments, Mapping):
        return given
    try:
        return tool.arguments.model_validate(given)
    except ValidationError as error:
        raise ToolFailed(_describe_validation_error(tool, error)) from None


def _parse_json_arguments(name: str, text: str) -> dict[str, object]:
    try:
        given = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ToolFailed(f"The arguments of {name} are not JSON: {error}. Send one JSON object.") from None
    if not isinstance(given, dict):
        raise ToolFailed(f"The arguments of {name} must be one JSON object, not {type(given).__name__}.")
    # An escape can spell half a character, which nothing can store.
    return replace_surrogates_in_value(given) if "\\u" in text else given


def _describe_validation_error(tool: Tool, error: ValidationError) -> str:
    lines = []
    for problem in error.errors()[:5]:
        where = ".".join(str(part) for part in problem["loc"]) or "arguments"
        lines.append(f"'{where}': {problem['msg'][:1].lower()}{problem['msg'][1:]}")
    properties = tool.parameters["properties"]
    known = ", ".join(properties) if isinstance(properties, Mapping) and properties else "no arguments"
    return f"Wrong arguments for {tool.name}: {'; '.join(lines)}. It takes: {known}."


def _build_failure_result(message: str) -> ToolResult:
    return ToolResult(
        content=escape_lines_resembling_prompt_marks(f"Error: {message}"), outcome=build_failed_outcome(message)
    )


def _redact_and_truncate_result(made: ToolResult, redactor: Redactor) -> ToolResult:
    """Redact and escape a result, then truncate it: half of a secret could not be recognized."""
    reason = redactor.redact(replace_surrogates(made.outcome.reason)).text[:500]
    content = redactor.redact(replace_surrogates(made.content)).text
    return truncate_middle_of_result(
        replace(made, content=escape_prompt_marks(content), outcome=replace(made.outcome, reason=reason))
    )


def truncate_middle_of_result(result: ToolResult) -> ToolResult:
    """Truncate the middle of a long result, with a note that says how much is missing."""
    content = result.content
    if len(content) <= RESULT_CHARS:
        return result
    head, tail = RESULT_CHARS * 3 // 4, RESULT_CHARS // 4
    mark = f"\n\n[… {len(content) - head - tail:,} {_LEFT_OUT}\n\n"
    return replace(result, content=content[:head] + mark + content[-tail:])


def is_result_text_truncated(content: str) -> bool:
    """Whether the middle of a result was left out."""
    return _LEFT_OUT in content


_LEFT_OUT = "characters left out …]"


def build_json_result(value: object, outcome: Outcome = OK) -> ToolResult:
    """Return a result with a JSON body."""
    return ToolResult(content=json.dumps(value, ensure_ascii=False, default=str), outcome=outcome)


# Building a schema takes a millisecond, and tools are listed in every round.
@functools.cache
def _build_parameters_schema(arguments: type[ToolArguments]) -> Mapping[str, object]:
    schema = _simplify_schema(arguments.model_json_schema())
    return {"type": "object", "properties": schema.get("properties", {}), "required": schema.get("required", [])}


def _simplify_schema(schema: Any) -> Any:
    """Return a schema without titles, nulls and empty defaults, to save tokens."""
    if isinstance(schema, list):
        return [_simplify_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:
        given = [item for item in schema["anyOf"] if item != {"type": "null"}]
        if len(given) == 1:
            schema = {**{key: value for key, value in schema.items() if key != "anyOf"}, **given[0]}
    gone = {"title", "additionalProperties"} | ({"default"} if schema.get("default") is None else set())
    kept = {key: value for key, value in schema.items() if key not in gone or not isinstance(value, str | bool | None)}
    return {
        key: {name: _simplify_schema(item) for name, item in value.items()}
        if key == "properties"
        else _simplify_schema(value)
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


def render_error_for_model(error: HabitusError) -> str:
    """Return the error text for the model: a hint for people becomes a tool name or a note to tell the person."""
    if not isinstance(error, UserError) or (typed := _COMMAND.search(error.hint)) is None:
        return rewrite_commands_as_notes_for_person(str(error))
    hint = _TOOLS.get(typed[1]) or f"Only a person can do that; tell them: {error.hint}"
    return f"{rewrite_commands_as_notes_for_person(error.message)} {hint}"


def rewrite_commands_as_notes_for_person(reason: str) -> str:
    """Return the reason with any command in it addressed to the person."""
    return _POINTER.sub("; only a person can change that, tell them: ", reason)


class ToolProfile(StrEnum):
    """A named selection of tools."""

    DEFAULT = "default"
    # Tools that change nothing.
    READ = "read"
    ALL = "all"


def parse_tool_profile(name: str) -> ToolProfile:
    """Return the profile of that name; `Invalid` if there is none."""
    if name not in set(ToolProfile):
        hint = did_you_mean(name, ToolProfile) or f"There are: {', '.join(ToolProfile)}."
        raise Invalid(f"There is no profile '{name}' of tools.", hint=hint)
    return ToolProfile(name)
