"""What starts by itself: once for each time it is due, whoever looks and whatever the clocks do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from habitus.app import Habitus, read_settings
from habitus.app.learning.improve_store import open_improve_store
from habitus.app.learning.reporting import MonthlyLearningCost, ReportMonth, build_monthly_learning_report
from habitus.app.operating import jobs
from habitus.app.operating.jobs import Scheduler
from habitus.errors import Invalid
from habitus.files import build_tree_file
from habitus.jobs.model import JobState
from habitus.jobs.queue import JobQueue
from habitus.settings import ScheduleSettings, Settings
from habitus.skills.trees import TASKS_FILE
from habitus.tasks.checks import ReplyMatchesPatternCheck
from habitus.tasks.files import serialize_tasks
from habitus.tasks.model import Task
from tests.jobs.counting import until

_NIGHT = datetime(2026, 3, 29, 2, 59, tzinfo=UTC)


class Clock:
    now = _NIGHT

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def habitus_clock(clock: Clock) -> Clock:
    return clock


@pytest.fixture
def habitus_settings(home: Path, tmp_path: Path) -> Settings:
    (home / "habitus.toml").write_text(
        '[schedule]\ncurate = "daily at 3"\nlearn = "off"\nmine = "off"\ntimezone = "UTC"\n'
    )
    return read_settings(home, {"HOME": str(tmp_path), "USER": "ann"})


@pytest.fixture
def queue(habitus: Habitus) -> JobQueue:
    return jobs.open_job_queue(habitus)


@pytest.mark.req("OP-01")
def test_two_schedulers_start_a_job_once_and_a_clock_that_goes_back_starts_none_again(
    habitus: Habitus, queue: JobQueue, clock: Clock
) -> None:
    two = [Scheduler(habitus, queue) for _ in range(2)]
    assert [each.add_due_jobs() for each in two] == [[], []]  # not last night's
    clock.now += timedelta(minutes=2)
    for each in two:
        each.add_due_jobs()
    assert [job.id for job in queue.list_jobs()] == ["scheduled-curate-ann-2026-03-29"]
    clock.now -= timedelta(days=1)
    for each in two:
        each.add_due_jobs()
    clock.now += timedelta(days=1)
    for each in (*two, Scheduler(habitus, queue)):
        each.add_due_jobs()
    assert len([job for job in queue.list_jobs() if job.id == "scheduled-curate-ann-2026-03-29"]) == 1
    assert len(queue.list_jobs()) <= 2  # of the night that the wrong clock told


@pytest.mark.req("OP-01")
def test_a_night_that_everybody_slept_through_is_made_up_for_once(
    habitus: Habitus, queue: JobQueue, clock: Clock
) -> None:
    first = Scheduler(habitus, queue)
    clock.now += timedelta(minutes=2)
    first.add_due_jobs()
    clock.now += timedelta(days=3, hours=6)
    assert Scheduler(habitus, queue).add_due_jobs() == ["scheduled-curate-ann-2026-04-01"]
    assert len(queue.list_jobs()) == 2


@pytest.mark.req("OP-01")
def test_jobs_that_were_over_long_ago_are_forgotten_and_those_that_wait_are_not(
    habitus: Habitus, queue: JobQueue, clock: Clock
) -> None:
    over, waiting = (jobs.submit_job(habitus, queue, "index") for _ in range(2))
    queue.cancel(over)
    scheduler = Scheduler(habitus, queue)
    clock.now = datetime.now(UTC) + timedelta(days=29)  # the engine has the time of the machine
    scheduler.add_due_jobs()
    assert {over, waiting} < {job.id for job in queue.list_jobs()}
    clock.now += timedelta(days=2)
    scheduler.add_due_jobs()
    assert over not in {job.id for job in queue.list_jobs()}
    assert waiting in {job.id for job in queue.list_jobs()}


@pytest.mark.req("IM-07", "IM-08", "OP-01")
def test_switched_off_nothing_starts_by_itself_and_the_month_costs_nothing(
    habitus: Habitus, queue: JobQueue, clock: Clock
) -> None:
    scheduler = Scheduler(habitus, queue)
    for kind in set(ScheduleSettings.model_fields) - {"timezone"}:
        jobs.set_schedule(habitus, kind, "off")
    for _ in range(8):
        clock.now += timedelta(days=1)
        assert scheduler.add_due_jobs() == []
    assert not queue.list_jobs()
    month = build_monthly_learning_report(habitus, ReportMonth.parse("", clock.now), None)
    assert month.cost == MonthlyLearningCost(
        rollouts=0, tokens=0, dollars=0.0, draft_tokens=0, budget_tokens=0, decisions=0
    )


@pytest.mark.req("OP-01")
def test_a_time_zone_that_does_not_exist_is_said_in_a_line(habitus: Habitus, queue: JobQueue) -> None:
    schedule = habitus.settings.schedule.model_copy(update={"timezone": "Mars/Olympus"})
    there = habitus.settings.model_copy(update={"schedule": schedule})
    with Habitus.open(there) as opened, pytest.raises(Invalid, match="no time zone 'Mars/Olympus'"):
        Scheduler(opened, queue)


@pytest.mark.full
@pytest.mark.req("IM-04", "OP-01")
def test_skills_are_improved_at_night_within_the_tokens_of_the_day_and_not_while_paused(
    home: Path, tmp_path: Path, clock: Clock
) -> None:
    script = tmp_path / "model.json"
    script.write_text(json.dumps([{"say": "Altberg"}] * 99))
    skill = {
        "SKILL.md": build_tree_file(b"---\nname: name-a-town\ndescription: Names a town.\n---\n1. Say its name.\n")
    }
    tasks = [
        Task(id=f"t{n}", request=f"Town {n:03}?", checks=(ReplyMatchesPatternCheck(pattern="^[A-Z]+$"),))
        for n in range(20)
    ]
    (home / "habitus.toml").write_text(
        f'model = "script:{script}"\nlearning_tokens = 15000\n'
        '[schedule]\ncurate = "off"\nlearn = "off"\nimprove = "daily at 3"\ntimezone = "UTC"\n'
    )
    with Habitus.open(read_settings(home, {"HOME": str(tmp_path), "USER": "ann"}), clock=clock) as habitus:
        habitus.skills.write_tree(
            "user",
            "name-a-town",
            {**skill, TASKS_FILE: build_tree_file(serialize_tasks(tasks).encode())},
            habitus.build_author(),
        )
        queue, ledger, states = jobs.open_job_queue(habitus), open_improve_store(habitus), list[JobState]()
        with jobs.run_home_worker(habitus, queue, only=("improve",)):
            for night in ("2026-03-29", "2026-03-30"):
                clock.now += timedelta(minutes=2)
                id = f"scheduled-improve-ann-{night}"
                until(lambda: len([job for job in queue.list_jobs() if job.state.is_over]) > len(states))
                states.append(queue.get(id).state)
                habitus.pause.pause("ann")
                clock.now += timedelta(hours=23, minutes=58)
        kept = ledger.list_rollouts(skill="name-a-town")
    assert states == [JobState.DONE, JobState.FAILED]
    assert {one.run.partition("/")[0] for one in kept} == {"scheduled-improve-ann-2026-03-29"}
    assert 0 < sum(one.tokens for one in kept) <= 15_000
