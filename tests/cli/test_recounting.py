"""Counts of homes from before: what only stood in prompts counted as used, and is counted anew or marked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.events import OutcomeKind
from habitus.journal.model import Place, Selected, Turn, TurnOutcome
from habitus.skills.model import Manifest, Skill
from tests.cli.conftest import Direct

STEPS = "1. Boil fresh water in the kettle.\n2. Warm the porcelain teapot.\n3. Steep the leaves four minutes."
THERE = (
    Selected(name="brew-tea", layer="user", version=1, place=Place.STICKY, reason="of the turn before"),
    Selected(name="house-style", layer="user", version=1, place=Place.EAGER, reason="always_include"),
)
FAILED = (TurnOutcome(kind=OutcomeKind.FAILED, weight=1.0, source="host"),)


@pytest.mark.req("SK-06")
def test_counts_by_presence_are_counted_anew_where_the_journal_explains_them_and_marked_where_not(
    direct: Direct,
) -> None:
    always = Manifest(always_include=True)
    with Habitus.open(read_settings(direct.home, direct.cli.environ())) as habitus:
        for skill in (
            Skill(name="brew-tea", description="Brews tea.", body=STEPS),
            Skill(name="house-style", description="How we write.", body="Write short sentences.", manifest=always),
            Skill(name="old-hand", description="Knows it all.", body=STEPS),
        ):
            habitus.skills.create(skill, habitus.person())
        for conversation in ("a", "b"):
            with habitus.turn("brew some tea", conversation=conversation) as turn:
                turn.run("recall_skill", {"name": "brew-tea"})
                turn.done("Done.", ok=True)
            later = Turn(id=f"later-{conversation}", session=conversation, request="", started_on=habitus.clock())
            habitus.journal.record(replace(later, selected=THERE, outcomes=FAILED))
        store = habitus.skills.layer("user").store
        with sql.writing(habitus.shared) as connection:  # as they were counted by presence
            connection.execute(sa.text("DELETE FROM skill_counters"))
        for name, good, bad in (("brew-tea", 2, 2), ("house-style", 2, 2), ("old-hand", 0, 9)):
            for succeeded in [True] * good + [False] * bad:
                store.record_use(name, succeeded=succeeded)
        with sql.writing(habitus.shared) as connection:
            connection.execute(sa.text("UPDATE skill_counters SET by_presence_until = '2999-01-01T00:00:00+00:00'"))

    few = {"HABITUS_RELIABLE": "0.3"}
    said = direct.ok("skills", "stats")
    assert "brew-tea (steps): Until 2999-01-01 a text that only stood in the prompt counted as used;" in said
    assert "old-hand" not in direct("curate", env=few).out  # a count that is marked retires nobody
    direct.ok("curate", "--apply", env=few)
    found = {one["name"]: one for one in direct.json("skills", "stats")["stats"]}
    told = {name: (one["used"], one["succeeded"], one["failed"]) for name, one in found.items()}
    assert told == {"brew-tea": (2, 2, 0), "house-style": (0, 0, 0), "old-hand": (9, 0, 9)}
    marked = {name for name, one in found.items() if one["by_presence_until"] is not None}
    assert marked == {"old-hand"}
