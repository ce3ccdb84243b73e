"""A task is planted wherever tasks can lie, and looked for at every door of whoever may be examined by it."""

from __future__ import annotations

import json

import pytest
from fastapi.testclient import TestClient

from habitus.app import Habitus
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.improving import build_drafter_prompt_from_practice
from habitus.app.learning.solving import open_temporary_home_with_skill, run_own_agent_rollout
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.tasks.proposing import TaskCandidate, propose_tasks
from habitus.app.tasks.storing import replace_editable_tasks
from habitus.files import build_tree_file
from habitus.learning.budget import RunBudget
from habitus.llm.model import CompletionRequest
from habitus.llm.scripted import ScriptedModel, ScriptStep, calls, says
from habitus.skills.model import Skill
from habitus.skills.trees import TASKS_FILE, update_main_file
from habitus.tasks.checks import ReplyContainsCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from habitus.tasks.rollouts import Rollout, TaskSplit
from habitus.web.app import make_web_app
from habitus.web.home_pool import HomePool
from habitus.web.security import load_sign_in_service
from tests.web.conftest import standing

pytestmark = pytest.mark.req("IM-01")
ANSWER = "FORTY-TWO"
LOOK = """import os, pathlib
found = []
for top in (os.environ.get('GIVEN', '.'), '.', os.path.expanduser('~'), {home!r}):
    for path in pathlib.Path(top).rglob('*'):
        try:
            if 'evals' in str(path).lower() or (path.is_file() and b'FORTY' + b'-TWO' in path.read_bytes()):
                found.append(str(path))
        except OSError:
            pass
print('found', found)
"""


def _task(id: str) -> Task:
    return Task(id=id, request=f"What is {id}?", checks=(ReplyContainsCheck(text=ANSWER),))


@pytest.fixture(autouse=True)
def tasks(habitus: Habitus) -> None:
    brew = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil water.")
    tree = {
        **update_main_file({}, brew),
        TASKS_FILE: build_tree_file(serialize_tasks([_task("beside"), _task("practice")]).encode()),
        "evals/evals.json": build_tree_file(json.dumps([{"query": "tea", "expect": [ANSWER]}]).encode()),
    }
    habitus.skills.write_tree("user", "brew-tea", tree, habitus.build_author())
    replace_editable_tasks(habitus, "write-a-skill", [_task("elsewhere")])  # a read-only one: in the home
    propose_tasks(
        habitus, [TaskCandidate(skill="brew-tea", task=_task("mined"), evidence=())], source="x", reason="asked often"
    )
    open_improve_store(habitus).add_task_splits("brew-tea", {"beside": TaskSplit.GATE, "practice": TaskSplit.PRACTICE})


async def test_no_turn_shows_a_task_or_its_answer(habitus: Habitus) -> None:
    names = ("brew-tea", "write-a-skill")
    paths = ("evals/tasks.toml", "evals/evals.json", "../../tasks/write-a-skill.toml", "evals", ".", "")
    asked = [
        calls("list_skills", {}),
        calls("search_skills", {"query": "forty two"}),
        *(calls("recall_skill", {"name": name}) for name in names),
        *(calls("read_skill", {"name": name, "path": path}) for name in names for path in paths),
        calls("scratchpad", {"action": "exec", "name": "p", "code": LOOK.format(home=str(habitus.settings.home))}),
        says("ok"),
    ]
    model = ScriptedModel(asked)
    async with habitus.session(model) as session:
        await session.turn("brew tea")
    seen = repr(model.asked)
    assert "found []" in seen
    assert ANSWER not in seen
    with habitus.turn("brew tea", conversation="theirs") as turn:
        assert ANSWER not in repr([turn.run("recall_skill", {"name": name}).content for name in names])
        turn.done("", ok=True)


async def test_no_rollout_has_a_task_before_it(habitus: Habitus) -> None:
    look = calls("scratchpad", {"action": "exec", "name": "p", "code": LOOK.format(home=str(habitus.settings.home))})
    model = ScriptedModel(lambda ask: _look_once(ask, look))
    tree = habitus.skills.read_tree("brew-tea")
    async with open_temporary_home_with_skill(habitus, "brew-tea", tree) as apart:
        task = _task("beside")
        planned = Rollout(skill="brew-tea", run="r1", side=TaskSplit.GATE, round=0, task=task.id, is_new=False)
        done = await run_own_agent_rollout(apart, task, planned, RunBudget().wrap_model(model), source_type="trial")
    assert "found []" in done.record
    assert ANSWER not in repr(model.asked)


def _look_once(ask: CompletionRequest, look: ScriptStep) -> ScriptStep:
    return look if len(ask.messages) == 1 else says("I don't know.")


@pytest.mark.full
def test_who_only_reads_over_rest_or_gets_the_practice_reads_no_answer(habitus: Habitus) -> None:
    token = open_user_accounts(habitus).add_or_reinvite_user("eve", UserRole.VIEWER).token
    desks = HomePool(habitus)
    app = make_web_app(desks, load_sign_in_service(habitus), {"localhost:8765"}, app=standing())
    client = TestClient(app, base_url="http://localhost:8765", headers={"Authorization": f"Bearer {token}"})
    given = {"name": "brew-tea", "id": "1", "path": TASKS_FILE, "version": "1", "number": "1"}
    routes = [path for path, ways in client.get("/api/v1/openapi.json").json()["paths"].items() if "get" in ways]
    assert "/api/v1/skills/{name}/tasks" in routes
    answers = {}
    for route in routes:
        is_about_skills = "{" in route or route.endswith(("skills", "review", "lessons", "sessions", "jobs"))
        if is_about_skills and "stream" not in route and "events" not in route:
            got = client.get(route.format_map(_Filled(given)))
            answers[route] = got.text if got.status_code == 200 else ""
    reviewer = {
        "Authorization": f"Bearer {open_user_accounts(habitus).add_or_reinvite_user('bob', UserRole.REVIEWER).token}"
    }
    approved = client.post("/api/v1/review/1/approve", headers=reviewer)
    desks.close()
    assert (approved.status_code, "people who may read tasks" in approved.text) == (409, True)
    assert "How tea is brewed" in answers["/api/v1/skills/{name}"]
    assert [route for route, text in answers.items() if ANSWER in text] == []
    told = build_drafter_prompt_from_practice(habitus, "brew-tea")
    assert "What is practice?" in told
    assert "What is beside?" not in told
    assert ANSWER not in told


class _Filled(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "1"
