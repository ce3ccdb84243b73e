"""Runs a job in the foreground with visible progress; Ctrl-C leaves the rest to a worker."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from habitus.app import Habitus
from habitus.app.operating import jobs
from habitus.errors import Invalid
from habitus.jobs.model import Job, JobState
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import SHUTDOWN_WAIT_S

# Often enough for a smooth progress line, rarely enough to cost nothing.
_POLL_INTERVAL_S = 0.3


def run_job_in_foreground(
    habitus: Habitus, queue: JobQueue, id: str, on_tick: Callable[[], None], *, patience_s: float = SHUTDOWN_WAIT_S
) -> Job:
    """Work on a job until it ends or Ctrl-C is pressed, calling `on_tick` meanwhile, and return the job."""
    stopped = threading.Event()
    # The handler only sets a flag: the job stops between two steps and stays resumable.
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    # This process takes only jobs of this kind, so it never starts unrelated work.
    only = (queue.get(id).kind,)
    try:
        with jobs.run_home_worker(habitus, queue, only=only, starts_due=False, patience_s=patience_s):
            while not queue.get(id).state.is_over and not stopped.wait(_POLL_INTERVAL_S):
                on_tick()
    finally:
        signal.signal(signal.SIGINT, before)
    on_tick()
    return queue.get(id)


def raise_if_job_failed(job: Job) -> None:
    """Raise `Invalid` if the job failed, with the command that retries it."""
    if job.state is JobState.FAILED:
        raise Invalid(
            f"The job {job.id} failed: {job.reason}", hint=f"Fix the cause, then: habitus jobs retry {job.id}"
        )
