"""The Jobs page: leaving work, seeing how far it is, ending it and trying it again."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import ASGIApp

from habitus.agent.history import encode_message_for_journal
from habitus.agent.recording.outcomes import build_full_weight_outcome
from habitus.app import Habitus
from habitus.app.operating import jobs
from habitus.app.operating.people import UserRole, open_user_accounts
from habitus.app.use_cases import tasks
from habitus.events import OutcomeKind
from habitus.jobs.model import JobConcurrencyLimits, JobState
from habitus.jobs.queue import WorkerQueueClient
from habitus.jobs.worker import WorkerConfig, run_worker_until_block_ends
from habitus.journal.model import JudgementSourceKind, SelectedSkill, SkillPlacementKind, Turn
from habitus.llm.model import AssistantMessage
from habitus.web import labels
from tests.web.conftest import HOST


@pytest.mark.req("CL-02")
def test_a_job_is_left_followed_ended_and_tried_again(browser: TestClient, habitus: Habitus) -> None:
    assert "No jobs." in browser.get("/automation").text
    page = browser.post("/automation", data={"kind": "curate"}).text
    assert "pending" in page
    queue = jobs.open_job_queue(habitus)
    (job,) = queue.list_jobs()
    ended = browser.post(f"/automation/{job.id}/cancel").text
    assert "Cancelling; it stops before its next part." in ended
    assert queue.get(job.id).state is JobState.CANCELLED
    assert "Queued again; it continues where it stopped." in browser.post(f"/automation/{job.id}/retry").text
    assert queue.get(job.id).state is JobState.PENDING
    missing = browser.post("/automation", data={"kind": "import"}, headers={"HX-Request": "true"})
    assert (missing.status_code, "Say where from" in missing.text) == (422, True)


@pytest.mark.req("CL-02")
def test_a_skill_gets_tasks_and_a_run_on_its_page(browser: TestClient, habitus: Habitus) -> None:
    page = browser.get("/skills/brew-tea?tab=improve").text
    assert ("It has no tasks yet." in page, "habitus tasks" in page, "Start it" in page) == (True, False, False)
    assert "No recurring requests" in browser.post("/skills/brew-tea/tasks/mine").text
    for number in range(8):
        task = {"asked": f"Brew tea number {number}", "expect": "boil"}
        page = browser.post("/skills/brew-tea/tasks", data=task).text
    assert ("Task added." in page, "It has 8 tasks: " in page) == (True, True)
    browser.post("/undo", data={"undo": re.findall(r'name="undo" value="([^"]+)"', page)})
    assert "It has 7 tasks: " in browser.get("/skills/brew-tea?tab=improve").text
    wrong = browser.post("/skills/brew-tea/improve", data={"budget": "much"}, headers={"HX-Request": "true"})
    assert wrong.status_code == 422
    assert "Queued for the next free worker" in browser.post("/skills/brew-tea/improve", data={"budget": "30m"}).text
    assert [job.kind for job in jobs.open_job_queue(habitus).list_jobs()] == ["improve"]


@pytest.mark.req("IM-02")
def test_accepted_requests_are_ticked_to_become_tasks(browser: TestClient, habitus: Habitus) -> None:
    for number in range(3):
        turn = Turn(
            id=f"m{number}",
            session=f"m{number}",
            request=f"How long does tea number {number} take?",
            started_on=habitus.clock(),
            ended_on=habitus.clock(),
            user=habitus.settings.user,
            messages=(encode_message_for_journal(AssistantMessage(text=f"It takes {number + 2}30 seconds.")),),
            selected=(SelectedSkill(name="brew-tea", place=SkillPlacementKind.LOADED, reason="asked for"),),
            outcomes=(build_full_weight_outcome(OutcomeKind.OK, "user", JudgementSourceKind.PERSON),),
        )
        habitus.journal.record_complete_turn(turn)
    page = browser.post("/skills/brew-tea/tasks/mine").text
    assert f"3 tasks from accepted requests of {habitus.clock():%B %Y}" in page
    assert "done in 3 turns of 3 sessions, on " in page
    assert ("asked as “How long does tea number 0 take?”" in page, "the reply contains “330”" in page) == (True, True)
    ids = re.findall(r'name="ids" value="([^"]+)"', page)
    page = browser.post("/skills/brew-tea/tasks/mine", data={"ids": ids[:2]}).text
    assert ("2 tasks added." in page, "It has 2 tasks" in page) == (True, True)
    browser.post("/undo", data={"undo": re.findall(r'name="undo" value="([^"]+)"', page)})
    page = browser.get("/skills/brew-tea?tab=improve").text
    assert "It has no tasks yet." in page
    (button,) = re.findall(r'name="source" value="(transcripts)">Find tasks in transcripts', page)
    assert "No recurring requests" in browser.post("/skills/brew-tea/tasks/mine", data={"source": button}).text


@pytest.mark.req("IM-02", "CL-02")
def test_drafted_tasks_are_ticked_on_the_page_of_their_skill(browser: TestClient, habitus: Habitus) -> None:
    assert "the drafts will appear here to be ticked" in browser.post("/skills/brew-tea/tasks/drafts").text
    (job,) = jobs.open_job_queue(habitus).list_jobs()
    assert (job.kind, job.arguments["skill"]) == ("draft-tasks", "brew-tea")
    drafts = "".join(f'[[task]]\nrequest = "Brew {n}."\nexpect = "boil{n}"\n' for n in "abc")
    tasks.draft_tasks(habitus, tasks.DraftTasksRequest(name="brew-tea", tasks=drafts))
    page = browser.get("/skills/brew-tea?tab=improve").text
    assert ("3 tasks drafted from its text" in page, "It has no tasks yet." in page) == (True, True)
    ids = re.findall(r'name="ids" value="([^"]+)"', page)
    page = browser.post("/skills/brew-tea/tasks/pending", data={"proposal": "1", "ids": ids[:2]}).text
    assert ("2 tasks added." in page, "It has 2 tasks" in page) == (True, True)
    assert "drafted from its text" not in page
    assert [task.id for task in tasks.list_tasks(habitus, "brew-tea").tasks] == ids[:2]
    assert "No task whose answer can be recomputed." in (
        browser.post("/skills/brew-tea/tasks/mine", data={"source": "variants"}).text
    )


@pytest.mark.req("CL-02")
def test_time_left_counts_from_when_its_worker_began(browser: TestClient, habitus: Habitus) -> None:
    queue = jobs.open_job_queue(habitus)
    id = queue.add_job("curate", {})
    with habitus.shared.begin() as connection:  # it waited for three days
        connection.exec_driver_sql("UPDATE jobs SET added_on = added_on - 259200000")
    first, second = (WorkerQueueClient(habitus.shared, worker) for worker in ("first", "second"))
    (job,) = first.claim_jobs(["curate"], max_count=1, limits=JobConcurrencyLimits())
    first.save_planned_parts(job, json.dumps([1, 2, 3]))
    assert labels.describe_job_time_left(queue.get(id)) == ""
    first.save_part_result(job, 0, "null")
    assert labels.describe_job_time_left(queue.get(id)) == "about 1 minute left"
    first.release_jobs_and_unregister_worker()
    (job,) = second.claim_jobs(["curate"], max_count=1, limits=JobConcurrencyLimits())
    assert labels.describe_job_time_left(queue.get(id)) == ""  # nobody knows how quick this one is
    second.save_part_result(job, 1, "null")
    assert "about 1 minute left" in browser.get("/automation").text


class Waiting:
    """Work that says when it has begun, and waits until it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        return [1]

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        self.begun.set()
        self.may_end.wait()

    def summarize_results(self, results: Sequence[Any]) -> Any:
        return None


