"""Jobs beside a server: one worker in a thread of the process, where the engine of jobs is installed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from habitus.app.home import Home

log = logging.getLogger(__name__)

_PATIENCE_S = 2.0  # with what runs when somebody stops the server


@contextmanager
def jobs_beside(home: Home) -> Iterator[None]:
    """Do jobs and start what is due until the block is left; a job in the middle is for the next process then.

    Whoever serves does not wait for it to begin, and goes on where it can't.
    """
    if home.is_read_only:
        log.info("No jobs are done here: the home is read-only.")
        yield
        return
    stopped = threading.Event()
    thread = threading.Thread(target=_work, args=(home, stopped), name="jobs")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _work(home: Home, stopped: threading.Event) -> None:
    try:
        from habitus.app.work import jobs  # the engine, for those who have it

        with jobs.at_work(home, jobs.open_queue(home, for_worker=True), patience_s=_PATIENCE_S):
            stopped.wait()
    except Exception:  # the pages are there all the same
        log.warning("Jobs can't be done here.", exc_info=True)
