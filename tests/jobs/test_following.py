"""How far jobs are, told to whoever watches them, as a page does."""

from __future__ import annotations

import pytest

from habitus.app import Habitus
from habitus.app.operating import jobs
from habitus.errors import NotFound
from habitus.jobs.model import JobState


@pytest.mark.req("OP-01")
async def test_a_job_is_followed_until_it_is_over(habitus: Habitus) -> None:
    queue = jobs.open_job_queue(habitus)
    id = jobs.submit_job(habitus, queue, "curate")
    states = []
    async for (job,) in jobs.watch_jobs(habitus, id, poll_s=0.01):
        states.append(job.state)
        if not job.state.is_over:
            queue.cancel(id)
    assert states == [JobState.PENDING, JobState.CANCELLED]


@pytest.mark.req("OP-01")
async def test_all_jobs_are_followed_as_they_come(habitus: Habitus) -> None:
    queue = jobs.open_job_queue(habitus)
    known = []
    async for found in jobs.watch_jobs(habitus, poll_s=0.01):
        known.append([job.kind for job in found])
        if len(known) == 3:
            break
        jobs.submit_job(habitus, queue, "curate")
    assert known == [[], ["curate"], ["curate", "curate"]]


@pytest.mark.req("OP-01")
async def test_a_job_that_is_not_there_can_t_be_followed(habitus: Habitus) -> None:
    with pytest.raises(NotFound, match="There is no job 'nothing'"):
        await anext(jobs.watch_jobs(habitus, "nothing"))
