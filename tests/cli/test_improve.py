"""`habitus skills improve` on the command line: from "not known" to an approved, proved change in three commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from habitus.app.learning.improving import open_improve_store
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import MatchesCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from habitus.tasks.rollouts import TaskSplit
from tests.cli.conftest import Direct
from tests.cli.test_climb import opened

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
    checks = (MatchesCheck(pattern="^[A-Z]+$"),)
    made = [Task(id=f"t{n}", request=f"Which town has number {n:03}?", checks=checks) for n in range(tasks)]
    (folder / TASKS_FILE).write_text(serialize_tasks(made))


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


def _commands() -> list[list[str]]:
    """The three of the guide, as a person would type them."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "skills.md").read_text()
    guide = page.partition("## Making a skill better")[2]
    found = [line.removeprefix("$ habitus ").split() for line in guide.splitlines() if line.startswith("$ habitus ")]
    assert [words[:2] for words in found] == [["skills", "improve"], ["skills", "improve"], ["review", "approve"]]
    return found


@pytest.mark.req("IM-03", "IM-04")
@pytest.mark.parametrize(("tasks", "rounds"), [(16, 1), pytest.param(40, 10, marks=pytest.mark.full)])
def test_the_three_commands_of_the_guide_lead_to_a_proved_change(
    direct: Direct, tmp_path: Path, tasks: int, rounds: int
) -> None:
    _furnished(direct, tasks)
    model = {"HABITUS_MODEL": _script(tmp_path / "model.json", tasks, rounds)}
    fewer = ["--rounds", "1"] if rounds == 1 else []
    look, go, approve = _commands()
    practice, gate, exam = tasks // 4, tasks // 2, tasks // 4
    looked = direct.ok(*look, *fewer, env=model)
    assert f"has {tasks} tasks: {practice} to practise, {gate} for the gate, {exam} for the exam" in looked
    assert ("With 8 gate tasks a run could show" in looked) is (gate < 10)
    said = direct(*go, *fewer, "--yes", env=model).out
    assert "It stops after 90 minutes." in said
    assert " minutes left]" in said
    assert "Candidate 1: Small letters fail." in said
    assert f"accepted: 0 → 100 of 100 on {gate} tasks" in said
    assert "Proposed: habitus review show 1" in said
    assert f"exam: 0 → 100 of 100 on {exam} tasks, {'2 rounds' if rounds > 1 else '1 round'}:" in direct.ok(
        "review", "show", "1"
    )
    direct.ok(*approve)
    assert "2. Use capitals." in direct.skill_file("name-a-town").read_text()
    found = direct.json("skills", "improvements", "name-a-town")
    assert (found["plan"]["tried"], found["candidates"][0]["candidate"]["state"]) == (1, "accepted")
    assert "Small letters fail." in direct.ok("skills", "improvements", "name-a-town")


@pytest.mark.full
@pytest.mark.req("IM-04")
def test_a_run_is_left_to_a_worker(direct: Direct, tmp_path: Path) -> None:
    _furnished(direct, 4)
    (tmp_path / "better.md").write_text(SKILL + "2. Use capitals.\n")
    (tmp_path / "model.json").write_text(json.dumps([{"say": "ALTBERG"}] * 4))
    words = ("skills", "improve", "name-a-town", "--rounds", "1", "--candidate", str(tmp_path / "better.md"))
    more = ("-m", f"script:{tmp_path / 'model.json'}", "--yes", "--later")
    assert "is queued for a worker" in direct.ok(*words, *more)
    assert "Continues the interrupted run" in direct.ok(*words, *more)  # and not two of them
    assert direct("jobs", "work", "--queues", "improve", "--until-idle").code == 0
    (job,) = direct.json("jobs", "list", "--all")["jobs"]
    assert (job["state"], job["result"]["rollouts"], job["result"]["proposals"]) == ("done", 4, [])


@pytest.mark.full
@pytest.mark.req("IM-04")
def test_a_shorter_version_is_refused_where_no_run_could_show_that_it_is_not_worse(
    direct: Direct, tmp_path: Path
) -> None:
    _furnished(direct, 4)
    direct.skill_file("name-a-town").write_text(SKILL + "2. Write it with a capital letter in front.\n" * 2)
    (tmp_path / "model.json").write_text(json.dumps([{"say": "ALTBERG"}] * 4))
    words = ("--shorter", "--rounds", "1", "-n", "1", "--yes", "-m", f"script:{tmp_path / 'model.json'}")
    refused = direct("skills", "improve", "name-a-town", *words)
    assert refused.code == 1
    assert "not worse by 3 points takes 158 gate tasks or more, and there are 2" in refused.err


