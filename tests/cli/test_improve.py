"""`habitus skills improve` on the command line: from "not known" to an approved, proved change in three commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import Matches
from habitus.tasks.files import write_tasks
from habitus.tasks.model import Task
from tests.cli.conftest import Direct

SKILL = """---
name: name-a-town
description: Names a town.
always_include: true
---
1. Say its name.
"""


def _furnished(direct: Direct, tasks: int) -> None:
    folder = direct.home / "skills" / "name-a-town"
    (folder / TASKS_FILE).parent.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    checks = (Matches(pattern="^[A-Z]+$"),)
    made = [Task(id=f"t{n}", request=f"Which town has number {n:03}?", checks=checks) for n in range(tasks)]
    (folder / TASKS_FILE).write_text(write_tasks(made))


def _script(path: Path, tasks: int, rounds: int) -> str:
    """An agent that writes capitals where the candidate tells it to, and the draft of that candidate."""
    practice, gate, exam = tasks // 4, tasks // 2, tasks // 4
    draft = {"why": "Small letters fail.", "edits": [{"operation": "append", "content": "2. Use capitals."}]}
    steps: list[object] = [{"say": "Altberg"}] * (2 * practice) + [{"answer": draft}]
    for count, times in ((gate, 1), (exam, rounds)):
        for number in range(times):
            for place in range(count):
                pair = [{"say": "Altberg"}, {"say": "ALTBERG"}]
                steps += pair if (number + place) % 2 else pair[::-1]
    path.write_text(json.dumps(steps))
    return f"script:{path}"


@pytest.mark.req("IM-03", "IM-04")
def test_three_commands_lead_to_a_proved_change(direct: Direct, tmp_path: Path) -> None:
    _furnished(direct, 16)
    model = _script(tmp_path / "model.json", 16, rounds=1)
    looked = direct.ok("skills", "improve", "name-a-town", "--rounds", "1", "--dry-run")
    assert "has 16 tasks: 4 to practise, 8 for the gate, 4 for the exam" in looked
    assert "With 8 gate tasks a run could show" in looked
    said = direct("skills", "improve", "name-a-town", "--rounds", "1", "--budget", "5m", "-m", model, "--yes").out
    assert "It stops after 5 minutes." in said
    assert "Candidate 1: Small letters fail." in said
    assert "accepted: 0 → 100 of 100 on 8 tasks" in said
    assert "Proposed: habitus review show 1" in said
    assert "exam: 0 → 100 of 100 on 4 tasks" in direct.ok("review", "show", "1")
    direct.ok("review", "approve", "1")
    assert "2. Use capitals." in direct.skill_file("name-a-town").read_text()
    found = direct.json("skills", "improvements", "name-a-town")
    assert (found["outlook"]["tried"], found["candidates"][0]["candidate"]["state"]) == (1, "accepted")
    assert "Small letters fail." in direct.ok("skills", "improvements", "name-a-town")


@pytest.mark.req("IM-04")
def test_what_can_t_be_run_is_said_in_one_line(direct: Direct, tmp_path: Path) -> None:
    _furnished(direct, 0)
    without = direct("skills", "improve", "name-a-town", "--yes", "-m", "script:none.json")
    assert (without.code, "has no task for a gate" in without.err) == (1, True)
    wrong = direct("skills", "improve", "name-a-town", "--budget", "much")
    assert "'much' is no budget" in wrong.err
