"""`habitus jobs …` and `habitus worker`: what was left for later, and doing it."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.work import jobs, scheduling
from habitus.app.work.job_kinds import KINDS, SCHEDULED
from habitus.cli import config, moments, output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson
from habitus.jobs.model import Job, JobState, Priority

Id = Annotated[str, typer.Argument(help="A job's id.")]


def add(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help=f"{', '.join(KINDS)}.")],
    words: Annotated[list[str] | None, typer.Argument(help="For learn: transcripts. For import: where from.")] = None,
    priority: Annotated[Priority, typer.Option("--priority", help="Which waits least.")] = Priority.NORMAL,
    tokens: Annotated[
        int | None, typer.Option("--tokens", min=1, help="End it when its models took so many.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Leave something to a worker: 'habitus worker' or 'habitus up' does it, now or later."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        id = jobs.leave(habitus.settings, queue, kind, words or (), tokens=tokens, priority=priority)
        _print(queue.get(id), as_json)


def list_jobs(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Those that are over, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """The jobs that wait or run, the newest first."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        found = [job for job in queue.all() if every or job.state is not JobState.DONE]
        rows = [(job.id, job.kind, job.state.value, _progress(job), _added(job), job.reason) for job in found]
        empty = "There are no jobs." if every else "No job waits or runs. See --all."
        output.listed(as_json, {"jobs": found}, ("id", "kind", "state", "done", "added", "why"), rows, empty=empty)


def show(
    context: typer.Context,
    id: Id,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is over.")] = False,
    as_json: AsJson = False,
) -> None:
    """One job: what it was given, how far it is, and what it came to."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        if follow:
            asyncio.run(_followed(habitus, id, as_json))
        else:
            _print(queue.get(id), as_json)


async def _followed(habitus: Habitus, id: str, as_json: bool) -> None:
    """A line, or JSON, whenever it got on."""
    async for (job,) in jobs.follow(habitus, id):
        if as_json or job.state.is_over:
            _print(job, as_json)
        else:
            output.say(f"{job.state.value}, {_progress(job)}")


def cancel(context: typer.Context, id: Id, as_json: AsJson = False) -> None:
    """End a job before its next part; what is done stays done. 'retry' goes on with it."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        _print(queue.cancel(id), as_json)


def retry(context: typer.Context, id: Id, as_json: AsJson = False) -> None:
    """Go on with a job that failed, was cancelled or was parked, from the part it had come to."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        _print(queue.retry(id), as_json)


def list_scheduled(context: typer.Context, as_json: AsJson = False) -> None:
    """What starts by itself where a worker or 'habitus up' runs, and when it does so next."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        found = scheduling.scheduled(habitus, queue)
    rows = [(each.kind, each.when, moments.shown(each.next_on), _last(each.last)) for each in found]
    output.listed(as_json, {"schedule": found}, ("kind", "when", "next", "last"), rows, empty="")


def set_schedule(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help=f"{', '.join(SCHEDULED)}.")],
    when: Annotated[str, typer.Argument(help="off, hourly, 'daily at 3:30' or 'weekly on sunday at 3'.")],
    as_json: AsJson = False,
) -> None:
    """Say when a kind of job starts by itself; the same as 'habitus config set schedule.KIND'."""
    config.put(context, f"schedule.{kind}", when, as_json)


def worker(
    context: typer.Context,
    concurrency: Annotated[int, typer.Option(help="Jobs at a time.", min=1, max=64)] = 1,
    queues: Annotated[
        str, typer.Option("--queues", help=f"Only these kinds, with commas between, of {', '.join(KINDS)}.")
    ] = "",
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when no job waits or runs.")] = False,
) -> None:
    """Do jobs until interrupted, those of workers that died as well; the next worker goes on where this one stops."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    only = tuple(part.strip() for part in queues.split(",") if part.strip())
    with opened(context) as habitus, jobs.opened_queue(habitus, concurrency=concurrency) as queue:
        with jobs.at_work(habitus, queue, concurrency=concurrency, only=only) as name:
            output.say(f"Worker {name} does jobs; Ctrl-C ends it.")
            while not stopped.wait(0.5):
                if until_idle and jobs.is_idle(habitus.settings, queue, only):
                    break
        left = queue.left()
    output.say("All is done." if not left else f"{output.counted(left, 'job')} left for the next worker.")


def _print(job: Job, as_json: bool) -> None:
    if as_json:
        output.print_json(job)
        return
    output.say(f"{job.id}  {job.kind}, {job.state.value}{f': {job.reason}' if job.reason else ''}")
    output.say(f"Done: {_progress(job)}. Added {_added(job)}.")
    for label, told in (("Given", job.given), ("Result", job.result)):
        if told:
            output.say(f"{label}: {_told(told)}")


def _told(values: Any) -> str:
    if not isinstance(values, dict):
        return str(values)
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _progress(job: Job) -> str:
    return "not begun" if job.of is None else f"{job.done} of {output.counted(job.of, 'part')}"


def _last(job: Job | None) -> str:
    return "" if job is None else f"{job.id}, {job.state.value}"


def _added(job: Job) -> str:
    return moments.shown(job.added_on) if job.added_on else ""
