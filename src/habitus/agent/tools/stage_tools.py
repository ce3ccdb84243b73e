"""The tools offered to the model: the built-in ones first, then the code and recipes of skills.

Each tool or recipe of a skill is a tool of its own that a model calls by name.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from habitus.access import Access
from habitus.agent.background import run_in_thread
from habitus.agent.library.view import LibraryView
from habitus.agent.tools.registry import (
    Tool,
    ToolCallContext,
    ToolEffectReach,
    ToolRegistry,
    rewrite_commands_as_notes_for_person,
)
from habitus.errors import UserError
from habitus.events import Outcome, ToolCall, ToolResult, build_event_from_tool_result, build_tool_call_event
from habitus.evidence.model import EvidenceItem, ItemKind
from habitus.recipes.catalogue import RecipeCatalogue, RecipeStatus, SkillRecipe
from habitus.recipes.execution import RecipeRunResult, execute_plan
from habitus.sandbox.child import NO_SERVICES, HostServices
from habitus.sandbox.files import GivenFolder
from habitus.sandbox.model import Permissions, ToolRunResult
from habitus.skills import names
from habitus.skills.choosing.selection import UserRequest
from habitus.skills.choosing.skill_finder import SkillFinder
from habitus.skills.lifecycle import GateContext, compute_success_rate_lower_bound, is_unavailable
from habitus.skills.model import Skill, Stage
from habitus.text import clean_to_one_line, escape_lines_resembling_prompt_marks
from habitus.tools.model import CodeTool, ToolStatus
from habitus.tools.service import ToolService
from habitus.use_counts import UsageCounts

# Called with the name, the arguments and the turn.
RunToolCode = Callable[[str, object, str], Awaitable[ToolRunResult]]
# Maps a skill and its tool to instructions for a fallback.
ToolFallback = Callable[[str, str], str]


def build_tools_from_skill_code(tools: Iterable[CodeTool], run: RunToolCode, fall_back: ToolFallback) -> list[Tool]:
    """Build a tool for the code of each skill."""
    return [_build_tool_from_skill_code(tool, run, fall_back) for tool in tools]


def _build_tool_from_skill_code(tool: CodeTool, run: RunToolCode, fall_back: ToolFallback) -> Tool:
    async def call(given: object, running: ToolCallContext) -> ToolResult:
        done = await run(tool.name, given, running.turn)
        below = "" if done.outcome.is_ok else await run_in_thread(partial(fall_back, tool.name, tool.callable_name))
        said = [f"[{done.notice}]" if done.notice else "", render_code_tool_output(done), below]
        return ToolResult(content="\n\n".join(part for part in said if part), outcome=done.outcome)

    reach = _derive_reach_from_permissions(tool.permissions)
    return Tool(
        name=tool.callable_name,
        description=build_code_tool_description(tool),
        arguments=tool.parameters,
        run=call,
        is_parallel=True,
        version=tool.version,
        skill=tool.name,
        item=EvidenceItem(kind=ItemKind.TOOL, name=tool.name, version=tool.version) if tool.version else None,
        reach=reach,
        access=Access.VIEWER if reach is ToolEffectReach.NOTHING else Access.ADMIN,
        is_destructive=reach is not ToolEffectReach.NOTHING,
        returns=tool.returns,
    )


def _derive_reach_from_permissions(granted: Permissions) -> ToolEffectReach:
    if granted.network:
        return ToolEffectReach.NETWORK
    return ToolEffectReach.HERE if granted.write else ToolEffectReach.NOTHING


def build_code_tool_description(tool: CodeTool) -> str:
    """Return the description for the model: the purpose, how to call it, and how not to."""
    name = tool.callable_name
    example = f" Example: {name}({json.dumps(tool.example, ensure_ascii=False)})." if tool.example is not None else ""
    return (
        f"{clean_to_one_line(tool.description).rstrip('.')}. Call `{name}` directly with its arguments.{example} "
        f"Do not import it or run it in the scratchpad, and do not pass its name to another tool."
    )


def render_code_tool_output(done: ToolRunResult) -> str:
    """Return the tool's output, or the reason why it failed."""
    printed = escape_lines_resembling_prompt_marks(done.stdout.strip())
    if done.outcome.is_ok:
        return printed
    parts = [
        f"Error: {clean_to_one_line(done.outcome.reason)}",
        printed,
        escape_lines_resembling_prompt_marks(done.stderr.strip()),
    ]
    return "\n\n".join(part for part in dict.fromkeys(parts) if part)


