"""The recipes of skills as tools of their own: a model calls one, and its steps go through the same dispatcher."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from habitus.agent.background import in_thread
from habitus.agent.tools.registry import Reach, Registry, Running, Tool
from habitus.events import Outcome, ToolCall, ToolResult, call_returned, tool_called
from habitus.evidence.model import Item, ItemKind
from habitus.recipes.catalogue import SkillRecipe
from habitus.recipes.execution import RecipeRun, execute
from habitus.text import one_line

Count = Callable[[SkillRecipe, Outcome], None]  # told how each run went
FallBack = Callable[[str, str, Sequence[str]], str]  # skill, recipe, and the steps that ran → where to go on


def recipe_tools(
    recipes: Iterable[SkillRecipe], count: Count, others: Callable[[], Registry], fall_back: FallBack
) -> list[Tool]:
    """`others` are the tools that steps may call: no recipe is among them, so none can call another."""
    return [_tool_for(recipe, count, others, fall_back) for recipe in recipes]


def _tool_for(recipe: SkillRecipe, count: Count, others: Callable[[], Registry], fall_back: FallBack) -> Tool:
    async def call(given: Any, running: Running) -> ToolResult:
        registry, numbers = await in_thread(others), itertools.count(1)

        async def run_tool(name: str, arguments: str) -> ToolResult:
            number = next(numbers)
            running.progress(f"{number}. {name}")
            return await _step(
                ToolCall(id=f"{running.call}.{number}", name=name, arguments=arguments), registry, running
            )

        done = await execute(recipe.plan, run_tool, given)
        await in_thread(partial(count, recipe, done.outcome))
        if done.outcome.is_ok:
            return ToolResult(content=show_run(done))
        ran = [f"{step.number}. {step.tool}" for step in done.steps if step.outcome.is_ok]
        below = await in_thread(partial(fall_back, recipe.skill, recipe.name, ran))
        return ToolResult(content="\n\n".join(part for part in (show_run(done), below) if part), outcome=done.outcome)

    reach = max((tool.reach for tool in others().all_tools() if tool.name in recipe.plan.tools), default=Reach.NOTHING)
    steps = ", ".join(step.tool or f"branch {step.branch}" for step in recipe.plan.steps)
    described = one_line(recipe.plan.description) or f"The recipe {recipe.plan.name} of the skill {recipe.skill}"
    return Tool(
        name=recipe.name,
        description=f"{described.rstrip('.')}. A recipe; it calls one after another: {one_line(steps)[:300]}.",
        arguments=recipe.plan.schema,
        run=call,
        version=recipe.version,
        skill=recipe.skill,
        item=Item(kind=ItemKind.RECIPE, name=recipe.name, version=recipe.version),
        reach=reach,
        takes_away=reach is not Reach.NOTHING,
    )


async def _step(call: ToolCall, registry: Registry, running: Running) -> ToolResult:
    """One call, seen by the observers as any other; no message has its arguments, so the event keeps them."""
    at, redactor = running.round_idx, running.redactor
    running.observe(
        tool_called(call.name, call.arguments, round_idx=at, call_id=call.id, keeps_args=True, redactor=redactor)
    )
    result = await registry.run(call, replace(running, call=call.id))
    running.observe(call_returned(call, result, round_idx=at))
    return result


def show_run(done: RecipeRun) -> str:
    """What ran and what it came to, a line a step, and below the result."""
    lines = [
        f"{step.number}. {step.tool}: {step.outcome.kind.value}"
        + (f", {one_line(step.outcome.reason)}" if step.outcome.reason else "")
        for step in done.steps
    ]
    return "\n".join([*lines, "", done.content]).strip()


def last_said(told: str) -> str:
    """The result, of a run as it is shown."""
    return told.partition("\n\n")[2]
