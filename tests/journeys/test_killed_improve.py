"""A process that improves a skill is killed, or stopped by Ctrl-C: nothing recorded is done again."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.improve_store import open_improve_store
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import ReplyMatchesPatternCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from habitus.tasks.rollouts import LOST, Rollout, TaskSplit
from tests.conftest import Cli
from tests.jobs.counting import until

SKILL = "---\nname: name-a-town\ndescription: Names a town.\nalways_include: true\n---\n1. Say its name.\n"
NAMES = [f"t{number}" for number in range(4)]


def furnish(cli: Cli) -> list[str]:
    folder = cli.home / "skills" / "name-a-town"
    (folder / TASKS_FILE).parent.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    checks = (ReplyMatchesPatternCheck(pattern="^[A-Z]+$"),)
    (folder / TASKS_FILE).write_text(
        serialize_tasks([Task(id=id, request=f"Town {id}?", checks=checks) for id in NAMES])
    )
    (cli.cwd / "better.md").write_text(SKILL + "2. Use capitals.\n")
    with Habitus.open(read_settings(cli.home, cli.environ())) as habitus:
        open_improve_store(habitus).add_task_splits("name-a-town", dict.fromkeys(NAMES, TaskSplit.GATE))
    words = ["skills", "improve", "name-a-town", "--candidate", "better.md", "--rounds", "1", "--yes"]
    return [*words, "-m", f"script:{cli.cwd / 'model.json'}"]


def rollouts(cli: Cli) -> list[Rollout]:
    with Habitus.open(read_settings(cli.home, cli.environ())) as habitus:
        return open_improve_store(habitus).list_rollouts()


@pytest.mark.req("IM-04")
@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_run_goes_on_where_its_process_ended(run_cli: Cli, tmp_path: Path, how: signal.Signals) -> None:
    words = furnish(run_cli)
    script = run_cli.cwd / "model.json"
    script.write_text(json.dumps([*[{"say": "ALTBERG"}] * 3, {"hang": True}]))
    process = subprocess.Popen(
        [*run_cli.program, *words], env=run_cli.environ(), cwd=run_cli.cwd, stdout=subprocess.PIPE, text=True
    )
    until(lambda: [one.outcome for one in rollouts(run_cli)] == ["ok", "ok", "ok", ""])
    process.send_signal(how)
    said, _ = process.communicate()
    if how is signal.SIGINT:
        assert (process.returncode, "Interrupted; 4 rollouts" in said) == (0, True)
    before = [one.id for one in rollouts(run_cli)]
    script.write_text(json.dumps([{"say": "ALTBERG"}] * 5))
    again = run_cli(*words).out
    assert "Continues the interrupted run" in again
    assert "9 rollouts, 1 of them repeated" in again
    kept = rollouts(run_cli)
    assert [one.id for one in kept][:4] == before
    assert [one.outcome for one in kept] == ["ok", "ok", "ok", LOST, *["ok"] * 5]
    assert len({(one.task, one.is_new) for one in kept if one.is_counted}) == 8
    assert kept[3].tokens > 0
