"""Draft the code of a skill from recorded uses of its recipe or steps, and try the draft.

A trial compares values: each recorded input goes through the draft and must give the recorded result. If the recipe can
run again without side effects, the draft must give today's result instead, as far as two runs of the recipe agree.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from habitus.agent.session import new_id
from habitus.agent.tools.code_tools import scratchpad
from habitus.agent.tools.registry import Reach, Registry, Running, Tool, is_capped
from habitus.agent.tools.stage_tools import code_tools, last_said, show_recipe_run
from habitus.app.conversations.running_code import open_scratchpads
from habitus.app.home import Home
from habitus.app.home_directory import PADS
from habitus.app.learning import mining
from habitus.app.learning.mining import MOST_TURNS
from habitus.errors import ToolFailed
from habitus.events import ToolCall, ToolResult
from habitus.journal.journal import Journal
from habitus.journal.model import Turn
from habitus.learning.budget import BudgetedModel
from habitus.learning.drafting import draft_code
from habitus.memory.model import SCRATCHPAD
from habitus.recipes.catalogue import SkillRecipe
from habitus.recipes.execution import PlannedStep, execute
from habitus.recipes.sequences import ObservedCall
from habitus.redact import MARKER
from habitus.sandbox.inside import folders
from habitus.settings import Settings
from habitus.skills import trees
from habitus.skills.layers.listing import Listed
from habitus.skills.library import Library
from habitus.skills.model import Author
from habitus.tasks.judging import LEAST, expect, for_now, is_enough, leave_out, shape_of
from habitus.tasks.model import Task
from habitus.tasks.schema import Json, fits
from habitus.tools.code_stage import task_of_call
from habitus.tools.model import CouldNotTest, Created, Grounds
from habitus.tools.workshop import LONGEST_CASE, MOST_CASES, reads_the_clock

if TYPE_CHECKING:
    from habitus.tools.tools import Tools

# The second draft is told why the first was rejected.
_ATTEMPTS = 2
# Uses that a model is shown.
_SHOWN_USES = 3
# Characters of a result that a model is shown.
_LONGEST = 2_000
# Scratchpad actions without side effects outside the scratchpad's own folder.
_HARMLESS = ("exec", "view", "dump", "reset")


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """One input of a recipe, its results with the latest last, and the conversation of the latest call."""

    payload: Json
    results: tuple[str, ...]
    conversation: str

    def case(self, again: Sequence[str] = ()) -> Task:
        """Return a test case from two fresh results, or from the recorded ones as far as they agree."""
        if again:
            expected = expect(again, before=self.results[-1:])
        else:
            expected = expect(self.results)
        return task_of_call(self.payload, shape_of(self.results[-1]), expected, conversation=self.conversation)


@dataclass(frozen=True, kw_only=True, slots=True)
class Uses:
    """Material for drafting code: the prompt, the parameters if known, and recorded inputs with results."""

    told: str
    evidence: str
    parameters: Json = None
    recorded: tuple[Recorded, ...] = ()
    recipe: SkillRecipe | None = None

    @property
    def problem(self) -> str:
        """Why the recorded uses can't tell a right draft from a wrong one; empty if they can."""
        return too_few([one.case() for one in self.recorded]) if self.recorded else ""


def too_few(cases: Sequence[Task]) -> str:
    """Return why the cases are too few for a trial; empty if they are enough."""
    expected = [case.expected_result for case in cases if case.expected_result is not None]
    if is_enough(expected):
        return ""
    return (
        f"Not enough to tell: a trial takes {LEAST} different inputs whose results differ, and "
        f"{len(cases)} with {len(expected)} results that can be compared are recorded."
    )


