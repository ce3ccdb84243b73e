"""A recipe checked and ready to run, or what is wrong with it, line by line.

step         meaning
tool         the name of the tool it calls; `branch` instead goes through a branch and returns
params       its arguments; `$name` and `${name.key}` anywhere in them stand for a parameter or a saved value
save_as      the name under which its result is kept: as data where it is JSON, else as text
when         it runs only if all of it holds: a name, or `name.key`, with its value; `name.outcome` with ok or failed
on_fail      a branch to go through instead of stopping; `continue` goes on
optional     its failure is no failure of the recipe
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from habitus.skills import names
from habitus.skills.formats.recipes_md import Recipe, Step

CONTINUE = "continue"
OUTCOME = "outcome"
_FIELDS = ("tool", "branch", "description", "params", "save_as", "when", "on_fail", "optional")
_TYPES = ("string", "integer", "number", "boolean", "array", "object")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
REFERENCE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<path>[A-Za-z_]\w*(?:\.\w+)*)\}|(?P<dollar>\$))", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """`line` is that of chunks.md; 0 where none is known."""

    line: int
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}" if self.line else self.what


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    name: str
    schema: Mapping[str, Any]
    is_required: bool

    @property
    def default(self) -> Any:
        return self.schema.get("default")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
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
class Plan:
    name: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    steps: tuple[PlannedStep, ...] = ()
    branches: Mapping[str, tuple[PlannedStep, ...]] = field(default_factory=dict)

    @property
    def callable_name(self) -> str:
        return tool_name_of(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """What it takes, as JSON Schema."""
        return {
            "type": "object",
            "properties": {parameter.name: dict(parameter.schema) for parameter in self.parameters},
            "required": [parameter.name for parameter in self.parameters if parameter.is_required],
            "additionalProperties": False,
        }

    @property
    def tools(self) -> frozenset[str]:
        """The tools it may call."""
        return frozenset(step.tool for steps in (self.steps, *self.branches.values()) for step in steps if step.tool)


def tool_name_of(name: str) -> str:
    """What a model calls a recipe of that name."""
    return names.callable_name(names.slugify(name))


def plan(recipe: Recipe) -> tuple[Plan, tuple[Problem, ...]]:
    """The recipe as it would run, and everything that keeps it from running."""
    found = _Found(recipe)
    parameters = tuple(found.parameters())
    made = Plan(
        name=recipe.name,
        description=" ".join(recipe.prose.split()),
        parameters=parameters,
        steps=found.steps("", recipe.steps),
        branches={name: found.steps(name, steps) for name, steps in recipe.branches.items()},
    )
    found.check(made)
    return made, tuple(found.problems)


class _Found:
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self.problems: list[Problem] = []

    def _say(self, line: int, what: str) -> None:
        self.problems.append(Problem(line=line, what=what))

    def parameters(self) -> Iterator[Parameter]:
        for name, given in self._recipe.params.items():
            if not _NAME.fullmatch(str(name)):
                self._say(self._recipe.line, f"'{name}' can't be the name of a parameter: use letters, digits and '_'")
                continue
            # A word is what it means, a block of fields is JSON Schema, anything else is what it is without a word.
            schema = dict(given) if isinstance(given, Mapping) else {}
            if isinstance(given, str):
                schema = {"type": "string", "description": given}
            elif not isinstance(given, Mapping) and given is not None:
                schema = {"default": given}
            is_required = bool(schema.pop("required", "default" not in schema))
            if "type" in schema and schema["type"] not in _TYPES:
                self._say(
                    self._recipe.line, f"the parameter '{name}' has the type '{schema['type']}', which JSON has not"
                )
            yield Parameter(name=str(name), schema=schema, is_required=is_required)

    def steps(self, branch: str, steps: Sequence[Step]) -> tuple[PlannedStep, ...]:
        lines = self._recipe.lines.get(branch, ())
        return tuple(self._step(step, lines[number] if number < len(lines) else 0) for number, step in enumerate(steps))

    def _step(self, step: Step, line: int) -> PlannedStep:
        words = {key: step.get(key, "") for key in ("tool", "branch", "description", "save_as", "on_fail")}
        for key, value in words.items():
            if not isinstance(value, str):
                self._say(line, f"'{key}' is no text")
                words[key] = ""
        blocks = {key: step.get(key) or {} for key in ("params", "when")}
        for key, block in blocks.items():
            if not isinstance(block, Mapping):
                self._say(line, f"'{key}' is no block of fields")
                blocks[key] = {}
        if bool(words["tool"]) == bool(words["branch"]):
            self._say(line, "a step names either a tool or a branch")
        if words["save_as"] and not _NAME.fullmatch(words["save_as"]):
            self._say(line, f"'{words['save_as']}' can't be a name to save under: use letters, digits and '_'")
        for key in step:
            if key not in _FIELDS:
                self._say(line, f"a step has no '{key}'; it has: {', '.join(_FIELDS)}")
        params, when = blocks["params"], blocks["when"]
        return PlannedStep(**words, params=params, when=when, is_optional=step.get("optional") is True, line=line)

    def check(self, made: Plan) -> None:
        if not made.steps:
            self._say(self._recipe.line, "it has no steps")
        saved = {step.save_as for steps in (made.steps, *made.branches.values()) for step in steps if step.save_as}
        known = {parameter.name for parameter in made.parameters} | saved
        for steps in (made.steps, *made.branches.values()):
            for step in steps:
                self._check_step(step, made, known)
        for name in made.branches:
            if name in _reachable(made, name):
                self._say(self._recipe.line, f"the branch '{name}' comes back to itself")

    def _check_step(self, step: PlannedStep, made: Plan, known: set[str]) -> None:
        for name in sorted({*references(step.params), *(str(key).partition(".")[0] for key in step.when)} - known):
            self._say(step.line, f"'{name}' is neither a parameter nor saved by a step")
        if step.tool and tool_name_of(step.tool) == made.callable_name:
            self._say(step.line, "it calls itself")
        if step.branch and step.branch not in made.branches:
            self._say(step.line, f"there is no branch '{step.branch}'")
        if step.on_fail and step.on_fail != CONTINUE and step.on_fail not in made.branches:
            self._say(step.line, f"'on_fail' names no branch: '{step.on_fail}'")


def references(value: Any) -> set[str]:
    """The names that a value refers to."""
    if isinstance(value, Mapping):
        return {name for item in value.values() for name in references(item)}
    if isinstance(value, list | tuple):
        return {name for item in value for name in references(item)}
    if not isinstance(value, str):
        return set()
    found = (match["plain"] or match["path"] or "" for match in REFERENCE.finditer(value))
    return {name.partition(".")[0] for name in found if name}


def _reachable(made: Plan, start: str) -> set[str]:
    """The branches that one leads to."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for step in made.branches.get(waiting.pop(), ()):
            for name in (step.branch, step.on_fail):
                if name in made.branches and name not in found:
                    found.add(name)
                    waiting.append(name)
    return found
