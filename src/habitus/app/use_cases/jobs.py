"""Jobs: queue work for a worker, follow, cancel and retry it, and schedule what runs by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import uploading
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import JOB_KINDS, SCHEDULED_KINDS
from habitus.app.operating.jobs import ScheduleStatus, open_queue, open_read_only_queue, submit_job
from habitus.app.use_cases.declaration import (
    EmptyPayload,
    after_option,
    argument,
    attempt_id_field,
    limit_option,
    option,
    paginate_items,
    use_case,
)
from habitus.jobs.model import Job, JobPriority, JobState


@dataclass(frozen=True, kw_only=True)
class AddJobRequest:
    kind: str = argument(f"{', '.join(JOB_KINDS)}.")
    arguments: tuple[str, ...] = argument("For learn: transcripts. For import: where from.", default=())
    priority: JobPriority = option("Priority of the job.", default=JobPriority.NORMAL)
    tokens: int | None = option("Stop after this many model tokens.", least=1, most=10**12)
    id: str = attempt_id_field()


@use_case(
    "jobs add",
    route="POST /jobs",
    access=Access.ADMIN,
    example=AddJobRequest(kind="learn", arguments=("~/.claude/projects",)),
    undo="jobs cancel",
    status=201,
    accepts_idempotency_key=True,
)
def add_job(home: Home, request: AddJobRequest) -> Job:
    """Queue a job for a worker: 'habitus worker' or 'habitus up' runs it, now or later."""
    queue = open_queue(home)
    id = submit_job(
        home,
        queue,
        request.kind,
        request.arguments,
        tokens=request.tokens,
        priority=request.priority,
        id=request.id,
    )
    return queue.get(id)


@dataclass(frozen=True, kw_only=True)
class ListJobsRequest:
    done: bool = option("Include finished jobs.", "--all", default=False)
    limit: int = limit_option()
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class JobPage:
    jobs: Sequence[Job]
    next: str | None
    total: int


@use_case("jobs list", route="GET /jobs", access=Access.VIEWER, example=ListJobsRequest(done=True))
def list_jobs(home: Home, request: ListJobsRequest) -> JobPage:
    """List the pending and running jobs, newest first."""
    queue = open_read_only_queue(home)
    ids = (
        queue.list_job_ids()
        if request.done
        else [one.id for one in queue.list_jobs() if one.state is not JobState.DONE]
    )
    page = paginate_items("jobs", ids, str, limit=request.limit, after=request.after)
    return JobPage(jobs=queue.get_jobs(page.items), next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class ListSchedulesResult:
    schedule: Sequence[ScheduleStatus]


@use_case("jobs schedule list", route="GET /jobs/schedule", access=Access.VIEWER, example=EmptyPayload())
def list_schedules(home: Home, request: EmptyPayload) -> ListSchedulesResult:
    """List what runs by itself on a worker or under 'habitus up', and when it runs next."""
    return ListSchedulesResult(schedule=jobs.list_schedules(home, open_read_only_queue(home)))


@dataclass(frozen=True, kw_only=True)
class SetScheduleRequest:
    kind: str = argument(f"{', '.join(SCHEDULED_KINDS)}.")
    schedule: str = argument("off, hourly, 'daily at 3:30' or 'weekly on sunday at 3'.")


@dataclass(frozen=True, kw_only=True)
class SetScheduleResult:
    schedule: Sequence[ScheduleStatus]
    undo: tuple[str, ...]


@use_case(
    "jobs schedule set",
    route="PUT /jobs/schedule/{kind}",
    access=Access.ADMIN,
    example=SetScheduleRequest(kind="mine", schedule="weekly on sunday at 3"),
    undo="config set",
)
def set_schedule(home: Home, request: SetScheduleRequest) -> SetScheduleResult:
    """Set when a kind of job runs by itself, or turn it off with 'off'."""
    done = jobs.set_schedule(home, request.kind, request.schedule)
    return SetScheduleResult(schedule=jobs.list_schedules(home, open_read_only_queue(home)), undo=done.undo)


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    id: str = argument("A job's id.")


@use_case("jobs show", route="GET /jobs/{id}", access=Access.VIEWER, example=JobRequest(id="53b07abe"))
def show_job(home: Home, request: JobRequest) -> Job:
    """Show one job: its input, its progress and its result."""
    return open_read_only_queue(home).get(request.id)


@use_case(
    "jobs cancel",
    route="POST /jobs/{id}/cancel",
    access=Access.ADMIN,
    example=JobRequest(id="53b07abe"),
    undo="jobs retry",
)
def cancel_job(home: Home, request: JobRequest) -> Job:
    """Cancel a job before its next part; finished parts stay. 'retry' resumes it, but an upload must be sent again."""
    job = open_queue(home).cancel(request.id)
    # Nothing else removes the uploaded file once no worker will import it.
    uploading.discard_upload(home.settings, job)
    return job


@use_case(
    "jobs retry",
    route="POST /jobs/{id}/retry",
    access=Access.ADMIN,
    example=JobRequest(id="53b07abe"),
    undo="jobs cancel",
)
def retry_job(home: Home, request: JobRequest) -> Job:
    """Resume a job that failed, was cancelled or needs attention, from the part it had reached."""
    return open_queue(home).retry(request.id)
