"""Trust in one skill, over REST: its risks, and whether it may act as it is now. `habitus trust` asks a person."""

from __future__ import annotations

from dataclasses import dataclass

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import trusting
from habitus.app.library.trusting import TrustState
from habitus.app.use_cases.declaration import use_case
from habitus.app.use_cases.skills import skill_name


@dataclass(frozen=True, kw_only=True)
class TrustedSkill:
    name: str = skill_name()


_EXAMPLE = TrustedSkill(name="csv-summary")


@use_case("", route="GET /skills/{name}/trust", access=Access.OPEN_READING, example=_EXAMPLE)
def show(home: Home, wanted: TrustedSkill) -> TrustState:
    """Show what a skill can do, what looks suspicious, and whether it may act as it is now."""
    return trusting.look_at_trust(home, trusting.trustable_skill(home.skills, wanted.name))


@use_case("", route="PUT /skills/{name}/trust", access=Access.ADMIN, example=_EXAMPLE, undo="trust --revoke")
def trust(home: Home, wanted: TrustedSkill) -> TrustState:
    """Trust the skill as it is now."""
    return trusting.give_trust(home, trusting.trustable_skill(home.skills, wanted.name), wanted.name)


@use_case("", route="DELETE /skills/{name}/trust", access=Access.ADMIN, example=_EXAMPLE, undo="trust")
def revoke(home: Home, wanted: TrustedSkill) -> TrustState:
    """Stop trusting the skill."""
    return trusting.take_trust(home, trusting.trustable_skill(home.skills, wanted.name), wanted.name)
