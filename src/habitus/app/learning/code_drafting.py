"""Draft the code of a skill from recorded uses of its recipe or steps, and try the draft.

A trial compares values: each recorded input goes through the draft and must give the recorded result. If the recipe can
run again without side effects, the draft must give today's result instead, as far as two runs of the recipe agree.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from habitus.agent.session import generate_turn_or_session_id
from habitus.agent.tools.code_tools import build_scratchpad_tool
from habitus.agent.tools.registry import Tool, ToolCallContext, ToolEffectReach, ToolRegistry, is_result_text_truncated
from habitus.agent.tools.stage_tools import (
    build_tools_from_skill_code,
    extract_result_from_rendered_recipe_run,
    render_recipe_run,
)
from habitus.app.conversations.running_code import open_scratchpads
from habitus.app.home import Home
from habitus.app.home_directory import SESSION_PADS_DIR
from habitus.app.learning import mining
from habitus.app.learning.mining import MAX_TURNS
from habitus.errors import ToolFailed
from habitus.events import ToolCall, ToolResult
from habitus.journal.model import Turn
from habitus.learning.budget import BudgetedModel
from habitus.learning.drafting import draft_code
from habitus.memory.model import SCRATCHPAD_TOPIC
from habitus.recipes.catalogue import SkillRecipe
from habitus.recipes.execution import PlannedStep, execute_plan
from habitus.recipes.sequences import ComparableToolCall
from habitus.redact import MARKER
from habitus.sandbox.inside import folders
from habitus.sandbox.model import Permissions
from habitus.skills import trees
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.library import Library
from habitus.skills.model import Author
from habitus.tasks.judging import (
    MIN_DISTINCT_RESULTS,
    derive_expected_result,
    exclude_fields_from_check,
    has_enough_distinct_results,
    infer_json_schema_of_result,
    make_check_valid_today_only,
)
from habitus.tasks.model import Task
from habitus.tasks.schema import Json, fits_schema
from habitus.tools.code_stage import build_case_from_call
from habitus.tools.execution import LONGEST_CASE, MOST_CASES, is_using_time_or_random_numbers
from habitus.tools.model import NOTHING_GRANTED, ToolCreationResult, ToolNotTestableError, ToolProposalEvidence

if TYPE_CHECKING:
    from habitus.tools.service import ToolService

# The second draft is told why the first was rejected.
_MAX_DRAFTS = 2
# Uses that a model is shown.
_MAX_SHOWN_USES = 3
# Characters of a result that a model is shown.
_MAX_RESULT_CHARS = 2_000
# Scratchpad actions without side effects outside the scratchpad's own folder.
_HARMLESS_ACTIONS = ("exec", "view", "dump", "reset")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedInputWithResults:
    """One input of a recipe, its results with the latest last, and the conversation of the latest call."""

    payload: Json
    results: tuple[str, ...]
    conversation: str

    def make_test_case(self, fresh_results: Sequence[str] = ()) -> Task:
        """Return a test case from two fresh results, or from the recorded ones as far as they agree."""
        if fresh_results:
            expected = derive_expected_result(fresh_results, before=self.results[-1:])
        else:
            expected = derive_expected_result(self.results)
        return build_case_from_call(
            self.payload, infer_json_schema_of_result(self.results[-1]), expected, conversation=self.conversation
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeDraftMaterial:
    """Material for drafting code: the prompt, the parameters if known, and recorded inputs with results."""

    prompt: str
    evidence: str
    parameters: Json = None
    recorded: tuple[RecordedInputWithResults, ...] = ()
    recipe: SkillRecipe | None = None

    @property
    def insufficiency_reason(self) -> str:
        """Why the recorded uses can't tell a right draft from a wrong one; empty if they can."""
        return explain_too_few_trial_cases([one.make_test_case() for one in self.recorded]) if self.recorded else ""


def explain_too_few_trial_cases(cases: Sequence[Task]) -> str:
    """Return why the cases are too few for a trial; empty if they are enough."""
    expected = [case.expected_result for case in cases if case.expected_result is not None]
    if has_enough_distinct_results(expected):
        return ""
    return (
        f"Not enough to tell: a trial takes {MIN_DISTINCT_RESULTS} different inputs whose results differ, and "
        f"{len(cases)} with {len(expected)} results that can be compared are recorded."
    )


