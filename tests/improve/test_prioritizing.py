"""Which skill is tried next: the one whose next candidate is expected to gain most for its rollouts."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.improving import pick_skills_to_improve, rank_skills_to_improve
from habitus.files import build_tree_file
from habitus.improve.plan import ImproveRequest
from habitus.improve.prioritizing import SkillProspect, is_candidate_worth_its_price, rank_prospects
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.files import serialize_tasks
from tests.improve.test_comparing import ask
from tests.improve.test_improving import NAME, SKILL, _tasks, furnish, run

ONE = SkillProspect(
    skill="one", uses_a_day=2.0, passed=40, failed=40, tried=2, accepted=1, smallest_effect=0.1, rollouts=100.0
)


@pytest.mark.req("IM-08")
def test_use_headroom_success_and_price_decide_the_order() -> None:
    others = [
        replace(ONE, skill="rarely-used", uses_a_day=0.5),
        replace(ONE, skill="nearly-perfect", passed=79, failed=1),
        replace(ONE, skill="tried-in-vain", tried=20, accepted=0),
        replace(ONE, skill="dear", rollouts=150.0),
    ]
    ranked = [one.skill for one in rank_prospects([*others, ONE])]
    assert ranked[:2] == ["one", "dear"]
    assert ranked[-1] == "nearly-perfect"
    (best,) = rank_prospects([ONE])
    assert best.reason == (
        "used 2.0 times a day, 50 of 100 tries fail, 1 of 2 candidates were better: about 12.3 more successes in "
        "90 days for 100 rollouts"
    )
    assert is_candidate_worth_its_price(replace(best, cents=300), 30)
    assert not is_candidate_worth_its_price(replace(best, cents=400), 30)
    assert is_candidate_worth_its_price(replace(best, cents=400), 0)


@pytest.mark.req("IM-08")
def test_a_skill_of_which_little_is_known_gets_its_turn() -> None:
    unknown = replace(ONE, skill="unknown", passed=1, failed=0, tried=0, accepted=0)
    first = {rank_prospects([ONE, unknown], random.Random(seed))[0].skill for seed in range(20)}
    assert first == {"one", "unknown"}


@pytest.mark.req("IM-08")
async def test_the_nights_choice_knows_uses_and_rollouts(home: Path) -> None:
    with Habitus.open(read_settings(home)) as habitus:
        furnish(habitus, 24)
        text = SKILL.replace(NAME, "name-a-river").replace("always_include: true\n", "")
        tree = {
            "SKILL.md": build_tree_file(text.encode()),
            TASKS_FILE: build_tree_file(serialize_tasks(_tasks(24)).encode()),
        }
        habitus.skills.write_tree("user", "name-a-river", tree, habitus.build_author())
        assert [one.uses_a_day for one in rank_skills_to_improve(habitus)] == [0, 0]
        with habitus.turn("Name a river.", conversation="c1") as turn:
            turn.run("recall_skill", {"name": "name-a-river"})
            turn.done("Altfluss", ok=False)
        ask(habitus, "c2")
        first, second = rank_skills_to_improve(habitus)
        assert (first.skill, second.skill, second.gain) == ("name-a-river", NAME, 0)
        assert first.gain > 0
        await run(habitus, ImproveRequest(skill="name-a-river", rounds=3, text=f"{text}3. Be brief.\n"))
        first = rank_skills_to_improve(habitus)[0]
        assert (first.skill, first.passed, first.tried, first.accepted) == ("name-a-river", 0, 1, 0)
        assert first.failed >= 12
        assert pick_skills_to_improve(habitus)[0] == "name-a-river"
        habitus.settings = habitus.settings.model_copy(update={"success_cents": 1.0})
        assert pick_skills_to_improve(habitus) == ["name-a-river", NAME], (
            "rollouts that cost nothing are always worth it"
        )