# Called with the outcome of each run and its turn.
CountRecipeRun = Callable[[SkillRecipe, Outcome, str], None]
# Maps a skill, its recipe and the steps that ran to instructions for a fallback.
RecipeFallback = Callable[[str, str, Sequence[str]], str]


def build_recipe_tool(
    recipe: SkillRecipe, count: CountRecipeRun, others: Callable[[], ToolRegistry], fall_back: RecipeFallback
) -> Tool:
    """Build the tool for a recipe. `others` returns the tools that steps may call; recipes are not among them."""

    async def call(given: Any, running: ToolCallContext) -> ToolResult:
        tools, numbers = await run_in_thread(others), itertools.count(1)

        async def run_tool(name: str, arguments: str) -> ToolResult:
            at = next(numbers)
            running.progress(f"{at}. {name}")
            return await _run_recipe_step(
                ToolCall(id=f"{running.call}.{at}", name=name, arguments=arguments), tools, running
            )

        done = await execute_plan(recipe.plan, run_tool, given)
        await run_in_thread(partial(count, recipe, done.outcome, running.turn))
        if done.outcome.is_ok:
            return ToolResult(content=render_recipe_run(done))
        ran = [f"{step.number}. {step.tool}" for step in done.steps if step.outcome.is_ok]
        below = await run_in_thread(partial(fall_back, recipe.skill, recipe.name, ran))
        return ToolResult(
            content="\n\n".join(part for part in (render_recipe_run(done), below) if part), outcome=done.outcome
        )

    reach = max(
        (tool.reach for tool in others().list_tools() if tool.name in recipe.plan.tools),
        default=ToolEffectReach.NOTHING,
    )
    steps = ", ".join(step.tool or f"branch {step.branch}" for step in recipe.plan.steps)
    described = (
        clean_to_one_line(recipe.plan.description) or f"The recipe {recipe.plan.name} of the skill {recipe.skill}"
    )
    return Tool(
        name=recipe.name,
        description=f"{described.rstrip('.')}. A recipe; it calls one after another: {clean_to_one_line(steps)[:300]}.",
        arguments=recipe.plan.schema,
        run=call,
        version=recipe.version,
        skill=recipe.skill,
        item=EvidenceItem(kind=ItemKind.RECIPE, name=recipe.name, version=recipe.version),
        reach=reach,
        access=Access.VIEWER if reach is ToolEffectReach.NOTHING else Access.ADMIN,
        is_destructive=reach is not ToolEffectReach.NOTHING,
    )


async def _run_recipe_step(call: ToolCall, registry: ToolRegistry, running: ToolCallContext) -> ToolResult:
    """Run one step's call, visible to observers like any other. Its event stores the arguments, as no message does."""
    at, redactor = running.round_idx, running.redactor
    running.observe(
        build_tool_call_event(
            call.name, call.arguments, round_idx=at, call_id=call.id, keeps_args=True, redactor=redactor
        )
    )
    result = await registry.run_call(call, replace(running, call=call.id))
    running.observe(build_event_from_tool_result(call, result, round_idx=at))
    return result


def render_recipe_run(done: RecipeRunResult) -> str:
    """Render the steps, one line each, followed by the result."""
    lines = [
        f"{step.number}. {step.tool}: {step.outcome.kind.value}"
        + (f", {clean_to_one_line(step.outcome.reason)}" if step.outcome.reason else "")
        for step in done.steps
    ]
    return "\n".join([*lines, "", done.content]).strip()


def extract_result_from_rendered_recipe_run(told: str) -> str:
    """Return the result from a rendered recipe run."""
    return told.partition("\n\n")[2]


# Models choose worse among more tools, so beyond this only the most relevant are offered.
CODE_TOOLS = 25


