"""The recipes and the code of skills as tools of their own, which a model calls by name."""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from habitus.agent.background import in_thread
from habitus.agent.tools.registry import Reach, Registry, Running, Tool
from habitus.events import Outcome, ToolCall, ToolResult, call_returned, tool_called
from habitus.evidence.model import Item, ItemKind
from habitus.recipes.catalogue import SkillRecipe
from habitus.recipes.execution import RecipeRun, execute
from habitus.sandbox.model import Permissions, ToolRun
from habitus.text import block, one_line
from habitus.tools.model import CodeTool

Run = Callable[[str, object], Awaitable[ToolRun]]
FallBack = Callable[[str, str], str]  # skill and tool → where to go on


def code_tools(tools: Iterable[CodeTool], run: Run, fall_back: FallBack) -> list[Tool]:
    return [_tool_of_code(tool, run, fall_back) for tool in tools]


def _tool_of_code(tool: CodeTool, run: Run, fall_back: FallBack) -> Tool:
    async def call(given: object, running: Running) -> ToolResult:
        done = await run(tool.name, given)
        below = "" if done.outcome.is_ok else await in_thread(partial(fall_back, tool.name, tool.callable_name))
        said = [f"[{done.notice}]" if done.notice else "", show_run(done), below]
        return ToolResult(content="\n\n".join(part for part in said if part), outcome=done.outcome)

    reach = _reach(tool.permissions)
    return Tool(
        name=tool.callable_name,
        description=describe_tool(tool),
        arguments=tool.parameters,
        run=call,
        is_parallel=True,
        version=tool.version,
        skill=tool.name,
        item=Item(kind=ItemKind.TOOL, name=tool.name, version=tool.version) if tool.version else None,
        reach=reach,
        takes_away=reach is not Reach.NOTHING,
        returns=tool.returns,
    )


def _reach(granted: Permissions) -> Reach:
    if granted.network:
        return Reach.NETWORK
    return Reach.HERE if granted.write else Reach.NOTHING


def describe_tool(tool: CodeTool) -> str:
    """What it does, how it is called, and how it is not."""
    name = tool.callable_name
    example = f" Example: {name}({json.dumps(tool.example, ensure_ascii=False)})." if tool.example is not None else ""
    return (
        f"{one_line(tool.description).rstrip('.')}. Call `{name}` directly with its arguments.{example} "
        f"Do not import it or run it in the scratchpad, and do not pass its name to another tool."
    )


def show_run(done: ToolRun) -> str:
    """What the tool printed; when it failed, why."""
    printed = block(done.stdout.strip())
    if done.outcome.is_ok:
        return printed
    parts = [f"Error: {one_line(done.outcome.reason)}", printed, block(done.stderr.strip())]
    return "\n\n".join(part for part in dict.fromkeys(parts) if part)


Count = Callable[[SkillRecipe, Outcome], None]  # told how each run went
RecipeFallBack = Callable[[str, str, Sequence[str]], str]  # skill, recipe, and the steps that ran → where to go on


def recipe_tools(
    recipes: Iterable[SkillRecipe], count: Count, others: Callable[[], Registry], fall_back: RecipeFallBack
) -> list[Tool]:
    """`others` are the tools that steps may call: no recipe is among them, so none can call another."""
    return [_tool_of_recipe(recipe, count, others, fall_back) for recipe in recipes]


def _tool_of_recipe(
    recipe: SkillRecipe, count: Count, others: Callable[[], Registry], fall_back: RecipeFallBack
) -> Tool:
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
            return ToolResult(content=show_recipe_run(done))
        ran = [f"{step.number}. {step.tool}" for step in done.steps if step.outcome.is_ok]
        below = await in_thread(partial(fall_back, recipe.skill, recipe.name, ran))
        return ToolResult(
            content="\n\n".join(part for part in (show_recipe_run(done), below) if part), outcome=done.outcome
        )

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


def show_recipe_run(done: RecipeRun) -> str:
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
