"""Insights: what is known of the whole library, for whoever keeps it in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from habitus.app.declaring import Nothing, use_case
from habitus.app.growth import insights
from habitus.app.growth.insights import Confusion, MenuCost, SkillEffect, TriedCandidate, UnusedSkill
from habitus.app.home import Home
from habitus.app.operation.people import Role


@dataclass(frozen=True, kw_only=True)
class Insights:
    effects: Sequence[SkillEffect]  # the most helpful first
    menu: MenuCost
    unused: Sequence[UnusedSkill]
    confusion: Confusion
    improvements: Sequence[TriedCandidate]


@use_case("", route="GET /insights", who=Role.VIEWER, example=Nothing())
def show(home: Home, wanted: Nothing) -> Insights:
    """What helps over time, what the menu costs, what is never used, what is confused, and what was tried."""
    return Insights(
        effects=insights.effects(home),
        menu=insights.menu_cost(home),
        unused=insights.unused_skills(home),
        confusion=insights.confusion(home),
        improvements=insights.tried_candidates(home),
    )