@dataclass(kw_only=True, eq=False)
class OfferedTools:
    """The tools of a session. A `steady` list only grows at its end, so providers can keep caching it.

    The code of skills is read once a turn, and again if the turn itself changes the library.
    """

    built_in: Sequence[Tool]
    tools: ToolService
    finder: SkillFinder
    view: LibraryView
    user_gates: GateContext
    recipes: RecipeCatalogue
    ladder: SkillStageAdvisor
    given: GivenFolder | None = None
    # The host services that the code may use.
    services: HostServices = field(default_factory=lambda: NO_SERVICES)
    steady: bool = True
    # A cheap check before a snapshot of the library is taken.
    may_have_tools: Callable[[], bool] = lambda: True
    # False for trial runs, which must not count as use.
    records_use: bool = True
    # Names of the host's own tools.
    host_tool_names: frozenset[str] = frozenset()
    _looks: int = -1
    _degraded: Sequence[Tool] = ()
    # The code that steps of recipes may call.
    _steps: Sequence[Tool] = ()
    _code: list[Tool] | None = None
    _listed: Sequence[Tool] = ()
    # The tools that existed when the session opened.
    _first: frozenset[str] | None = None

    @property
    def read_only_tool_names(self) -> set[str]:
        """The built-in tools that change nothing; calling one is no trace of following a skill."""
        return {tool.name for tool in self.built_in if tool.reach is ToolEffectReach.NOTHING}

    @property
    def skill_tools(self) -> list[Tool]:
        """The code and recipes of skills, loaded on first use."""
        if self._code is None:
            self._code = sorted(
                self.view.outage.read_or_default(self._load_runnable_skill_tools, ()), key=lambda tool: tool.name
            )
        return self._code

    @property
    def gate_context(self) -> GateContext:
        """The user's gates, including these tools."""
        return self._build_gates_with_tools(tool.name for tool in self.skill_tools)

    def _build_gates_with_tools(self, code: Iterable[str]) -> GateContext:
        ours = (tool.name for tool in self.built_in)
        return replace(self.user_gates, tools=frozenset((*ours, *code, *self.host_tool_names)))

    def build_tool_registry(self, request: UserRequest) -> ToolRegistry:
        """Return the tools for a request: all, or the most relevant ones if there are too many."""
        if self._looks != self.view.revision:
            self._reload_skill_tools()
            self._looks = self.view.revision
        few = len(self.skill_tools) <= CODE_TOOLS
        self._listed = self.skill_tools if few else self._select_most_relevant_tools(request)
        if self._first is None:
            self._first = frozenset(tool.name for tool in self.skill_tools)
        offered = [tool for tool in self._listed if not self._is_tool_withheld(tool)]
        # A withheld tool can still be called by name.
        withheld = [tool for tool in self._listed if self._is_tool_withheld(tool)]
        mine = [tool for tool in (*self.built_in, *offered) if tool.name not in self.host_tool_names]
        return ToolRegistry(mine, unlisted=(*self._degraded, *withheld))

    def record_tool_exposures(self, shown: Collection[str] | None = None) -> None:
        """Record the exposure of the last listed tools, or of those named in `shown`."""
        for tool in self._listed:
            if tool.item is not None and (
                shown is None or tool.name in shown or (shown and self._is_tool_withheld(tool))
            ):
                is_steady = len(self.skill_tools) <= CODE_TOOLS
                self.view.offers.assign_whether_to_show_item(
                    tool.item, tokens=tool.spec.tokens, is_steady=is_steady, is_sure=self._is_tool_made_in_session(tool)
                )

    def list_evidence_items_of_tools(self, called: Collection[str]) -> list[EvidenceItem]:
        """Return the evidence items of the tools with these names."""
        return [tool.item for tool in self.skill_tools if tool.item is not None and tool.name in called]

    def list_tool_and_recipe_names(self, skill: str) -> set[str]:
        """Return the callable names of a skill's tool and recipes, including degraded ones."""
        return {tool.name for tool in (*self.skill_tools, *self._degraded) if tool.skill == skill}

    def _is_tool_withheld(self, tool: Tool) -> bool:
        return tool.item is not None and self.view.offers.is_withheld(
            tool.item, is_sure=self._is_tool_made_in_session(tool)
        )

    def _is_tool_made_in_session(self, tool: Tool) -> bool:
        """Whether a tool was added during the session: such a tool was made for it and is never withheld."""
        return self._first is not None and tool.name not in self._first

    def _reload_skill_tools(self) -> None:
        known = self.skill_tools
        now = {tool.name: tool for tool in self.view.outage.read_or_default(self._load_runnable_skill_tools, known)}
        stays = known if self.steady else [tool for tool in known if tool.name in now]
        # A removed tool stays listed and reports its removal when called.
        kept = [now.get(tool.name, tool) for tool in stays]
        names = {tool.name for tool in kept}
        self._code = [*kept, *(tool for name, tool in now.items() if name not in names)]

    def _load_runnable_skill_tools(self) -> Sequence[Tool]:
        """Load the tools and recipes that may run for this user, and pending ones of this conversation."""
        conversation = self.view.conversation
        is_worth_a_look = self.view.has_snapshot or self.may_have_tools()
        there = self.tools.all(at=self.view.snapshot) if is_worth_a_look else ()
        runnable = [tool for tool in there if tool.can_run]
        gates = self._build_gates_with_tools(tool.name for tool in runnable if tool.status is ToolStatus.ACTIVE)
        usable = [tool for tool in runnable if not self._is_skill_unavailable(tool.name, gates)]
        active = {tool.name: tool for tool in usable if tool.status is ToolStatus.ACTIVE}
        call = partial(self.tools.run, services=self.services, given=self.given, counts=self.records_use)

        async def run(name: str, payload: object, turn: str) -> ToolRunResult:
            return await call(name, payload, turn=turn, user=self.view.user.name)

        self._degraded = build_tools_from_skill_code(
            [tool for tool in usable if tool.status is ToolStatus.DEGRADED],
            run,
            self.ladder.build_fallback_instructions,
        )
        waiting = [tool for tool in self.tools.waiting(conversation) if tool.name not in active]

        async def run_waiting(name: str, payload: object, turn: str) -> ToolRunResult:
            run = self.tools.run_waiting
            return await run(conversation, name, payload, services=self.services, given=self.given)

        self._steps = build_tools_from_skill_code(active.values(), run, self.ladder.build_fallback_instructions)
        waiting_tools = build_tools_from_skill_code(waiting, run_waiting, self.ladder.build_fallback_instructions)
        recipes = self._build_recipe_tools({tool.name for tool in self._steps}, gates) if is_worth_a_look else ()
        return [*self._steps, *recipes, *waiting_tools]

    def _build_recipe_tools(self, taken: Collection[str], gates: GateContext) -> list[Tool]:
        """Return the recipes that may run for this user, except those named like a tool."""

        def count(recipe: SkillRecipe, outcome: Outcome, turn: str) -> None:
            if self.records_use:
                self.recipes.record_recipe_run(recipe, outcome, turn=turn, user=self.view.user.name)

        def list_step_tools() -> ToolRegistry:
            return ToolRegistry([*self.built_in, *self._steps])

        return [
            build_recipe_tool(recipe, count, list_step_tools, self.ladder.build_fallback_instructions)
            for recipe in self.recipes.list_recipes(at=self.view.snapshot)
            if recipe.status is RecipeStatus.ACTIVE
            and recipe.name not in taken
            and not self._is_skill_unavailable(recipe.skill, gates)
        ]

    def _is_skill_unavailable(self, name: str, gates: GateContext) -> bool:
        item = self.view.snapshot.by_name.get(name)
        return item is None or item.summary is None or is_unavailable(item.summary, gates)

    def _select_most_relevant_tools(self, request: UserRequest) -> list[Tool]:
        by_skill: dict[str, list[Tool]] = {}
        for tool in self.skill_tools:
            by_skill.setdefault(tool.skill or tool.name.replace("_", "-"), []).append(tool)

        def search() -> list[Tool]:
            at = self.view.snapshot
            found = self.finder.search(request.text, k=CODE_TOOLS, among=set(by_skill), at=at)
            return [tool for hit in found.hits for tool in by_skill[hit.id]]

        ranked = list(self.view.outage.read_or_default(search, ()))
        rest = [tool for tool in self.skill_tools if tool not in ranked]
        return sorted((ranked + rest)[:CODE_TOOLS], key=lambda tool: tool.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class _RatedStage:
    """A tool or recipe of a skill, and why to try it, or what to say about it instead."""

    name: str
    reason: str
    reliability: float = 0.0
    is_reliable: bool = False
    is_broken: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillStageAdvisor:
    """Recommends which stage of a skill to try first, and what to do if it fails.

    `reliable` is the reliability a stage needs to be recommended before the steps.
    """

    view: LibraryView
    tools: ToolService
    recipes: RecipeCatalogue
    reliable: float

    def build_stage_recommendation_lines(self, skill: Skill) -> list[str]:
        """Return lines that name the stages to try in one order: the highest that is reliable first, the steps last."""
        if not skill.version:
            return []
        code = self._rate_code_stage(skill)
        recipes = [self._rate_recipe_stage(each) for each in self._list_active_recipes_of_skill(skill.name)]
        rated = [*code, *sorted(recipes, key=lambda each: -each.reliability)]
        good = [each for each in rated if each.is_reliable]
        lines = []
        if good:
            first, *others = good
            then = "".join(f" If it fails, try {each.name}: {each.reason}." for each in others)
            lines.append(f"Try {first.name} first: {first.reason}.{then} The steps are for when it fails.")
        for each in rated:
            if not each.is_reliable:
                lines.append(each.reason if good or not each.is_broken else f"{each.reason} Follow the steps.")
        return lines

    def build_fallback_instructions(self, name: str, failed: str, ran: Sequence[str] = ()) -> str:
        """Return instructions for when the tool or recipe `failed`; `ran` are the steps that succeeded."""
        try:
            skill = self.view.outage.read_or_default(lambda: self.view.load_skill(name), None)
        except UserError:
            # The skill is pending, or has been removed.
            return ""
        if skill is None:
            return ""
        lines = [f"Go on in this turn with what is below `{failed}` in the skill '{name}'."]
        if ran:
            lines.append(f"These steps are done; do not repeat them: {', '.join(ran)}.")
        if others := [each.name for each in self._list_active_recipes_of_skill(name) if each.name != failed]:
            lines.append(f"There is its recipe `{others[0]}`.")
        if self.view.is_skill_text_in_conversation(name):
            return " ".join([*lines, "Its steps are in this conversation."])
        self.view.record_loaded_skill(skill, is_asked=False)
        return "\n\n".join(
            [
                " ".join([*lines, "Its steps are:"]),
                escape_lines_resembling_prompt_marks(skill.body.strip()) or "(It has none.)",
            ]
        )

    def _rate_code_stage(self, skill: Skill) -> list[_RatedStage]:
        if Stage.CODE not in skill.stages:
            return []
        tool, known = f"the tool `{names.to_tool_name(skill.name)}`", self.tools.get(skill.name)
        if known.status is ToolStatus.DEGRADED:
            reason = f"Its{tool[3:]} is degraded, it {known.reason}; it can still be called."
            return [_RatedStage(name=tool, reason=reason, is_broken=True)]
        if not known.can_run:
            reason = f"Its{tool[3:]} can't be called: {rewrite_commands_as_notes_for_person(known.reason)}."
            return [_RatedStage(name=tool, reason=reason, is_broken=True)]
        counters = self.view.library.read_counters(skill.name).get(Stage.CODE, UsageCounts())
        if self._is_stage_reliable_enough(counters) or _is_code_tested_and_unfailed(known, counters):
            return [_RatedStage(name=tool, reason="it is tested", is_reliable=True)]
        return [_RatedStage(name=tool, reason=f"There is a{tool[3:]} for it, too.")]

    def _rate_recipe_stage(self, recipe: SkillRecipe) -> _RatedStage:
        counts, name = recipe.counts, f"the recipe `{recipe.name}`"
        counters = UsageCounts(succeeded=counts.succeeded, failed=counts.failed)
        if self._is_stage_reliable_enough(counters):
            rate = compute_success_rate_lower_bound(counters)
            return _RatedStage(name=name, reason="it has served", reliability=rate, is_reliable=True)
        return _RatedStage(name=name, reason=f"There is a{name[3:]} for it, too.")

    def _is_stage_reliable_enough(self, counters: UsageCounts) -> bool:
        return compute_success_rate_lower_bound(counters) >= self.reliable

    def _list_active_recipes_of_skill(self, name: str) -> list[SkillRecipe]:
        there = self.view.outage.read_or_default(lambda: self.recipes.list_recipes(at=self.view.snapshot), ())
        return [each for each in there if each.skill == name and each.status is RecipeStatus.ACTIVE]


def _is_code_tested_and_unfailed(tool: CodeTool, counters: UsageCounts) -> bool:
    """Whether the current code passed cases with recorded results and has not failed in use."""
    return tool.is_compared and tool.cases > 0 and tool.proved_on is not None and counters.failed == 0
