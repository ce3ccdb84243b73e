"""`habitus jobs …` and `habitus jobs work`: renders jobs, follows one, and runs a worker."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Annotated, Any

import typer

from habitus.app import Habitus
from habitus.app.home import DATABASE_AWAY, Home
from habitus.app.operating import jobs
from habitus.app.operating.job_kinds import JOB_KINDS
from habitus.app.use_cases import jobs as cases
from habitus.cli import inputs, output
from habitus.cli.completion import JsonOption
from habitus.cli.opening import open_habitus
from habitus.cli.use_case_commands import print_use_case_result
from habitus.errors import DatabaseUnavailable
from habitus.jobs.model import Job


def print_result_of_add_job(context: typer.Context, result: Job) -> None:
    output.print_line(
        f"{result.id}  {result.kind}, {result.state.value}{f': {why}' if (why := _explain_job_state(result)) else ''}"
    )
    output.print_line(f"Done: {_format_job_progress(result)}. Added {_format_job_added_time(result)}.")
    for label, told in (("Input", result.arguments), ("Result", result.result)):
        if told:
            output.print_line(f"{label}: {_format_name_value_pairs(told)}")


# All three return a job, and show it alike.
print_result_of_cancel_job = print_result_of_retry_job = print_result_of_add_job


def check_before_list_jobs(home: Home) -> None:
    """Raise `DatabaseUnavailable` on an offline snapshot, which has no jobs; an empty list would be wrong."""
    if home.is_offline:
        raise DatabaseUnavailable(f"{DATABASE_AWAY} It has the jobs and workers.", hint="See 'habitus doctor'.")


check_before_list_workers = check_before_list_jobs


def print_result_of_list_jobs(context: typer.Context, result: cases.JobPage, done: bool) -> None:
    rows = [
        (
            job.id,
            job.kind,
            job.state.value,
            _format_job_progress(job),
            _format_job_added_time(job),
            _explain_job_state(job),
        )
        for job in result.jobs
    ]
    empty = "There are no jobs." if done else "No pending or running jobs. See --all."
    output.print_table_or_message(empty, ("id", "kind", "state", "done", "added", "why"), rows)
    output.print_paging_hint(len(rows), result.total, result.next)


def show_job(
    context: typer.Context,
    id: Annotated[str, typer.Argument(help="A job's id.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until it ends.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a job: its input, progress and result."""
    with open_habitus(context) as habitus:
        check_before_list_jobs(habitus)
        if follow:
            asyncio.run(_print_job_progress_until_over(context, habitus, id, as_json))
        else:
            print_use_case_result(context, cases.show_job(habitus, id), print_result_of_add_job, as_json=as_json)


async def _print_job_progress_until_over(context: typer.Context, habitus: Habitus, id: str, as_json: bool) -> None:
    """Print a line, or JSON, whenever the job makes progress."""
    # Following one job yields a list of exactly one.
    async for (job,) in jobs.watch_jobs(habitus, id):
        if as_json or job.state.is_over:
            print_use_case_result(context, job, print_result_of_add_job, as_json=as_json)
        else:
            output.print_line(f"{job.state.value}, {_format_job_progress(job)}")


def print_result_of_list_workers(context: typer.Context, result: cases.ListWorkersResult) -> None:
    rows = [
        (each.name, each.host, each.version, inputs.format_timestamp(each.seen_on), ", ".join(each.jobs) or "idle")
        for each in result.workers
    ]
    empty = "No worker is running. Start one: habitus jobs work, or habitus up."
    output.print_table_or_message(empty, ("worker", "host", "version", "last seen", "runs"), rows)


def print_result_of_list_schedules(context: typer.Context, result: cases.ListSchedulesResult) -> None:
    rows = [
        (each.kind, each.when, inputs.format_timestamp(each.next_on), _format_last_job_of_schedule(each.last))
        for each in result.schedule
    ]
    output.print_table(("kind", "when", "next", "last"), rows)


def print_result_of_set_schedule(context: typer.Context, result: cases.SetScheduleResult, kind: str) -> None:
    when = next(one.when for one in result.schedule if one.kind == kind)
    output.print_line(f"schedule.{kind} is set to {when}.")


def run_worker_command(
    context: typer.Context,
    concurrency: Annotated[int, typer.Option(help="Jobs at a time.", min=1, max=64)] = 1,
    queues: Annotated[
        str, typer.Option("--queues", help=f"Only these kinds, with commas between, of {', '.join(JOB_KINDS)}.")
    ] = "",
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when no job is pending or running.")] = False,
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
        queue = jobs.open_job_queue(habitus, for_worker=True)
        with jobs.run_home_worker(habitus, queue, concurrency=concurrency, only=only) as name:
            output.print_line(f"Worker {name} is running; Ctrl-C stops it.")
            # Half a second bounds how long Ctrl-C takes.
            while not stopped.wait(0.5):
                if until_idle and jobs.is_queue_idle(habitus.settings, queue, only):
                    break
        left = queue.count_unfinished_jobs()
    output.print_line(
        "All jobs are done." if not left else f"{output.format_quantity(left, 'job')} left for the next worker."
    )


def _format_name_value_pairs(values: Any) -> str:
    if not isinstance(values, dict):
        return str(values)
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _format_job_progress(job: Job) -> str:
    """Return how many parts of a job are done."""
    return (
        "not started"
        if job.parts_total is None
        else f"{job.parts_done} of {output.format_quantity(job.parts_total, 'part')}"
    )


def _format_last_job_of_schedule(job: Job | None) -> str:
    return "" if job is None else f"{job.id}, {job.state.value}"


def _explain_job_state(job: Job) -> str:
    """Return why a job failed or what it waits for; nothing if it is as it should be."""
    return job.reason or (f"waits for {job.waits_for}" if job.waits_for else "")


def _format_job_added_time(job: Job) -> str:
    return inputs.format_timestamp(job.added_on) if job.added_on else ""
