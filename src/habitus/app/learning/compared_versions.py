"""The comparisons in use of a home, in words; `comparing` starts and decides them."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.app.home import Home
from habitus.evidence.versions import COMPARISON_PERIOD, ComparisonState
from habitus.improve.comparisons import LiveComparisonStore
from habitus.journal.evidence_records import load_scored_exposures
from habitus.journal.model import ScoredExposure
from habitus.settings import EvidenceSettings
from habitus.skills.layers.listing import ListedSkill
from habitus.skills.proposals import Proposal


def open_comparison_store(home: Home) -> LiveComparisonStore:
    """Open the store of comparisons in use."""
    return LiveComparisonStore(home.shared, home.clock)


def load_version_comparison_exposures(
    engine: sa.Engine, change: str | None = None, *, since: datetime | None = None, user: str | None = None
) -> list[ScoredExposure]:
    """Return the conversations that were randomised between a changed version of a skill and the one before it."""
    items = None if change is None else [change]
    with sql.read_transaction(engine) as connection:
        return load_scored_exposures(connection, items, since=since, user=user, of_changes=True)


def describe_comparison_after_approval(settings: EvidenceSettings, proposal: Proposal) -> str:
    """Return what approving an improvement compares, in words; empty if it compares nothing."""
    share = settings.compare_versions
    if not share or "improve" not in proposal.change.details:
        return ""
    return (
        f"After approval {share:.0%} of conversations get the version before it, to compare the two in use for up to "
        f"{COMPARISON_PERIOD.days} days (evidence.compare_versions; 0 is off)."
    )


def describe_running_comparison_of_skill(home: Home, item: ListedSkill) -> str:
    """Return what is compared now about a skill, in words; empty if nothing is."""
    if not home.settings.evidence.compare_versions:
        return ""
    for one in open_comparison_store(home).list_comparisons(item.name):
        if one.state is ComparisonState.RUNNING and one.layer == item.layer:
            return (
                f"Versions {one.old} and {one.new} are compared: {one.share:.0%} of conversations get version "
                f"{one.old}. An agent that reads the file itself always has version {one.new}."
            )
    return ""
