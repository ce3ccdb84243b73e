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
from habitus.agent.background import in_thread
from habitus.agent.library_view import View
from habitus.agent.tools.registry import Reach, Registry, Running, Tool, explain_absence
from habitus.errors import UserError
from habitus.events import Outcome, ToolCall, ToolResult, call_returned, tool_called
from habitus.evidence.model import Item, ItemKind
from habitus.recipes.catalogue import RecipeCatalogue, RecipeStatus, SkillRecipe
from habitus.recipes.execution import RecipeRun, execute
from habitus.sandbox.child import NO_SERVICES, Services
from habitus.sandbox.files import Given
from habitus.sandbox.model import Permissions, ToolRun
from habitus.skills import names
from habitus.skills.choosing.finding import Finder
from habitus.skills.choosing.selection import Request
from habitus.skills.lifecycle import GateContext, is_barred, reliability
from habitus.skills.model import Counters, Skill, Stage
from habitus.text import block, one_line
from habitus.tools.model import CodeTool, ToolStatus
from habitus.tools.tools import Tools

Run = Callable[[str, object], Awaitable[ToolRun]]
# Maps a skill and its tool to instructions for a fallback.
FallBack = Callable[[str, str], str]


def code_tools(tools: Iterable[CodeTool], run: Run, fall_back: FallBack) -> list[Tool]:
    """Build a tool for the code of each skill."""
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
        access=Access.VIEWER if reach is Reach.NOTHING else Access.ADMIN,
        takes_away=reach is not Reach.NOTHING,
        returns=tool.returns,
    )


def _reach(granted: Permissions) -> Reach:
    if granted.network:
        return Reach.NETWORK
    return Reach.HERE if granted.write else Reach.NOTHING


def describe_tool(tool: CodeTool) -> str:
    """Return the description for the model: the purpose, how to call it, and how not to."""
    name = tool.callable_name
    example = f" Example: {name}({json.dumps(tool.example, ensure_ascii=False)})." if tool.example is not None else ""
    return (
        f"{one_line(tool.description).rstrip('.')}. Call `{name}` directly with its arguments.{example} "
        f"Do not import it or run it in the scratchpad, and do not pass its name to another tool."
    )


def show_run(done: ToolRun) -> str:
    """Return the tool's output, or the reason why it failed."""
    printed = block(done.stdout.strip())
    if done.outcome.is_ok:
        return printed
    parts = [f"Error: {one_line(done.outcome.reason)}", printed, block(done.stderr.strip())]
    return "\n\n".join(part for part in dict.fromkeys(parts) if part)


# Called with the outcome of each run.
Count = Callable[[SkillRecipe, Outcome], None]
# Maps a skill, its recipe and the steps that ran to instructions for a fallback.
RecipeFallBack = Callable[[str, str, Sequence[str]], str]


def recipe_tools(
    recipes: Iterable[SkillRecipe], count: Count, others: Callable[[], Registry], fall_back: RecipeFallBack
) -> list[Tool]:
    """Build a tool for each recipe. `others` returns the tools that steps may call; recipes are not among them."""
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
        access=Access.VIEWER if reach is Reach.NOTHING else Access.ADMIN,
        takes_away=reach is not Reach.NOTHING,
    )


async def _step(call: ToolCall, registry: Registry, running: Running) -> ToolResult:
    """Run one step's call, visible to observers like any other. Its event stores the arguments, as no message does."""
    at, redactor = running.round_idx, running.redactor
    running.observe(
        tool_called(call.name, call.arguments, round_idx=at, call_id=call.id, keeps_args=True, redactor=redactor)
    )
    result = await registry.run(call, replace(running, call=call.id))
    running.observe(call_returned(call, result, round_idx=at))
    return result


def show_recipe_run(done: RecipeRun) -> str:
    """Render the steps, one line each, followed by the result."""
    lines = [
        f"{step.number}. {step.tool}: {step.outcome.kind.value}"
        + (f", {one_line(step.outcome.reason)}" if step.outcome.reason else "")
        for step in done.steps
    ]
    return "\n".join([*lines, "", done.content]).strip()


