"""Trust in one skill, over REST: its risks, and whether it may act as it is now. `review trust` asks a person."""

from __future__ import annotations

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import trusting
from habitus.app.use_cases.declaration import SkillName, use_case

_EXAMPLE = {"name": "csv-summary"}


@use_case("", route="GET /skills/{name}/trust", access=Access.OPEN_READING, example=_EXAMPLE)
def show_trust(home: Home, name: SkillName) -> trusting.TrustStatus:
    """Show what a skill can do, what looks suspicious, and whether it may act as it is now."""
    return trusting.get_trust_status(home, trusting.resolve_trust_target_of_skill(home, name))


@use_case("", route="PUT /skills/{name}/trust", access=Access.ADMIN, example=_EXAMPLE, undo="review trust --revoke")
def trust_skill(home: Home, name: SkillName) -> trusting.TrustStatus:
    """Trust the skill as it is now."""
    return trusting.grant_trust(home, trusting.resolve_trust_target_of_skill(home, name), name)


@use_case("", route="DELETE /skills/{name}/trust", access=Access.ADMIN, example=_EXAMPLE, undo="review trust")
def revoke_trust(home: Home, name: SkillName) -> trusting.TrustStatus:
    """Stop trusting the skill."""
    return trusting.revoke_trust(home, trusting.resolve_trust_target_of_skill(home, name), name)
