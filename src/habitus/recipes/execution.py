"""Running a recipe: one call after another through whoever runs tools, with what came before filled in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from habitus.errors import Invalid
from habitus.events import OK, Outcome, ToolResult, failed, infra
from habitus.recipes.plan import CONTINUE, OUTCOME, REFERENCE, Plan, PlannedStep

MOST_CALLS = 50  # of one run, whatever its branches do

RunTool = Callable[[str, str], Awaitable[ToolResult]]  # by name, with JSON


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRun:
    """What became of one call."""

    number: int
    tool: str
    arguments: Mapping[str, Any]
    description: str = ""
    content: str = ""
    outcome: Outcome = OK
    line: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRun:
    outcome: Outcome
    steps: tuple[StepRun, ...] = ()

    @property
    def content(self) -> str:
        """The result: of the last call that went well, or where the run failed, of the last there was."""
        said = [step.content for step in self.steps if step.outcome.is_ok or not self.outcome.is_ok]
        return said[-1] if said else ""


class _Stopped(Exception):
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


@dataclass(kw_only=True, slots=True)
class _Now:
    plan: Plan
    run_tool: RunTool
    values: dict[str, Any]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    steps: list[StepRun] = field(default_factory=list)


async def execute(plan: Plan, run_tool: RunTool, params: Mapping[str, Any]) -> RecipeRun:
    """Run it to its end, or to the first failure that nothing in it answers. A missing parameter stops it before."""
    now = _Now(plan=plan, run_tool=run_tool, values=fill_defaults(plan, params))
    try:
        await _run(now, plan.steps)
    except _Stopped as stopped:
        return RecipeRun(outcome=stopped.outcome, steps=tuple(now.steps))
    return RecipeRun(outcome=OK, steps=tuple(now.steps))


def fill_defaults(plan: Plan, params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with what stands for those that were left out."""
    known = {parameter.name: parameter for parameter in plan.parameters}
    if strange := sorted(set(params) - set(known)):
        has = ", ".join(known) or "no parameters"
        raise Invalid(f"The recipe '{plan.name}' has no parameter '{strange[0]}'.", mend=f"It has: {has}.")
    missing = [name for name, parameter in known.items() if parameter.is_required and name not in params]
    if missing:
        raise Invalid(f"The recipe '{plan.name}' needs {', '.join(missing)}.", mend="Nothing was run.")
    return {name: params.get(name, parameter.default) for name, parameter in known.items()}


def foreseen(plan: Plan, params: Mapping[str, Any]) -> list[StepRun]:
    """The calls of a run in which nothing fails, as far as they can be told before: saved values stay references."""
    values = fill_defaults(plan, params)
    return [
        StepRun(
            number=number,
            tool=step.tool or f"branch {step.branch}",
            arguments=fill_references(step.params, values),
            description=step.description,
            line=step.line,
        )
        for number, step in enumerate(plan.steps, 1)
    ]


async def _run(now: _Now, steps: Sequence[PlannedStep]) -> None:
    for step in steps:
        if not _holds(now, step.when):
            continue
        if step.branch:
            await _run(now, now.plan.branches[step.branch])
        else:
            await _call(now, step)


async def _call(now: _Now, step: PlannedStep) -> None:
    if len(now.steps) >= MOST_CALLS:
        raise _Stopped(failed(f"it made {MOST_CALLS} calls and was not done"))
    arguments = fill_references(step.params, now.values)
    result = await now.run_tool(step.tool, json.dumps(arguments, ensure_ascii=False, default=str))
    now.steps.append(
        StepRun(
            number=len(now.steps) + 1,
            tool=step.tool,
            arguments=arguments,
            description=step.description,
            content=result.content,
            outcome=result.outcome,
            line=step.line,
        )
    )
    if step.save_as:
        now.values[step.save_as] = value_of(result.content)
        now.outcomes[step.save_as] = result.outcome
    if result.outcome.is_ok:
        return
    if step.on_fail and step.on_fail != CONTINUE:
        await _run(now, now.plan.branches[step.on_fail])
    elif not step.is_optional and step.on_fail != CONTINUE:
        what = f"step {len(now.steps)}, {step.tool}: {result.outcome.reason}"
        raise _Stopped(infra(what) if result.outcome.kind == "infra" else failed(what))


def _holds(now: _Now, when: Mapping[str, Any]) -> bool:
    return all(_is(now, str(name), fill_references(wanted, now.values)) for name, wanted in when.items())


def _is(now: _Now, name: str, wanted: Any) -> bool:
    first, _, rest = name.partition(".")
    if rest == OUTCOME:
        outcome = now.outcomes.get(first)
        return outcome is not None and outcome.kind == wanted
    found, is_there = _looked_up(now.values, name)
    return is_there and found == wanted


def fill_references(value: Any, values: Mapping[str, Any]) -> Any:
    """A value with its references taken: one that is nothing else keeps its type, the others become text.

    What is not known yet stays as it is written.
    """
    if isinstance(value, Mapping):
        return {key: fill_references(item, values) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_references(item, values) for item in value]
    if not isinstance(value, str):
        return value
    whole = REFERENCE.fullmatch(value)
    if whole is not None and not whole["dollar"]:
        found, is_there = _looked_up(values, whole["plain"] or whole["path"])
        return found if is_there else value

    def put(match: Any) -> str:
        if match["dollar"]:
            return "$"
        found, is_there = _looked_up(values, match["plain"] or match["path"])
        return as_text(found) if is_there else str(match[0])

    return REFERENCE.sub(put, value)


def _looked_up(values: Mapping[str, Any], path: str) -> tuple[Any, bool]:
    found: Any = values
    for part in path.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None, False
    return found, True


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def value_of(content: str) -> Any:
    """A result as later steps see it."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content