@pytest.mark.req("OP-08", "CL-02")
def test_workers_are_listed_with_what_they_run_to_admins(
    app: ASGIApp, api: TestClient, browser: TestClient, habitus: Habitus
) -> None:
    work = Waiting()
    id = jobs.open_job_queue(habitus).add_job("curate", {})
    assert "Waits for a worker: none is running." in browser.get("/automation").text
    with run_worker_until_block_ends(habitus.shared, {"curate": work}, WorkerConfig()) as name:
        work.begun.wait()
        (worker,) = api.get("/api/v1/jobs/workers").json()["workers"]
        assert (worker["name"], worker["jobs"], worker["version"]) == (name, [id], version("habitus"))
        page = browser.get("/automation").text
        assert (name in page, "1 job" in page) == (True, True)
        token = open_user_accounts(habitus).add_or_reinvite_user("eve", UserRole.REVIEWER).token
        eve = TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {token}"})
        assert eve.get("/api/v1/jobs/workers").status_code == 403
        assert name not in eve.get("/automation").text
        work.may_end.set()
    assert api.get("/api/v1/jobs/workers").json()["workers"] == []


@pytest.mark.req("CL-04")
@pytest.mark.parametrize(
    ("kind", "source"),
    [("import", "/etc"), ("import", "postgresql://127.0.0.1:1/x"), ("learn", "~/.claude"), ("learn", "")],
)
def test_which_files_and_databases_are_read_is_not_for_an_admin_of_the_page(
    app: ASGIApp, habitus: Habitus, kind: str, source: str
) -> None:
    token = open_user_accounts(habitus).add_or_reinvite_user("eve", UserRole.ADMIN).token
    eve = TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {token}"})
    refused = eve.post("/api/v1/jobs", json={"kind": kind, "arguments": source.split()})
    assert (refused.status_code, "owner" in refused.json()["title"]) == (409, True), refused.text
    assert eve.post("/automation", data={"kind": kind, "words": source}).status_code == 409
    assert jobs.open_job_queue(habitus).list_jobs() == []
    page = eve.get("/automation").text
    assert ("<textarea" in page, 'id="k-learn"' in page, 'id="k-curate"' in page) == (False, False, True)
    assert eve.post("/api/v1/jobs", json={"kind": "curate"}).status_code == 201