def of_recipe(home: Home, recipe: SkillRecipe) -> Uses | None:
    """Return the recipe, the programs it calls and its recorded calls; None if no call succeeded."""
    calls = [
        (turn, call)
        for turn in _past(home.settings, home.journal)
        if (seen := mining.observe_turn(turn)).ok
        for call in seen.calls
        if call.name == recipe.name and call.success and _can_be_a_case(call)
    ]
    if not calls:
        return None
    ours = {tool.callable_name for tool in home.tools.active()}
    programs = {name: home.tools.code(name) for name in sorted(recipe.plan.tools & ours)}
    told = [
        *_procedure(home.skills, f"{recipe.skill}@{recipe.layer}"),
        f"# What it takes\n\n{json.dumps(recipe.plan.schema, ensure_ascii=False)}",
        *(f"# The program `{name}`\n\n```python\n{code}\n```" for name, code in programs.items()),
        *(_use(call, last_said(call.result)) for _, call in calls[-_SHOWN_USES:]),
    ]
    return Uses(
        told="\n\n".join(told),
        evidence=f"its recipe `{recipe.name}` was {mining.when([turn for turn, _ in calls])}",
        parameters=_as_used(recipe.plan.schema, [call.arguments for _, call in calls]),
        recorded=_recorded_cases(calls),
        recipe=recipe,
    )


def _as_used(schema: Json, given: Sequence[Mapping[str, Json]]) -> Json:
    """Return the recipe's schema without types that its own calls contradict.

    Mining declares a parameter of unknown type a string.
    """
    fitting = {
        name: {key: value for key, value in one.items() if key != "type"}
        if any(name in call and not fits(one, call[name]) for call in given)
        else one
        for name, one in schema["properties"].items()
    }
    return {**schema, "properties": fitting}


def _recorded_cases(calls: Sequence[tuple[Turn, ObservedCall]]) -> tuple[Recorded, ...]:
    """Group the calls by input, the latest used last, limited to the number of cases a tool keeps."""
    found: dict[str, Recorded] = {}
    for turn, call in calls:
        # Popped and inserted again, so the dictionary is ordered by last use.
        before = found.pop(_arguments_text(call), None)
        results = (*(before.results if before else ()), last_said(call.result))
        found[_arguments_text(call)] = Recorded(
            payload=dict(call.arguments), results=results, conversation=turn.session
        )
    return tuple(found.values())[-MOST_CASES:]


def _can_be_a_case(call: ObservedCall) -> bool:
    """Whether the call can run again: a redacted secret or an overlong argument rules it out."""
    written = _arguments_text(call)
    return len(written) <= LONGEST_CASE and not MARKER.search(written) and not is_capped(call.result)


def _arguments_text(call: ObservedCall) -> str:
    return json.dumps(call.arguments, sort_keys=True, ensure_ascii=False)


def of_steps(home: Home, skill: Listed) -> Uses:
    """Return the steps and the cells that were run while following them.

    There are no results to compare a draft with.
    """
    cells: list[tuple[Turn, list[ObservedCall]]] = []
    for turn in _past(home.settings, home.journal):
        seen = mining.observe_turn(turn)
        ran = [call for call in seen.calls if call.name == SCRATCHPAD and call.success and call.arguments.get("code")]
        if seen.ok and ran and skill.name in mining.chosen_skills(turn):
            cells.append((turn, ran))
    told = _procedure(home.skills, f"{skill.name}@{skill.layer}")
    for turn, ran in cells[-_SHOWN_USES:]:
        told += [f"# A request: {mining.quote_request(turn)}", *(_use(call, call.result) for call in ran)]
    turns = [turn for turn, _ in cells]
    evidence = f"its steps were followed with code: {mining.when(turns)}" if turns else "nobody followed it with code"
    return Uses(told="\n\n".join(told), evidence=evidence)


def _past(settings: Settings, journal: Journal) -> Iterator[Turn]:
    return journal.past(limit=MOST_TURNS, user=settings.user)


def _procedure(skills: Library, address: str) -> list[str]:
    tree, skill = skills.tree(address), skills.load(address)
    chunks = tree.get(trees.CHUNKS_FILE)
    recipes = (chunks.content or b"").decode("utf-8", "replace") if chunks is not None else ""
    told = [f"# {skill.name}: {skill.description}\n\n{skill.cue}", f"# Its steps\n\n{skill.body.strip()}"]
    return [*told, f"# Its recipes\n\n{recipes}"] if recipes else told


def _use(call: ObservedCall, result: str) -> str:
    given = json.dumps(call.arguments, ensure_ascii=False)[:_LONGEST]
    return f"# A use that went well\n\n{call.name} {given}\n\ncame to:\n\n{result[:_LONGEST]}"


