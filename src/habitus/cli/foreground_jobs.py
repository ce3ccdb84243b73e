"""Jobs in the foreground: a command does its own job and shows the progress; Ctrl-C leaves the rest to a worker."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from habitus.app import Habitus
from habitus.app.operating import jobs
from habitus.errors import Invalid
from habitus.jobs.model import Job, JobState
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import PATIENCE_S

_LOOK_S = 0.3


def run_job(
    habitus: Habitus, queue: JobQueue, id: str, look: Callable[[], None], *, patience_s: float = PATIENCE_S
) -> Job:
    """Work on this job until it is over or Ctrl-C is pressed, calling `look` meanwhile, and return it."""
    stopped = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stopped.set())
    only = (queue.get(id).kind,)
    try:
        with jobs.at_work(habitus, queue, only=only, starts_due=False, patience_s=patience_s):
            while not queue.get(id).state.is_over and not stopped.wait(_LOOK_S):
                look()
    finally:
        signal.signal(signal.SIGINT, before)
    look()
    return queue.get(id)


def refuse_if_failed(job: Job) -> None:
    if job.state is JobState.FAILED:
        raise Invalid(f"The job {job.id} failed: {job.reason}", mend=f"Mend it, then: habitus jobs retry {job.id}")