def collect_material_from_recipe(home: Home, recipe: SkillRecipe) -> CodeDraftMaterial | None:
    """Return the recipe, the programs it calls and its recorded calls; None if no call succeeded."""
    calls = [
        (turn, call)
        for turn in home.journal.iterate_latest_finished_turns(limit=MAX_TURNS, user=home.settings.user)
        if (seen := mining.convert_journal_turn_to_observed(turn)).ok
        for call in seen.calls
        if call.name == recipe.name and call.success and can_rerun_recorded_call(call)
    ]
    if not calls:
        return None
    ours = {tool.callable_name for tool in home.tools.active()}
    programs = {name: home.tools.code(name) for name in sorted(recipe.plan.tools & ours)}
    told = [
        *build_prompt_parts_from_skill(home.skills, f"{recipe.skill}@{recipe.layer}"),
        f"# What it takes\n\n{json.dumps(recipe.plan.schema, ensure_ascii=False)}",
        *(f"# The program `{name}`\n\n```python\n{code}\n```" for name, code in programs.items()),
        *(
            _describe_recorded_use(call, extract_result_from_rendered_recipe_run(call.result))
            for _, call in calls[-_MAX_SHOWN_USES:]
        ),
    ]
    return CodeDraftMaterial(
        prompt="\n\n".join(told),
        evidence=(
            f"its recipe `{recipe.name}` was {mining.describe_count_and_dates_of_turns([turn for turn, _ in calls])}"
        ),
        parameters=_drop_contradicted_types_from_schema(recipe.plan.schema, [call.arguments for _, call in calls]),
        recorded=_group_calls_by_input(calls),
        recipe=recipe,
    )


def _drop_contradicted_types_from_schema(schema: Json, given: Sequence[Mapping[str, Json]]) -> Json:
    """Return the recipe's schema without types that its own calls contradict.

    Mining declares a parameter of unknown type a string.
    """
    fitting = {
        name: {key: value for key, value in one.items() if key != "type"}
        if any(name in call and not fits_schema(one, call[name]) for call in given)
        else one
        for name, one in schema["properties"].items()
    }
    return {**schema, "properties": fitting}


def _group_calls_by_input(calls: Sequence[tuple[Turn, ComparableToolCall]]) -> tuple[RecordedInputWithResults, ...]:
    """Group the calls by input, the latest used last, limited to the number of cases a tool keeps."""
    found: dict[str, RecordedInputWithResults] = {}
    for turn, call in calls:
        # Popped and inserted again, so the dictionary is ordered by last use.
        before = found.pop(_render_arguments_as_json(call), None)
        results = (*(before.results if before else ()), extract_result_from_rendered_recipe_run(call.result))
        found[_render_arguments_as_json(call)] = RecordedInputWithResults(
            payload=dict(call.arguments), results=results, conversation=turn.session
        )
    return tuple(found.values())[-MOST_CASES:]


def can_rerun_recorded_call(call: ComparableToolCall) -> bool:
    """Whether the call can run again: a redacted secret or an overlong argument rules it out."""
    written = _render_arguments_as_json(call)
    return len(written) <= LONGEST_CASE and not MARKER.search(written) and not is_result_text_truncated(call.result)


def _render_arguments_as_json(call: ComparableToolCall) -> str:
    return json.dumps(call.arguments, sort_keys=True, ensure_ascii=False)


def collect_material_from_steps(home: Home, skill: ListedSkill) -> CodeDraftMaterial:
    """Return the steps and the cells that were run while following them.

    There are no results to compare a draft with.
    """
    cells: list[tuple[Turn, list[ComparableToolCall]]] = []
    for turn in home.journal.iterate_latest_finished_turns(limit=MAX_TURNS, user=home.settings.user):
        seen = mining.convert_journal_turn_to_observed(turn)
        ran = [
            call for call in seen.calls if call.name == SCRATCHPAD_TOPIC and call.success and call.arguments.get("code")
        ]
        if seen.ok and ran and skill.name in mining.list_skills_chosen_in_turn(turn):
            cells.append((turn, ran))
    told = build_prompt_parts_from_skill(home.skills, f"{skill.name}@{skill.layer}")
    for turn, ran in cells[-_MAX_SHOWN_USES:]:
        told += [
            f"# A request: {mining.quote_request(turn)}",
            *(_describe_recorded_use(call, call.result) for call in ran),
        ]
    turns = [turn for turn, _ in cells]
    evidence = (
        f"its steps were followed with code: {mining.describe_count_and_dates_of_turns(turns)}"
        if turns
        else "no agent followed its steps with code"
    )
    return CodeDraftMaterial(prompt="\n\n".join(told), evidence=evidence)


def build_prompt_parts_from_skill(skills: Library, address: str) -> list[str]:
    """Return the description, steps and recipes of a skill as parts of a prompt."""
    tree, skill = skills.read_tree(address), skills.load(address)
    chunks = tree.get(trees.CHUNKS_FILE)
    recipes = (chunks.content or b"").decode("utf-8", "replace") if chunks is not None else ""
    told = [f"# {skill.name}: {skill.description}\n\n{skill.when_to_use_line}", f"# Its steps\n\n{skill.body.strip()}"]
    return [*told, f"# Its recipes\n\n{recipes}"] if recipes else told


def _describe_recorded_use(call: ComparableToolCall, result: str) -> str:
    given = json.dumps(call.arguments, ensure_ascii=False)[:_MAX_RESULT_CHARS]
    return f"# A use that succeeded\n\n{call.name} {given}\n\ncame to:\n\n{result[:_MAX_RESULT_CHARS]}"