async def trial_cases(home: Home, uses: Uses) -> tuple[Task, ...]:
    """Return the cases a draft must pass: today's results if the recipe can run again, the recorded ones otherwise."""
    may_run = uses.recipe is not None and _may_run_again(home.tools, uses.recipe)
    cases = [
        one.case(await _run_twice(home, uses.recipe, one) if may_run and uses.recipe else ()) for one in uses.recorded
    ]
    # A field that changes between runs of one input changes for the others too, even if those ran only once.
    apart = {field for case in cases if case.expected_result for field in case.expected_result.apart}
    lasts = uses.recipe is None or not any(map(reads_the_clock, _programs(home.tools, uses.recipe)))
    return tuple(_expect(case, apart, lasts=lasts) for case in cases)


def _expect(case: Task, apart: Collection[str], *, lasts: bool) -> Task:
    expected = leave_out(case.expected_result, apart) if case.expected_result is not None else None
    return case.expecting(expected if expected is None or lasts else for_now(expected))


def _programs(tools: Tools, recipe: SkillRecipe) -> list[str]:
    """Return the code of the recipe's tools and cells, with bare names for its placeholders."""
    ours = {tool.callable_name for tool in tools.active()}
    cells = [str(step.params.get("code", "")) for step in _steps(recipe) if step.tool == SCRATCHPAD]
    # A placeholder such as `$path` is not Python; without its dollar sign the cell can be parsed.
    return [*map(tools.code, sorted(recipe.plan.tools & ours)), *(cell.replace("$", "") for cell in cells)]


def _may_run_again(tools: Tools, recipe: SkillRecipe) -> bool:
    """Whether every call of the recipe has no side effects, or only in a folder that is removed afterwards."""
    harmless = {tool.name for tool in _harmless_tools(tools)}
    return all(
        not step.tool or step.tool in harmless or (step.tool == SCRATCHPAD and step.params.get("action") in _HARMLESS)
        for step in _steps(recipe)
    )


def _steps(recipe: SkillRecipe) -> list[PlannedStep]:
    return [*recipe.plan.steps, *(step for branch in recipe.plan.branches.values() for step in branch)]


def _harmless_tools(tools: Tools) -> list[Tool]:
    made = code_tools(tools.active(), partial(tools.run, counts=False), lambda skill, tool: "")
    return [tool for tool in made if tool.reach is Reach.NOTHING]


async def _run_twice(home: Home, recipe: SkillRecipe, recorded: Recorded) -> list[str]:
    """Return two fresh results; empty if one of the runs failed."""
    results = [await _run_once(home, recipe, recorded) for _ in range(2)]
    return [] if None in results else [str(result) for result in results]


async def _run_once(home: Home, recipe: SkillRecipe, recorded: Recorded) -> str | None:
    """Run the recipe with a recorded input in a scratchpad of its own; None if it failed."""
    folder = f"{PADS}/trial-{new_id()}"
    pads = open_scratchpads(home, folder)
    registry = Registry([*_harmless_tools(home.tools), scratchpad(pads)])
    running = Running(redactor=home.redactor)

    async def run_tool(name: str, arguments: str) -> ToolResult:
        return await registry.run(ToolCall(id="trial", name=name, arguments=arguments), running)

    try:
        done = await execute(recipe.plan, run_tool, recorded.payload)
    finally:
        await pads.close()
        if SCRATCHPAD in recipe.plan.tools:
            await asyncio.to_thread(folders.remove, str(home.place / folder))
    return last_said(show_recipe_run(done)) if done.outcome.is_ok else None


async def draft_and_try(
    home: Home, skill: str, uses: Uses, model: BudgetedModel, author: Author, grounds: Grounds
) -> Created:
    """Draft the code and propose it if it passes its cases; `ToolFailed` says why no draft did."""
    refused = ""
    for _ in range(_ATTEMPTS):
        draft = await draft_code(model, uses.told, refused=refused, redactor=home.redactor)
        if not draft.code.strip():
            raise ToolFailed(f"{model.name} says that no program can do it alone.")
        try:
            return await home.tools.create(
                skill,
                draft.description,
                uses.parameters or draft.parameters,
                draft.code,
                grounds.cases[-1].payload if grounds.cases else draft.payload,
                author,
                dependencies=draft.dependencies,
                grounds=grounds,
            )
        # A broken sandbox is not the draft's fault; another draft would fail the same way.
        except CouldNotTest:
            raise
        except ToolFailed as error:
            refused = str(error)
    raise ToolFailed(refused)
