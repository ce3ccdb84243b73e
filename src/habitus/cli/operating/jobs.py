"""`habitus jobs …` and `habitus worker`: renders jobs, follows one, and runs a worker."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import KINDS
from habitus.app.use_cases import jobs as cases
from habitus.app.use_cases.declaration import Nothing
from habitus.app.use_cases.jobs import JobList, JobPage, NewJob, NewTimes, OneJob, Rescheduled, ScheduledJobs
from habitus.cli import inputs, output
from habitus.cli.completion import AsJson
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import finish
from habitus.jobs.model import Job


def add(context: typer.Context, wanted: NewJob | OneJob, job: Job) -> None:
    output.say(f"{job.id}  {job.kind}, {job.state.value}{f': {job.reason}' if job.reason else ''}")
    output.say(f"Done: {_progress(job)}. Added {_added_at(job)}.")
    for label, told in (("Given", job.given), ("Result", job.result)):
        if told:
            output.say(f"{label}: {_describe_values(told)}")


# All three return a job, and show it alike.
cancel = retry = add


def list_jobs(context: typer.Context, wanted: JobList, done: JobPage) -> None:
    rows = [(job.id, job.kind, job.state.value, _progress(job), _added_at(job), job.reason) for job in done.jobs]
    empty = "There are no jobs." if wanted.done else "No job waits or runs. See --all."
    output.rows_or(empty, ("id", "kind", "state", "done", "added", "why"), rows)
    output.say_more(len(rows), done.total, done.next)


def show(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="A job's id.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a job: its input, progress and result."""
    with open_habitus(context) as habitus:
        wanted = OneJob(id=id)
        if follow:
            asyncio.run(_follow(context, habitus, wanted, as_json))
        else:
            finish(context, wanted, cases.show(habitus, wanted), add, as_json=as_json)


async def _follow(context: typer.Context, habitus: Habitus, wanted: OneJob, as_json: bool) -> None:
    """Print a line, or JSON, whenever the job makes progress."""
    # Following one job yields a list of exactly one.
    async for (job,) in jobs.follow(habitus, wanted.id):
        if as_json or job.state.is_over:
            finish(context, wanted, job, add, as_json=as_json)
        else:
            output.say(f"{job.state.value}, {_progress(job)}")


def list_scheduled(context: typer.Context, wanted: Nothing, done: ScheduledJobs) -> None:
    rows = [(each.kind, each.when, inputs.format_timestamp(each.next_on), _last(each.last)) for each in done.schedule]
    output.table(("kind", "when", "next", "last"), rows)


def set_schedule(context: typer.Context, wanted: NewTimes, done: Rescheduled) -> None:
    when = next(one.when for one in done.schedule if one.kind == wanted.kind)
    output.say(f"schedule.{wanted.kind} is set to {when}.")


def worker(
    context: typer.Context,
    concurrency: Annotated[int, typer.Option(help="Jobs at a time.", min=1, max=64)] = 1,
    queues: Annotated[
        str, typer.Option("--queues", help=f"Only these kinds, with commas between, of {', '.join(KINDS)}.")
    ] = "",
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when no job waits or runs.")] = False,
) -> None:
    """Run jobs until interrupted, including those of crashed workers; the next worker continues where
    this one stops.
    """
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The handler only sets a flag: a job stops between two parts and its lease is given back.
        signal.signal(number, lambda *_: stopped.set())
    only = tuple(part.strip() for part in queues.split(",") if part.strip())
    with open_habitus(context) as habitus:
        queue = jobs.open_queue(habitus, for_worker=True)
        with jobs.at_work(habitus, queue, concurrency=concurrency, only=only) as name:
            output.say(f"Worker {name} does jobs; Ctrl-C ends it.")
            # Half a second bounds how long Ctrl-C takes.
            while not stopped.wait(0.5):
                if until_idle and jobs.is_idle(habitus.settings, queue, only):
                    break
        left = queue.count_left()
    output.say("All is done." if not left else f"{output.count_of(left, 'job')} left for the next worker.")


def _describe_values(values: Any) -> str:
    if not isinstance(values, dict):
        return str(values)
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _progress(job: Job) -> str:
    """Return how many parts of a job are done."""
    return "not begun" if job.of is None else f"{job.done} of {output.count_of(job.of, 'part')}"


def _last(job: Job | None) -> str:
    return "" if job is None else f"{job.id}, {job.state.value}"


def _added_at(job: Job) -> str:
    return inputs.format_timestamp(job.added_on) if job.added_on else ""
