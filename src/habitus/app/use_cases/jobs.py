"""Jobs: queue work for a worker, follow, cancel and retry it, and schedule what runs by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import uploading
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import JOB_KINDS, SCHEDULED_KINDS
from habitus.app.operating.jobs import ScheduleStatus, open_job_queue, open_read_only_queue, submit_job
from habitus.app.use_cases.declaration import (
    AttemptId,
    PageCursor,
    PageLimit,
    argument,
    option,
    paginate_items,
    use_case,
)
from habitus.jobs.model import Job, JobPriority, JobState
from habitus.jobs.worker_records import WorkerDetails

JobId = Annotated[str, argument("A job's id.")]


@use_case(
    "jobs add",
    route="POST /jobs",
    access=Access.ADMIN,
    example={"kind": "learn", "arguments": ("~/.claude/projects",)},
    undo="jobs cancel",
    status=201,
    accepts_idempotency_key=True,
)
def add_job(
    home: Home,
    kind: Annotated[str, argument(f"{', '.join(JOB_KINDS)}.")],
    arguments: Annotated[tuple[str, ...], argument("For learn: transcripts. For import: where from.")] = (),
    priority: Annotated[JobPriority, option("Priority of the job.")] = JobPriority.NORMAL,
    tokens: Annotated[int | None, option("Stop after this many model tokens.", least=1, most=10**12)] = None,
    id: AttemptId = "",
) -> Job:
    """Queue a job for a worker: 'habitus jobs work' or 'habitus up' runs it, now or later."""
    queue = open_job_queue(home)
    return queue.get(submit_job(home, queue, kind, arguments, tokens=tokens, priority=priority, id=id))


@dataclass(frozen=True, kw_only=True)
class JobPage:
    jobs: Sequence[Job]
    next: str | None
    total: int


@use_case("jobs list", route="GET /jobs", access=Access.VIEWER, example={"done": True})
def list_jobs(
    home: Home,
    done: Annotated[bool, option("Include finished jobs.", "--all")] = False,
    limit: PageLimit = 100,
    after: PageCursor = "",
) -> JobPage:
    """List the pending and running jobs, newest first."""
    queue = open_read_only_queue(home)
    ids = queue.list_job_ids() if done else [one.id for one in queue.list_jobs() if one.state is not JobState.DONE]
    page = paginate_items("jobs", ids, str, limit=limit, after=after)
    return JobPage(jobs=queue.get_jobs_by_ids(page.items), next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class ListWorkersResult:
    workers: Sequence[WorkerDetails]


@use_case("jobs workers", route="GET /jobs/workers", access=Access.ADMIN)
def list_workers(home: Home) -> ListWorkersResult:
    """List the workers: host, version, last sign of life, and the jobs that each runs."""
    return ListWorkersResult(workers=open_read_only_queue(home).list_workers())


@dataclass(frozen=True, kw_only=True)
class ListSchedulesResult:
    schedule: Sequence[ScheduleStatus]


@use_case("jobs schedule", route="GET /jobs/schedule", access=Access.VIEWER)
def list_schedules(home: Home) -> ListSchedulesResult:
    """List what runs by itself on a worker or under 'habitus up', and when it runs next."""
    return ListSchedulesResult(schedule=jobs.list_schedules(home, open_read_only_queue(home)))


@dataclass(frozen=True, kw_only=True)
class SetScheduleResult:
    schedule: Sequence[ScheduleStatus]
    undo: tuple[str, ...]


@use_case(
    "jobs schedule set",
    route="PUT /jobs/schedule/{kind}",
    access=Access.ADMIN,
    example={"kind": "mine", "schedule": "weekly on sunday at 3"},
    undo="config set",
)
def set_schedule(
    home: Home,
    kind: Annotated[str, argument(f"{', '.join(SCHEDULED_KINDS)}.")],
    schedule: Annotated[str, argument("off, hourly, 'daily at 3:30' or 'weekly on sunday at 3'.")],
) -> SetScheduleResult:
    """Set when a kind of job runs by itself, or turn it off with 'off'."""
    done = jobs.set_schedule(home, kind, schedule)
    return SetScheduleResult(schedule=jobs.list_schedules(home, open_read_only_queue(home)), undo=done.undo)


@use_case("jobs show", route="GET /jobs/{id}", access=Access.VIEWER, example={"id": "53b07abe"})
def show_job(home: Home, id: JobId) -> Job:
    """Show one job: its input, its progress and its result."""
    return open_read_only_queue(home).get(id)


@use_case(
    "jobs cancel", route="POST /jobs/{id}/cancel", access=Access.ADMIN, example={"id": "53b07abe"}, undo="jobs retry"
)
def cancel_job(home: Home, id: JobId) -> Job:
    """Cancel a job before its next part; finished parts stay. 'retry' resumes it, but an upload must be sent again."""
    job = open_job_queue(home).cancel(id)
    # Nothing else removes the uploaded file once no worker will import it.
    uploading.discard_upload(home.settings, job)
    return job


@use_case(
    "jobs retry", route="POST /jobs/{id}/retry", access=Access.ADMIN, example={"id": "53b07abe"}, undo="jobs cancel"
)
def retry_job(home: Home, id: JobId) -> Job:
    """Resume a job that failed, was cancelled or needs attention, from the part it had reached."""
    return open_job_queue(home).retry(id)
