"""The stages of a skill in a conversation: which is tried first, and where to go on when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from habitus.agent.outage import Outage
from habitus.agent.tools.registry import explain_absence
from habitus.agent.view import View
from habitus.errors import UserError
from habitus.recipes.catalogue import RecipeCatalogue, RecipeStatus, SkillRecipe
from habitus.skills import names
from habitus.skills.lifecycle import reliability
from habitus.skills.model import Counters, Skill, Stage
from habitus.text import block
from habitus.tools.model import CodeTool, ToolStatus
from habitus.tools.tools import Tools


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """`reliable` is how far a stage has to be known to be tried before the steps."""

    view: View
    tools: Tools
    recipes: RecipeCatalogue
    reliable: float
    outage: Outage

    def first(self, skill: Skill) -> list[str]:
        """What to try before the steps, in lines; the steps are for when it fails."""
        if not skill.version:
            return []
        return [*self._code_first(skill), *(self._recipe_first(each) for each in self._recipes_of(skill.name))]

    def below(self, name: str, failed: str, ran: Sequence[str] = ()) -> str:
        """Where to go on when the tool or recipe `failed` of a skill did not do it; `ran` are steps that did."""
        try:
            skill = self.outage.unless_away(lambda: self.view.load(name), None)
        except UserError:
            return ""  # it waits for a person, or it has gone
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
        there = self.outage.unless_away(lambda: self.recipes.all(at=self.view.snapshot), none)
        return [each for each in there if each.skill == name and each.status is RecipeStatus.ACTIVE]


def _is_fresh(tool: CodeTool, counters: Counters) -> bool:
    """Its cases passed as it is, they were not its own word alone, and no use has spoken against it yet."""
    return tool.is_compared and tool.cases > 0 and tool.proved_on is not None and counters.failed == 0