async def make_trial_cases_from_recorded_inputs(home: Home, uses: CodeDraftMaterial) -> tuple[Task, ...]:
    """Return the cases a draft must pass: today's results if the recipe can run again, the recorded ones otherwise."""
    may_run = uses.recipe is not None and _is_recipe_without_side_effects(home.tools, uses.recipe)
    cases = [
        one.make_test_case(await _run_recipe_twice(home, uses.recipe, one) if may_run and uses.recipe else ())
        for one in uses.recorded
    ]
    # A field that changes between runs of one input changes for the others too, even if those ran only once.
    apart = {field for case in cases if case.expected_result for field in case.expected_result.apart}
    lasts = uses.recipe is None or not any(
        map(is_using_time_or_random_numbers, _list_recipe_code(home.tools, uses.recipe))
    )
    return tuple(_drop_unstable_expected_fields(case, apart, lasts=lasts) for case in cases)


def _drop_unstable_expected_fields(case: Task, apart: Collection[str], *, lasts: bool) -> Task:
    expected = exclude_fields_from_check(case.expected_result, apart) if case.expected_result is not None else None
    return case.with_expected_result(expected if expected is None or lasts else make_check_valid_today_only(expected))


def _list_recipe_code(tools: ToolService, recipe: SkillRecipe) -> list[str]:
    """Return the code of the recipe's tools and cells, with bare names for its placeholders."""
    ours = {tool.callable_name for tool in tools.active()}
    cells = [
        str(step.params.get("code", ""))
        for step in _list_recipe_steps_with_branches(recipe)
        if step.tool == SCRATCHPAD_TOPIC
    ]
    # A placeholder such as `$path` is not Python; without its dollar sign the cell can be parsed.
    return [*map(tools.code, sorted(recipe.plan.tools & ours)), *(cell.replace("$", "") for cell in cells)]


def _is_recipe_without_side_effects(tools: ToolService, recipe: SkillRecipe) -> bool:
    """Whether every call of the recipe has no side effects, or only in a folder that is removed afterwards."""
    harmless = {tool.name for tool in _list_code_tools_without_effects(tools)}
    return all(
        not step.tool
        or step.tool in harmless
        or (step.tool == SCRATCHPAD_TOPIC and step.params.get("action") in _HARMLESS_ACTIONS)
        for step in _list_recipe_steps_with_branches(recipe)
    )


def _list_recipe_steps_with_branches(recipe: SkillRecipe) -> list[PlannedStep]:
    return [*recipe.plan.steps, *(step for branch in recipe.plan.branches.values() for step in branch)]


def _list_code_tools_without_effects(tools: ToolService) -> list[Tool]:
    made = build_tools_from_skill_code(tools.active(), partial(tools.run, counts=False), lambda skill, tool: "")
    return [tool for tool in made if tool.reach is ToolEffectReach.NOTHING]


async def _run_recipe_twice(home: Home, recipe: SkillRecipe, recorded: RecordedInputWithResults) -> list[str]:
    """Return two fresh results; empty if one of the runs failed."""
    results = [await _run_recipe_once(home, recipe, recorded) for _ in range(2)]
    return [] if None in results else [str(result) for result in results]


async def _run_recipe_once(home: Home, recipe: SkillRecipe, recorded: RecordedInputWithResults) -> str | None:
    """Run the recipe with a recorded input in a scratchpad of its own; None if it failed."""
    folder = f"{SESSION_PADS_DIR}/trial-{generate_turn_or_session_id()}"
    pads = open_scratchpads(home, folder)
    registry = ToolRegistry([*_list_code_tools_without_effects(home.tools), build_scratchpad_tool(pads)])
    running = ToolCallContext(redactor=home.redactor)

    async def run_tool(name: str, arguments: str) -> ToolResult:
        return await registry.run_call(ToolCall(id="trial", name=name, arguments=arguments), running)

    try:
        done = await execute_plan(recipe.plan, run_tool, recorded.payload)
    finally:
        await pads.close()
        if SCRATCHPAD_TOPIC in recipe.plan.tools:
            await asyncio.to_thread(folders.remove_folder, str(home.writable_dir / folder))
    return extract_result_from_rendered_recipe_run(render_recipe_run(done)) if done.outcome.is_ok else None


async def draft_and_propose_code(
    home: Home,
    skill: str,
    uses: CodeDraftMaterial,
    model: BudgetedModel,
    author: Author,
    grounds: ToolProposalEvidence,
    *,
    permissions: Permissions = NOTHING_GRANTED,
) -> ToolCreationResult:
    """Draft the code and propose it if it passes its cases; `ToolFailed` says why no draft did."""
    refused = ""
    for _ in range(_MAX_DRAFTS):
        draft = await draft_code(model, uses.prompt, refused=refused, redactor=home.redactor)
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
                permissions=permissions,
                dependencies=draft.dependencies,
                evidence=grounds,
            )
        # A broken sandbox is not the draft's fault; another draft would fail the same way.
        except ToolNotTestableError:
            raise
        except ToolFailed as error:
            refused = str(error)
    raise ToolFailed(refused)
