"""`habitus jobs …` and `habitus worker`: what was left for later, and doing it."""

from __future__ import annotations

import signal
import threading
from typing import Annotated, Any

import typer

from habitus.app import jobs
from habitus.app.job_kinds import BY_HAND
from habitus.cli import moments, output
from habitus.cli.opening import opened
from habitus.cli.options import AsJson
from habitus.jobs.model import Job, JobState

Id = Annotated[str, typer.Argument(help="A job's id.")]


def add(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help=f"{', '.join(BY_HAND)}.")],
    words: Annotated[list[str] | None, typer.Argument(help="For learn: transcripts. For import: where from.")] = None,
    as_json: AsJson = False,
) -> None:
    """Leave something to a worker: 'habitus worker' does it, now or later."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        _print(queue.get(jobs.leave(queue, kind, words or ())), as_json)


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


def show(context: typer.Context, id: Id, as_json: AsJson = False) -> None:
    """One job: what it was given, how far it is, and what it came to."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        _print(queue.get(id), as_json)


def cancel(context: typer.Context, id: Id, as_json: AsJson = False) -> None:
    """End a job before its next part; what is done stays done. 'retry' goes on with it."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        _print(queue.cancel(id), as_json)


def retry(context: typer.Context, id: Id, as_json: AsJson = False) -> None:
    """Go on with a job that failed, was cancelled or was parked, from the part it had come to."""
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        _print(queue.retry(id), as_json)


def worker(
    context: typer.Context,
    concurrency: Annotated[int, typer.Option(help="Jobs at a time.", min=1, max=64)] = 1,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when no job waits or runs.")] = False,
) -> None:
    """Do jobs until interrupted, those of workers that died as well; the next worker goes on where this one stops."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with opened(context) as habitus, jobs.opened_queue(habitus) as queue:
        with jobs.at_work(habitus, queue, concurrency=concurrency) as name:
            output.say(f"Worker {name} does jobs; Ctrl-C ends it.")
            while not stopped.wait(0.5):
                if until_idle and all(job.state.is_over for job in queue.all()):
                    break
        left = [job for job in queue.all() if not job.state.is_over]
    output.say("All is done." if not left else f"{output.counted(len(left), 'job')} left for the next worker.")


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


def _added(job: Job) -> str:
    return moments.shown(job.added_on) if job.added_on else ""
