"""The contract of killed workers: two of them, each killed at every step of the jobs they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from habitus.errors import NotFound, Refused
from habitus.jobs.model import MAX_ATTEMPTS, Job, JobConcurrencyKeys, JobState
from habitus.jobs.queue import JobQueue
from tests.jobs.conftest import Nursed
from tests.jobs.counting import begun, check, counting, queue_at, until, url


@pytest.fixture
def queue(root: Path) -> Iterator[JobQueue]:
    with queue_at(url(root)) as opened:
        yield opened


def _all_over(queue: JobQueue) -> bool:
    return all(job.state.is_over for job in queue.list_jobs())


def _add(queue: JobQueue, *deaths: str, plan: str = "", takes_s: float = 0.0) -> str:
    id = f"job-{len(queue.list_jobs())}"
    parts = [{"die": die, "takes_s": takes_s} for die in deaths]
    return queue.add_job("count", {"job": id, "parts": parts, "die": plan}, id=id)


def _check(root: Path, jobs: list[Job]) -> None:
    """What is more: only what a worker died in is begun twice."""
    check(root, jobs)
    deaths = {path.name.replace(":", "/") for path in (root / "deaths").iterdir()}
    twice = {key for key, times in Counter(begun(root)).items() if times > 1}
    assert twice <= deaths | {f"{death}/plan" for death in deaths}


@pytest.mark.req("OP-01")
def test_a_worker_killed_in_a_part_is_replaced_by_the_other(root: Path, queue: JobQueue, nursed: Nursed) -> None:
    _add(queue, "", "after", "")
    with nursed():
        until(lambda: _all_over(queue))
    _check(root, queue.list_jobs())
    assert len(list((root / "deaths").iterdir())) == 1


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_workers_killed_at_every_step_lose_nothing_and_repeat_nothing(
    root: Path, queue: JobQueue, nursed: Nursed
) -> None:
    parts = 4
    for at in range(parts):
        for die in ("before", "after"):
            _add(queue, *(die if number == at else "" for number in range(parts)))
    _add(queue, *["after"] * parts, plan="plan")
    _add(queue, *["before"] * parts)
    with nursed():
        until(lambda: _all_over(queue))
    _check(root, queue.list_jobs())
    assert len(list((root / "deaths").iterdir())) == 2 * parts + 2 * parts + 1


@pytest.mark.req("OP-01")
def test_a_worker_that_leaves_hands_over_what_it_began(root: Path, queue: JobQueue) -> None:
    ids = [_add(queue, *[""] * 20, takes_s=1.0) for _ in range(2)]
    with counting(root):
        until(lambda: any(job.parts_done for job in queue.list_jobs()))
    (root / "hurry").touch()
    left = [queue.get(id) for id in ids]
    assert {job.state for job in left} == {JobState.PENDING}  # not only when somebody finds out that it is gone
    with counting(root):
        until(lambda: _all_over(queue))
    _check(root, queue.list_jobs())


@pytest.mark.req("OP-01")
def test_a_job_that_failed_is_tried_again_from_the_part_that_failed(root: Path, queue: JobQueue) -> None:
    given: dict[str, Any] = {"job": "j", "parts": [{"die": ""}, {"die": "", "fails": True}, {"die": ""}]}
    with counting(root):
        assert queue.add_job("count", given, id="j") == queue.add_job(
            "count", given, id="j"
        )  # once, though asked for twice
        until(lambda: _all_over(queue))
        failed = queue.get("j")
        assert (failed.state, failed.parts_done, failed.parts_total) == (JobState.FAILED, 1, 3)
        assert failed.reason == "It is not fixed yet."
        (root / "fixed").touch()
        assert not queue.retry("j").state.is_over
        until(lambda: _all_over(queue))
        assert (queue.get("j").state, queue.get("j").result) == (JobState.DONE, 3)
        with pytest.raises(Refused, match="nothing to try again"):
            queue.retry("j")
    assert Counter(begun(root)) == {"j/plan": 1, "j/0": 1, "j/1": 2, "j/2": 1}


@pytest.mark.req("OP-01")
def test_a_cancelled_job_can_go_on_later(root: Path, queue: JobQueue) -> None:
    id = _add(queue, "", "")
    assert queue.cancel(id).state is JobState.CANCELLED
    with pytest.raises(Refused, match="cancelled already"):
        queue.cancel(id)
    queue.retry(id)
    with counting(root):
        until(lambda: _all_over(queue))
    assert queue.get(id).result == 2


@pytest.mark.req("OP-01")
def test_what_is_no_job_is_said_so(queue: JobQueue) -> None:
    with pytest.raises(NotFound, match="There is no job 'nothing'"):
        queue.get("nothing")
    with pytest.raises(TypeError, match="not JSON"):
        queue.add_job("count", {"parts": object()})


@pytest.mark.req("OP-01")
def test_a_kind_that_a_worker_does_not_know_is_left_to_others_and_said_once(
    root: Path, queue: JobQueue, caplog: pytest.LogCaptureFixture
) -> None:
    known, unknown = _add(queue, ""), queue.add_job("knit", {"job": "knit", "parts": [{"die": ""}]}, id="knit")
    with counting(root):
        until(lambda: queue.get(known).state.is_over)
    assert queue.get(unknown).state is JobState.PENDING
    assert caplog.text.count("Jobs of the kind 'knit' are left to other workers") == 1
    with counting(root, kinds=("knit",)):
        until(lambda: _all_over(queue))
    assert queue.get(unknown).result == 1


@pytest.mark.req("OP-01")
def test_a_part_that_fails_by_accident_is_tried_again_later_and_parked_at_last(root: Path, queue: JobQueue) -> None:
    id = queue.add_job("count", {"job": "j", "parts": [{"die": ""}, {"die": "", "stumbles": True}]}, id="j")
    with counting(root):
        until(lambda: _all_over(queue))
    parked = queue.get(id)
    assert (parked.state, parked.parts_done) == (JobState.DEAD_LETTERED, 1)
    assert parked.reason == f"OSError: The line is dead. (try {MAX_ATTEMPTS} of {MAX_ATTEMPTS})"
    assert Counter(begun(root)) == {"j/plan": 1, "j/0": 1, "j/1": MAX_ATTEMPTS}
    (root / "fixed").touch()
    assert queue.retry(id).reason == ""
    with counting(root):
        until(lambda: _all_over(queue))
    assert queue.get(id).result == 2


@pytest.mark.full
@pytest.mark.req("OP-01")
def test_a_job_that_kills_every_worker_is_parked_and_the_others_are_done(
    root: Path, queue: JobQueue, nursed: Nursed
) -> None:
    deadly, harmless = _add(queue, "", "always"), _add(queue, "", "")
    with nursed():
        until(lambda: _all_over(queue))
    assert (queue.get(deadly).state, queue.get(deadly).parts_done) == (JobState.DEAD_LETTERED, 1)
    assert queue.get(deadly).reason.endswith(f"died with it ({MAX_ATTEMPTS} of {MAX_ATTEMPTS})")
    assert queue.get(harmless).state is JobState.DONE


@pytest.mark.req("OP-01")
def test_a_job_ends_early_when_its_tokens_are_spent(root: Path, queue: JobQueue) -> None:
    id = queue.add_job("count", {"job": "j", "parts": [{"die": "", "tokens": 60}] * 4, "tokens": 100})
    with counting(root):
        until(lambda: _all_over(queue))
    assert (queue.get(id).state, queue.get(id).result) == (JobState.DONE, 2)


@pytest.mark.req("OP-01")
def test_no_more_jobs_than_allowed_ask_one_model_at_a_time(root: Path, queue: JobQueue) -> None:
    for number in range(3):
        given = {"job": f"j{number}", "parts": [{"die": ""}] * 3}
        queue.add_job("count", given, id=f"j{number}", keys=JobConcurrencyKeys(model="openai:gpt"))
    with counting(root, concurrency=3, per_model=1):
        until(lambda: _all_over(queue))
    jobs = [line.partition("/")[0] for line in begun(root)]
    assert jobs == sorted(jobs)  # one after the other, though there were hands for all