@pytest.mark.req("IM-04", "CL-04")
def test_a_program_of_this_machine_solves_for_its_owner_alone(api: TestClient, app: ASGIApp, habitus: Habitus) -> None:
    token = open_user_accounts(habitus).add_or_reinvite_user("eve", UserRole.ADMIN).token
    eve = TestClient(app, base_url=f"http://{HOST}", headers={"Authorization": f"Bearer {token}"})
    asked = {"solver": "claude-code:opus", "shorter": True}
    refused = eve.post("/api/v1/skills/brew-tea/improvements", json=asked)
    assert (refused.status_code, "owner" in refused.json()["title"]) == (409, True), refused.text
    wrong = api.post("/api/v1/skills/brew-tea/improvements", json={"solver": "knitter"})
    assert (wrong.status_code, wrong.json()["title"]) == (422, "'knitter' solves no tasks."), wrong.text
    assert jobs.open_job_queue(habitus).list_jobs() == []
    # The owner gets past the rule about programs, to the next reason: this skill has no tasks.
    left = api.post("/api/v1/skills/brew-tea/improvements", json=asked)
    assert (left.status_code, left.json()["title"]) == (422, "'brew-tea' has no task for a gate."), left.text
    without = eve.post("/api/v1/skills/brew-tea/improvements", json={"shorter": True})
    assert without.json()["title"] == left.json()["title"], without.text


@pytest.mark.req("SB-14")
def test_a_password_in_an_address_is_not_kept(api: TestClient, habitus: Habitus) -> None:
    for address in ("postgresql://ann:hunter2@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x?user=ann&password=hunter2"):
        left = api.post("/api/v1/jobs", json={"kind": "import", "arguments": [address]})
        assert (left.status_code, "hunter2" in left.text) == (201, False)
    wrong = api.post("/api/v1/jobs", json={"kind": "import", "arguments": ["postgresql://ann:hunter2@h:port/x"]})
    assert (wrong.status_code, "hunter2" in wrong.text) == (422, False)
    assert "hunter2" not in api.get("/api/v1/jobs").text
    with habitus.shared.connect() as connection:
        kept = connection.exec_driver_sql("SELECT given FROM jobs").scalars().all()
    assert [("ann" in given, "hunter2" in given) for given in kept] == [(True, False), (True, False)]


@pytest.mark.req("SB-14")
def test_no_secret_of_an_address_on_the_web_is_kept_in_a_job(api: TestClient, habitus: Habitus) -> None:
    for query in (
        "token=SECRETPW",
        "v=2&api_key=SECRETPW",
        "X-Amz-Signature=SECRETPW",
        "sig=SECRETPW",
        "#key=SECRETPW",
    ):
        source = f"https://shop.example/x.zip?{query}"
        refused = api.post("/api/v1/jobs", json={"kind": "import", "arguments": [source]})
        assert (query, refused.status_code, "SECRETPW" in refused.text) == (query, 409, False)
    for login in ("SECRETPW", "ann:SECRETPW"):
        source = f"https://{login}@shop.example/x.zip?v=2&author=ben"
        left = api.post("/api/v1/jobs", json={"kind": "import", "arguments": [source]})
        assert (left.status_code, left.json()["arguments"]["source"]) == (
            201,
            "https://shop.example/x.zip?v=2&author=ben",
        )
    kept = b"".join(file.read_bytes() for file in habitus.settings.home.rglob("*.db*") if file.is_file())
    assert b"SECRETPW" not in kept
