"""Checks a recipe and turns it into a plan, and runs plans call by call with earlier values filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from habitus.errors import Invalid
from habitus.events import OK, Outcome, ToolResult, build_failed_outcome, build_infrastructure_failure_outcome
from habitus.skills import names
from habitus.skills.formats.recipes_md import REFERENCE, Recipe, RecipeStep, list_referenced_variable_names

# Per run, whatever its branches do.
MAX_CALLS = 50
# Runs a tool by name, with arguments as JSON.
RunTool = Callable[[str, str], Awaitable[ToolResult]]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRun:
    """One call of a run, with its result."""

    number: int
    tool: str
    arguments: Mapping[str, Any]
    description: str = ""
    content: str = ""
    outcome: Outcome = OK
    line: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRunResult:
    """The outcome of a run, with all its calls."""

    outcome: Outcome
    steps: tuple[StepRun, ...] = ()

    @property
    def content(self) -> str:
        """The content of the last successful call; of the last call if the run failed."""
        said = [step.content for step in self.steps if step.outcome.is_ok or not self.outcome.is_ok]
        return said[-1] if said else ""


class _RecipeStoppedError(Exception):
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeParameter:
    """A parameter of a recipe, with its JSON Schema."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    @property
    def default(self) -> Any:
        return self.schema.get("default")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
    """A checked step: a tool call, or a jump to a branch."""

    tool: str = ""
    branch: str = ""
    description: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    save_as: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    on_fail: str = ""
    is_optional: bool = False
    line: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipePlan:
    """A recipe ready to run."""

    name: str
    description: str
    parameters: tuple[RecipeParameter, ...] = ()
    steps: tuple[PlannedStep, ...] = ()
    branches: Mapping[str, tuple[PlannedStep, ...]] = field(default_factory=dict)

    @property
    def callable_name(self) -> str:
        return get_recipe_tool_name(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """The parameters as JSON Schema."""
        return {
            "type": "object",
            "properties": {parameter.name: dict(parameter.schema) for parameter in self.parameters},
            "required": [parameter.name for parameter in self.parameters if parameter.is_required],
            "additionalProperties": False,
        }

    @property
    def tools(self) -> frozenset[str]:
        """The tools that the recipe may call."""
        return frozenset(step.tool for steps in (self.steps, *self.branches.values()) for step in steps if step.tool)


@dataclass(kw_only=True, slots=True)
class _RunState:
    plan: RecipePlan
    run_tool: RunTool
    values: dict[str, Any]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    steps: list[StepRun] = field(default_factory=list)


async def execute_plan(plan: RecipePlan, run_tool: RunTool, params: Mapping[str, Any]) -> RecipeRunResult:
    """Run a plan to its end, or to the first failure that it does not handle; raise Invalid if a parameter is
    missing.
    """
    now = _RunState(plan=plan, run_tool=run_tool, values=fill_parameter_defaults(plan, params))
    try:
        await _run_steps(now, plan.steps)
    except _RecipeStoppedError as stopped:
        return RecipeRunResult(outcome=stopped.outcome, steps=tuple(now.steps))
    return RecipeRunResult(outcome=OK, steps=tuple(now.steps))


def fill_parameter_defaults(plan: RecipePlan, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters with defaults for those left out; raise Invalid for unknown or missing ones."""
    known = {parameter.name: parameter for parameter in plan.parameters}
    if strange := sorted(set(params) - set(known)):
        has = ", ".join(known) or "no parameters"
        raise Invalid(f"The recipe '{plan.name}' has no parameter '{strange[0]}'.", hint=f"It has: {has}.")
    missing = [name for name, parameter in known.items() if parameter.is_required and name not in params]
    if missing:
        raise Invalid(f"The recipe '{plan.name}' needs {', '.join(missing)}.", hint="Nothing was run.")
    return {name: params.get(name, parameter.default) for name, parameter in known.items()}


def preview_planned_calls(plan: RecipePlan, params: Mapping[str, Any]) -> list[StepRun]:
    """Return the calls of a run without failures, as far as they are known: saved values stay references."""
    values = fill_parameter_defaults(plan, params)
    return [
        StepRun(
            number=number,
            tool=step.tool or f"branch {step.branch}",
            arguments=replace_references_with_values(step.params, values),
            description=step.description,
            line=step.line,
        )
        for number, step in enumerate(plan.steps, 1)
    ]


async def _run_steps(now: _RunState, steps: Sequence[PlannedStep]) -> None:
    for step in steps:
        if not _is_condition_met(now, step.when):
            continue
        if step.branch:
            await _run_steps(now, now.plan.branches[step.branch])
        else:
            await _run_tool_step(now, step)


async def _run_tool_step(now: _RunState, step: PlannedStep) -> None:
    if len(now.steps) >= MAX_CALLS:
        raise _RecipeStoppedError(build_failed_outcome(f"it made {MAX_CALLS} calls and was not done"))
    arguments = replace_references_with_values(step.params, now.values)
    done = await now.run_tool(step.tool, json.dumps(arguments, ensure_ascii=False, default=str))
    now.steps.append(
        StepRun(
            number=len(now.steps) + 1,
            tool=step.tool,
            arguments=arguments,
            description=step.description,
            content=done.content,
            outcome=done.outcome,
            line=step.line,
        )
    )
    if step.save_as:
        now.values[step.save_as] = parse_step_result(done.content)
        now.outcomes[step.save_as] = done.outcome
    if done.outcome.is_ok:
        return
    if step.on_fail and step.on_fail != CONTINUE:
        await _run_steps(now, now.plan.branches[step.on_fail])
    elif not step.is_optional and step.on_fail != CONTINUE:
        what = f"step {len(now.steps)}, {step.tool}: {done.outcome.reason}"
        raise _RecipeStoppedError(
            build_infrastructure_failure_outcome(what) if done.outcome.kind == "infra" else build_failed_outcome(what)
        )


def _is_condition_met(now: _RunState, when: Mapping[str, Any]) -> bool:
    return all(
        _is_value_matching_condition(now, str(name), replace_references_with_values(wanted, now.values))
        for name, wanted in when.items()
    )


def _is_value_matching_condition(now: _RunState, name: str, wanted: Any) -> bool:
    first, _, rest = name.partition(".")
    if rest == OUTCOME:
        outcome = now.outcomes.get(first)
        return outcome is not None and outcome.kind == wanted
    found, is_there = look_up_value_at_path(now.values, name.split("."))
    return is_there and found == wanted


def replace_references_with_values(value: Any, values: Mapping[str, Any]) -> Any:
    """Replace references in a value; a lone reference keeps its value's type, others become text.

    References to unknown names stay as written.
    """
    if isinstance(value, Mapping):
        return {key: replace_references_with_values(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_references_with_values(item, values) for item in value]
    if not isinstance(value, str):
        return value
    whole = REFERENCE.fullmatch(value)
    if whole is not None and not whole["dollar"]:
        found, is_there = look_up_value_at_path(values, (whole["plain"] or whole["path"]).split("."))
        return found if is_there else value

    def put(match: Any) -> str:
        if match["dollar"]:
            return "$"
        found, is_there = look_up_value_at_path(values, (match["plain"] or match["path"]).split("."))
        return format_value_as_text_or_json(found) if is_there else str(match[0])

    return REFERENCE.sub(put, value)


def look_up_value_at_path(value: Any, path: Sequence[str]) -> tuple[Any, bool]:
    """Return the value at a path and whether it exists."""
    for part in path:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None, False
    return value, True


def format_value_as_text_or_json(value: Any) -> str:
    """Return text unchanged, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def parse_step_result(content: str) -> Any:
    """Return a result as later steps see it: parsed JSON, or the text."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


CONTINUE = "continue"
OUTCOME = "outcome"
_FIELDS = ("tool", "branch", "description", "params", "save_as", "when", "on_fail", "optional")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeProblem:
    """A mistake in a recipe; `line` is that in chunks.md, 0 if unknown."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


def get_recipe_tool_name(name: str) -> str:
    """Return the name under which a model calls a recipe."""
    return names.to_tool_name(names.slugify(name))


def compile_recipe_into_plan(recipe: Recipe) -> tuple[RecipePlan, tuple[RecipeProblem, ...]]:
    """Return the plan of a recipe and everything that prevents it from running."""
    found = _RecipeCompiler(recipe)
    parameters = tuple(found.plan_parameters())
    made = RecipePlan(
        name=recipe.name,
        description=" ".join(recipe.prose.split()),
        parameters=parameters,
        steps=found.plan_steps("", recipe.steps),
        branches={name: found.plan_steps(name, steps) for name, steps in recipe.branches.items()},
    )
    found.check_plan(made)
    return made, tuple(found.problems)


class _RecipeCompiler:
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self.problems: list[RecipeProblem] = []

    def _add_problem(self, line: int, what: str) -> None:
        self.problems.append(RecipeProblem(line=line, message=what))

    def plan_parameters(self) -> Iterator[RecipeParameter]:
        for name, given in self._recipe.params.items():
            if not _NAME.fullmatch(str(name)):
                self._add_problem(
                    self._recipe.line, f"'{name}' can't be the name of a parameter: use letters, digits and '_'"
                )
                continue
            # Text is a description, a block of fields is JSON Schema, and anything else is the default.
            schema = dict(given) if isinstance(given, Mapping) else {}
            if isinstance(given, str):
                schema = {"type": "string", "description": given}
            elif not isinstance(given, Mapping) and given is not None:
                schema = {"default": given}
            is_required = bool(schema.pop("required", "default" not in schema))
            if "type" in schema and schema["type"] not in _TYPES:
                self._add_problem(
                    self._recipe.line, f"the parameter '{name}' has the type '{schema['type']}', which JSON has not"
                )
            yield RecipeParameter(name=str(name), schema=schema, is_required=is_required)

    def plan_steps(self, branch: str, steps: Sequence[RecipeStep]) -> tuple[PlannedStep, ...]:
        lines = self._recipe.lines.get(branch, ())
        return tuple(self._plan_step(step, lines[at] if at < len(lines) else 0) for at, step in enumerate(steps))

    def _plan_step(self, step: RecipeStep, line: int) -> PlannedStep:
        words = {key: step.get(key, "") for key in ("tool", "branch", "description", "save_as", "on_fail")}
        for key, value in words.items():
            if not isinstance(value, str):
                self._add_problem(line, f"'{key}' is not text")
                words[key] = ""
        blocks = {key: step.get(key) or {} for key in ("params", "when")}
        for key, block in blocks.items():
            if not isinstance(block, Mapping):
                self._add_problem(line, f"'{key}' is not a block of fields")
                blocks[key] = {}
        if bool(words["tool"]) == bool(words["branch"]):
            self._add_problem(line, "a step names either a tool or a branch")
        if words["save_as"] and not _NAME.fullmatch(words["save_as"]):
            self._add_problem(line, f"'{words['save_as']}' can't be a name to save under: use letters, digits and '_'")
        for key in step:
            if key not in _FIELDS:
                self._add_problem(line, f"a step has no '{key}'; it has: {', '.join(_FIELDS)}")
        params, when = blocks["params"], blocks["when"]
        return PlannedStep(**words, params=params, when=when, is_optional=step.get("optional") is True, line=line)

    def check_plan(self, made: RecipePlan) -> None:
        if not made.steps:
            self._add_problem(self._recipe.line, "it has no steps")
        saved = {step.save_as for steps in (made.steps, *made.branches.values()) for step in steps if step.save_as}
        known = {parameter.name for parameter in made.parameters} | saved
        for steps in (made.steps, *made.branches.values()):
            for step in steps:
                self._check_step(step, made, known)
        for name in made.branches:
            if name in _list_reachable_branches(made, name):
                self._add_problem(self._recipe.line, f"the branch '{name}' comes back to itself")

    def _check_step(self, step: PlannedStep, made: RecipePlan, known: set[str]) -> None:
        for name in sorted(
            {*list_referenced_variable_names(step.params), *(str(key).partition(".")[0] for key in step.when)} - known
        ):
            self._add_problem(step.line, f"'{name}' is neither a parameter nor saved by a step")
        if step.tool and get_recipe_tool_name(step.tool) == made.callable_name:
            self._add_problem(step.line, "it calls itself")
        if step.branch and step.branch not in made.branches:
            self._add_problem(step.line, f"there is no branch '{step.branch}'")
        if step.on_fail and step.on_fail != CONTINUE and step.on_fail not in made.branches:
            self._add_problem(step.line, f"'on_fail' names no branch: '{step.on_fail}'")


def _list_reachable_branches(made: RecipePlan, start: str) -> set[str]:
    """Return the branches that can follow a branch."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for step in made.branches.get(waiting.pop(), ()):
            for name in (step.branch, step.on_fail):
                if name in made.branches and name not in found:
                    found.add(name)
                    waiting.append(name)
    return found
