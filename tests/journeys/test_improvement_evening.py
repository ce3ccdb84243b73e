"""An evening with a skill that has no tasks: drafted, ticked, improved, examined and reviewed in seven commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Cli, Ran

SKILL = "---\nname: name-a-town\ndescription: Names a town.\nalways_include: true\n---\n1. Say its name.\n"
TOWNS = 22


@pytest.mark.full
@pytest.mark.req("IM-02", "IM-03", "IM-04")
def test_an_evening_leads_from_no_tasks_to_an_examined_and_reviewed_change(installed_cli: Cli, tmp_path: Path) -> None:
    typed: list[tuple[str, ...]] = []

    def step(*words: str, code: int = 0) -> Ran:
        typed.append(words)
        ran = installed_cli(*words, env={"HABITUS_MODEL": f"script:{tmp_path / 'model.json'}"})
        assert ran.code == code, ran.err
        return ran

    folder = installed_cli.home / "skills" / "name-a-town"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    assert "'habitus tasks draft name-a-town'" in step("skills", "improve", "name-a-town", "--dry-run", code=1).out

    _script(tmp_path, [{"answer": {"tasks": [_draft(number) for number in range(TOWNS)]}}])
    drafted = step("tasks", "draft", "name-a-town", "-n", "22").out
    assert "22 tasks drafted." in drafted
    # The person reads the list, and leaves out two.
    step("review", "approve", "1", "--only", "1-20")
    assert "20 of 20 tasks valid" in step("tasks", "check", "name-a-town").out

    _script(tmp_path, _improvement())
    said = step("skills", "improve", "name-a-town", "--yes").out
    assert "accepted: 0 → 100 of 100 on 10 tasks" in said
    shown = step("review", "show", "2").out
    assert "exam: 0 → 100 of 100 on 5 tasks, 2 rounds: +100 points" in shown
    assert "+2. Use capitals." in shown
    step("review", "approve", "2")
    assert "2. Use capitals." in (folder / "SKILL.md").read_text()
    assert len(typed) <= 8


def _draft(number: int) -> dict[str, object]:
    town = f"ALTBERG{number:02}"
    return {"request": f"Which town has number {number:02}?", "matches": "^[A-Z0-9]+$", "reply": town, "wrong": "no"}


def _improvement() -> list[object]:
    """An agent that writes capitals where the candidate tells it to, and the draft of that candidate."""
    draft = {"why": "Small letters fail.", "edits": [{"operation": "append", "content": "2. Use capitals."}]}
    steps: list[object] = [{"say": "Altberg"}] * (2 * 5) + [{"answer": draft}]
    for tasks, rounds in ((10, 1), (5, 2)):
        for turn in range(rounds):
            for place in range(tasks):
                pair = [{"say": "Altberg"}, {"say": "ALTBERG"}]
                steps += pair if (turn + place) % 2 else pair[::-1]
    return steps


def _script(folder: Path, steps: list[object]) -> None:
    (folder / "model.json").write_text(json.dumps(steps))
