"""Jobs: queue work for a worker, follow, cancel and retry it, and schedule what runs by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from habitus.access import Access
from habitus.app.home import Home
from habitus.app.library import uploading
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import KINDS, SCHEDULED
from habitus.app.operating.jobs import Scheduled, leave, open_queue, read_queue
from habitus.app.use_cases.declaration import (
    Nothing,
    after_option,
    argument,
    attempt_id,
    limit_option,
    option,
    page_of,
    use_case,
)
from habitus.jobs.model import Job, JobState, Priority


@dataclass(frozen=True, kw_only=True)
class NewJob:
    kind: str = argument(f"{', '.join(KINDS)}.")
    words: tuple[str, ...] = argument("For learn: transcripts. For import: where from.", default=())
    priority: Priority = option("Which waits least.", default=Priority.NORMAL)
    tokens: int | None = option("End it when its models took so many.", least=1, most=10**12)
    id: str = attempt_id()


@use_case(
    "jobs add",
    route="POST /jobs",
    access=Access.ADMIN,
    example=NewJob(kind="learn", words=("~/.claude/projects",)),
    undo="jobs cancel",
    status=201,
    is_once=True,
)
def add(home: Home, wanted: NewJob) -> Job:
    """Queue a job for a worker: 'habitus worker' or 'habitus up' runs it, now or later."""
    queue = open_queue(home)
    id = leave(
        home.settings,
        queue,
        wanted.kind,
        wanted.words,
        tokens=wanted.tokens,
        priority=wanted.priority,
        id=wanted.id,
    )
    return queue.get(id)


@dataclass(frozen=True, kw_only=True)
class JobList:
    done: bool = option("Those that are done, too.", "--all", default=False)
    limit: int = limit_option()
    after: str = after_option()


@dataclass(frozen=True, kw_only=True)
class JobPage:
    jobs: Sequence[Job]
    next: str | None
    total: int


@use_case("jobs list", route="GET /jobs", access=Access.VIEWER, example=JobList(done=True))
def list_jobs(home: Home, wanted: JobList) -> JobPage:
    """List the pending and running jobs, newest first."""
    queue = read_queue(home)
    ids = queue.ids() if wanted.done else [one.id for one in queue.all() if one.state is not JobState.DONE]
    page = page_of("jobs", ids, str, limit=wanted.limit, after=wanted.after)
    return JobPage(jobs=queue.some(page.items), next=page.next, total=page.total)


@dataclass(frozen=True, kw_only=True)
class ScheduledJobs:
    schedule: Sequence[Scheduled]


@use_case("jobs schedule list", route="GET /jobs/schedule", access=Access.VIEWER, example=Nothing())
def list_scheduled(home: Home, wanted: Nothing) -> ScheduledJobs:
    """List what runs by itself on a worker or under 'habitus up', and when it runs next."""
    return ScheduledJobs(schedule=jobs.list_schedules(home, read_queue(home)))


@dataclass(frozen=True, kw_only=True)
class NewTimes:
    kind: str = argument(f"{', '.join(SCHEDULED)}.")
    when: str = argument("off, hourly, 'daily at 3:30' or 'weekly on sunday at 3'.")


@dataclass(frozen=True, kw_only=True)
class Rescheduled:
    schedule: Sequence[Scheduled]
    undo: tuple[str, ...]


@use_case(
    "jobs schedule set",
    route="PUT /jobs/schedule/{kind}",
    access=Access.ADMIN,
    example=NewTimes(kind="mine", when="weekly on sunday at 3"),
    undo="config set",
)
def set_schedule(home: Home, wanted: NewTimes) -> Rescheduled:
    """Set when a kind of job runs by itself, or turn it off with 'off'."""
    done = jobs.set_schedule(home, wanted.kind, wanted.when)
    return Rescheduled(schedule=jobs.list_schedules(home, read_queue(home)), undo=done.undo)


@dataclass(frozen=True, kw_only=True)
class OneJob:
    id: str = argument("A job's id.")


@use_case("jobs show", route="GET /jobs/{id}", access=Access.VIEWER, example=OneJob(id="53b07abe"))
def show(home: Home, wanted: OneJob) -> Job:
    """Show one job: its input, its progress and its result."""
    return read_queue(home).get(wanted.id)


@use_case(
    "jobs cancel", route="POST /jobs/{id}/cancel", access=Access.ADMIN, example=OneJob(id="53b07abe"), undo="jobs retry"
)
def cancel(home: Home, wanted: OneJob) -> Job:
    """Cancel a job before its next part; finished parts stay. 'retry' resumes it, but an upload must be sent again."""
    job = open_queue(home).cancel(wanted.id)
    # Nothing else removes the uploaded file once no worker will import it.
    uploading.drop(home.settings, job)
    return job


@use_case(
    "jobs retry", route="POST /jobs/{id}/retry", access=Access.ADMIN, example=OneJob(id="53b07abe"), undo="jobs cancel"
)
def retry(home: Home, wanted: OneJob) -> Job:
    """Resume a job that failed, was cancelled or needs attention, from the part it had reached."""
    return open_queue(home).retry(wanted.id)
