"""Counts of homes from before: those that were counted by presence are marked, and decide nothing."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from habitus import sql
from habitus.app import Habitus, read_settings
from habitus.skills.model import Skill
from tests.cli.conftest import Direct


@pytest.mark.req("SK-06")
def test_counts_by_presence_are_marked_and_retire_nobody(direct: Direct) -> None:
    with Habitus.open(read_settings(direct.home, direct.cli.environ())) as habitus:
        habitus.skills.create(
            Skill(name="old-hand", description="Knows it all.", body="1. Know it."), habitus.build_author()
        )
        habitus.skills.get_layer("user").store.add_counts("old-hand", {"used": 9, "failed": 9})
        with sql.write_transaction(habitus.shared) as connection:
            connection.execute(sa.text("UPDATE skill_counters SET by_presence_until = '2999-01-01T00:00:00+00:00'"))
    said = direct.ok("skills", "stats")
    assert "old-hand (steps): Until 2999-01-01 a text that only stood in the prompt counted as used;" in said
    assert "old-hand" not in direct("curate", env={"HABITUS_RELIABLE": "0.3"}).out