def last_said(told: str) -> str:
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
    tools: Tools
    finder: Finder
    view: View
    user_gates: GateContext
    recipes: RecipeCatalogue
    ladder: Ladder
    given: Given | None = None
    # The host services that the code may use.
    services: Services = field(default_factory=lambda: NO_SERVICES)
    steady: bool = True
    # A cheap check before a snapshot of the library is taken.
    may_have_tools: Callable[[], bool] = lambda: True
    # False for trial runs, which must not count as use.
    counts: bool = True
    # Names of the host's own tools.
    theirs: frozenset[str] = frozenset()
    _looks: int = -1
    _degraded: Sequence[Tool] = ()
    # The code that steps of recipes may call.
    _steps: Sequence[Tool] = ()
    _code: list[Tool] | None = None
    _listed: Sequence[Tool] = ()
    # The tools that existed when the session opened.
    _first: frozenset[str] | None = None

    @property
    def looking(self) -> set[str]:
        """The built-in tools that change nothing; calling one is no trace of following a skill."""
        return {tool.name for tool in self.built_in if tool.reach is Reach.NOTHING}

    @property
    def code(self) -> list[Tool]:
        """The code and recipes of skills, loaded on first use."""
        if self._code is None:
            none: Sequence[Tool] = ()
            self._code = sorted(self.view.outage.unless_away(self._current, none), key=lambda tool: tool.name)
        return self._code

    @property
    def gates(self) -> GateContext:
        """The user's gates, including these tools."""
        return self._with_tools(tool.name for tool in self.code)

    def _with_tools(self, code: Iterable[str]) -> GateContext:
        ours = (tool.name for tool in self.built_in)
        return replace(self.user_gates, tools=frozenset((*ours, *code, *self.theirs)))

    def registry(self, request: Request) -> Registry:
        """Return the tools for a request: all, or the most relevant ones if there are too many."""
        if self._looks != self.view.looks:
            self._look()
            self._looks = self.view.looks
        few = len(self.code) <= CODE_TOOLS
        self._listed = self.code if few else self._most_fitting(request)
        if self._first is None:
            self._first = frozenset(tool.name for tool in self.code)
        offered = [tool for tool in self._listed if not self._is_withheld(tool)]
        # A withheld tool can still be called by name.
        withheld = [tool for tool in self._listed if self._is_withheld(tool)]
        mine = [tool for tool in (*self.built_in, *offered) if tool.name not in self.theirs]
        return Registry(mine, unlisted=(*self._degraded, *withheld))

    def note_offers(self, shown: Collection[str] | None = None) -> None:
        """Record the exposure of the last listed tools, or of those named in `shown`."""
        for tool in self._listed:
            if tool.item is not None and (shown is None or tool.name in shown or (shown and self._is_withheld(tool))):
                is_steady = len(self.code) <= CODE_TOOLS
                self.view.offers.takes(
                    tool.item, tokens=tool.spec.tokens, is_steady=is_steady, is_sure=self._is_sure(tool)
                )

    def items(self, called: Collection[str]) -> list[Item]:
        """Return the evidence items of the tools with these names."""
        return [tool.item for tool in self.code if tool.item is not None and tool.name in called]

    def stages_of(self, skill: str) -> set[str]:
        """Return the callable names of a skill's tool and recipes, including degraded ones."""
        return {tool.name for tool in (*self.code, *self._degraded) if tool.skill == skill}

    def _is_withheld(self, tool: Tool) -> bool:
        return tool.item is not None and self.view.offers.is_withheld(tool.item, is_sure=self._is_sure(tool))

    def _is_sure(self, tool: Tool) -> bool:
        """Whether a tool was added during the session: such a tool was made for it and is never withheld."""
        return self._first is not None and tool.name not in self._first

    def _look(self) -> None:
        known: Sequence[Tool] = self.code
        now = {tool.name: tool for tool in self.view.outage.unless_away(self._current, known)}
        stays = known if self.steady else [tool for tool in known if tool.name in now]
        # A removed tool stays listed and reports its removal when called.
        kept = [now.get(tool.name, tool) for tool in stays]
        names = {tool.name for tool in kept}
        self._code = [*kept, *(tool for name, tool in now.items() if name not in names)]

    def _current(self) -> Sequence[Tool]:
        """Load the tools and recipes that may run for this user, and pending ones of this conversation."""
        conversation = self.view.conversation
        is_worth_a_look = self.view.is_taken or self.may_have_tools()
        there = self.tools.all(at=self.view.snapshot) if is_worth_a_look else ()
        runnable = [tool for tool in there if tool.can_run]
        gates = self._with_tools(tool.name for tool in runnable if tool.status is ToolStatus.ACTIVE)
        usable = [tool for tool in runnable if not self._is_barred(tool.name, gates)]
        active = {tool.name: tool for tool in usable if tool.status is ToolStatus.ACTIVE}
        run = partial(self.tools.run, services=self.services, given=self.given, counts=self.counts)
        self._degraded = code_tools(
            [tool for tool in usable if tool.status is ToolStatus.DEGRADED], run, self.ladder.below
        )
        waiting = [tool for tool in self.tools.waiting(conversation) if tool.name not in active]

        async def run_waiting(name: str, payload: object) -> ToolRun:
            run = self.tools.run_waiting
            return await run(conversation, name, payload, services=self.services, given=self.given)

        self._steps = code_tools(active.values(), run, self.ladder.below)
        waiting_tools = code_tools(waiting, run_waiting, self.ladder.below)
        recipes = self._offered_recipes({tool.name for tool in self._steps}, gates) if is_worth_a_look else ()
        return [*self._steps, *recipes, *waiting_tools]

    def _offered_recipes(self, taken: Collection[str], gates: GateContext) -> list[Tool]:
        """Return the recipes that may run for this user, except those named like a tool."""
        usable = [
            recipe
            for recipe in self.recipes.all(at=self.view.snapshot)
            if recipe.status is RecipeStatus.ACTIVE
            and recipe.name not in taken
            and not self._is_barred(recipe.skill, gates)
        ]
        count = self.recipes.ran if self.counts else lambda recipe, outcome: None
        return recipe_tools(usable, count, lambda: Registry([*self.built_in, *self._steps]), self.ladder.below)

    def _is_barred(self, name: str, gates: GateContext) -> bool:
        item = self.view.snapshot.by_name.get(name)
        return item is None or item.summary is None or is_barred(item.summary, gates)

    def _most_fitting(self, request: Request) -> list[Tool]:
        by_skill: dict[str, list[Tool]] = {}
        for tool in self.code:
            by_skill.setdefault(tool.skill or tool.name.replace("_", "-"), []).append(tool)

        def search() -> list[Tool]:
            at = self.view.snapshot
            found = self.finder.search(request.text, k=CODE_TOOLS, among=set(by_skill), at=at)
            return [tool for hit in found.hits for tool in by_skill[hit.id]]

        nothing: list[Tool] = []
        ranked = self.view.outage.unless_away(search, nothing)
        rest = [tool for tool in self.code if tool not in ranked]
        return sorted((ranked + rest)[:CODE_TOOLS], key=lambda tool: tool.name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """Recommends which stage of a skill to try first, and what to do if it fails.

    `reliable` is the reliability a stage needs to be recommended before the steps.
    """

    view: View
    tools: Tools
    recipes: RecipeCatalogue
    reliable: float

    def first(self, skill: Skill) -> list[str]:
        """Return lines that name the stages to try before the steps."""
        if not skill.version:
            return []
        return [*self._code_first(skill), *(self._recipe_first(each) for each in self._recipes_of(skill.name))]

    def below(self, name: str, failed: str, ran: Sequence[str] = ()) -> str:
        """Return instructions for when the tool or recipe `failed`; `ran` are the steps that succeeded."""
        try:
            skill = self.view.outage.unless_away(lambda: self.view.load(name), None)
        except UserError:
            # The skill is pending, or has been removed.
            return ""
        if skill is None:
            return ""
        lines = [f"Go on in this turn with what is below `{failed}` in the skill '{name}'."]
        if ran:
            lines.append(f"These steps are done; do not repeat them: {', '.join(ran)}.")
        if others := [each.name for each in self._recipes_of(name) if each.name != failed]:
            lines.append(f"There is its recipe `{others[0]}`.")
        if self.view.is_in_view(name):
            return " ".join([*lines, "Its steps stand in this conversation."])
        self.view.note_loaded(skill, is_asked=False)
        return "\n\n".join([" ".join([*lines, "Its steps are:"]), block(skill.body.strip()) or "(It has none.)"])

    def _code_first(self, skill: Skill) -> list[str]:
        if Stage.CODE not in skill.stages:
            return []
        tool, known = names.callable_name(skill.name), self.tools.get(skill.name)
        if known.status is ToolStatus.DEGRADED:
            return [f"Its tool `{tool}` is degraded, it {known.reason}. Follow the steps; it can still be called."]
        if not known.can_run:
            return [f"Its tool `{tool}` can't be called: {explain_absence(known.reason)}. Follow the steps."]
        counters = self.view.library.counters(skill.name).get(Stage.CODE, Counters())
        if self._is_reliable(counters) or _is_fresh(known, counters):
            return [f"Try the tool `{tool}` first: it is tested. The steps are for when it fails."]
        return [f"There is a tool `{tool}` for it, too."]

    def _recipe_first(self, recipe: SkillRecipe) -> str:
        counts = recipe.counts
        counters = Counters(succeeded=counts.succeeded, failed=counts.used - counts.succeeded)
        if self._is_reliable(counters):
            return f"Try the recipe `{recipe.name}` first: it has served. The steps are for when it fails."
        return f"There is a recipe `{recipe.name}` for it, too."

    def _is_reliable(self, counters: Counters) -> bool:
        return reliability(counters) >= self.reliable

    def _recipes_of(self, name: str) -> list[SkillRecipe]:
        none: tuple[SkillRecipe, ...] = ()
        there = self.view.outage.unless_away(lambda: self.recipes.all(at=self.view.snapshot), none)
        return [each for each in there if each.skill == name and each.status is RecipeStatus.ACTIVE]


def _is_fresh(tool: CodeTool, counters: Counters) -> bool:
    """Whether the current code passed cases with recorded results and has not failed in use."""
    return tool.is_compared and tool.cases > 0 and tool.proved_on is not None and counters.failed == 0