@pytest.mark.req("IM-04")
def test_a_candidate_that_is_refused_says_why_and_is_an_error(direct: Direct, tmp_path: Path) -> None:
    _furnished(direct, 16)
    (tmp_path / "same.md").write_text(SKILL)
    (tmp_path / "model.json").write_text("[]")
    words = ("--candidate", str(tmp_path / "same.md"), "--yes", "-m", f"script:{tmp_path / 'model.json'}")
    said = direct("skills", "improve", "name-a-town", *words)
    assert said.code == 1
    assert "Not tried: it changes nothing." in said.out


@pytest.mark.req("IM-04")
def test_what_can_t_be_run_is_said_in_one_line(direct: Direct, tmp_path: Path) -> None:
    _furnished(direct, 0)
    without = direct("skills", "improve", "name-a-town", "--yes", "-m", "script:none.json")
    assert (without.code, "has no task for a gate" in without.err) == (1, True)
    wrong = direct("skills", "improve", "name-a-town", "--budget", "much")
    assert "'much' is no budget" in wrong.err


@pytest.mark.req("IM-06")
def test_a_budget_that_can_t_pay_one_rollout_is_an_error_of_a_dry_run_and_of_a_trial(direct: Direct) -> None:
    _furnished(direct, 16)
    looked = direct("skills", "improve", "name-a-town", "--budget", "100", "--dry-run")
    assert (looked.code, "has 16 tasks" in looked.out) == (1, True)
    assert "A budget of 100 tokens can't pay one rollout, which takes about 8" in looked.err
    tried = direct("skills", "trial", "name-a-town", "--budget", "100", "--yes", "-m", "script:none.json")
    assert tried.code == 1
    assert "A budget of 100 tokens can't pay one rollout, which takes about 8" in tried.err


@pytest.mark.full
@pytest.mark.req("IM-04")
def test_a_skills_own_tool_works_in_a_rollout(direct: Direct, tmp_path: Path) -> None:
    """The throw-away home has the whole skill, and its code is approved there as it is here."""
    (tmp_path / "shout.py").write_text("import json, sys\nprint(json.loads(sys.argv[1])['town'].upper())\n")
    schema = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
    made = ("--description", "Shouts.", "--code", str(tmp_path / "shout.py"), "--schema", json.dumps(schema))
    direct.ok("tools", "new", "shout", *made, "--payload", '{"town": "x"}')
    passes = '{"kind": "called", "tool": "shout"}'
    direct.ok("tasks", "add", "shout", "--request", "Shout it.", "--expect", "ALTBERG", "--check", passes, "--id", "t")
    with opened(direct) as habitus:
        open_improve_store(habitus).add_task_splits("shout", {"t": TaskSplit.GATE})
    (tmp_path / "better.md").write_text(direct.skill_file("shout").read_text() + "\nShout every name.\n")
    steps = [{"call": "shout", "arguments": {"town": "Altberg"}}, {"say": "It says ALTBERG."}]
    (tmp_path / "model.json").write_text(json.dumps([*steps, *steps]))
    command = ("skills", "improve", "shout", "--candidate", str(tmp_path / "better.md"), "--rounds", "1", "--yes")
    said = direct.ok(*command, "-m", f"script:{tmp_path / 'model.json'}")
    assert "100 → 100 of 100 on 1 task" in said
    with opened(direct) as habitus:
        assert all(one.is_followed for one in open_improve_store(habitus).list_rollouts())


@pytest.mark.req("IM-08")
def test_the_plan_of_the_night_ranks_the_skills_and_says_why(direct: Direct) -> None:
    assert "No skill has enough tasks" in direct.ok("skills", "improve", "--plan")
    _furnished(direct, 24)
    shown = " ".join(direct.ok("skills", "improve", "--plan").split())
    assert "name-a-town" in shown
    assert "used 0.0 times a day, 50 of 100 tries fail, 0 of 0 candidates were better" in shown
