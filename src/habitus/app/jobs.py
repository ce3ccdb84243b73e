"""Jobs over the use cases: leaving work to a worker, the queue it waits in, following how far it is, and the worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from habitus.agent.background import in_thread
from habitus.app.habitus import Habitus
from habitus.app.job_kinds import BY_HAND, kinds
from habitus.errors import Invalid, NotFound
from habitus.files import given_path
from habitus.jobs.model import Job
from habitus.jobs.owners import Owners
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import working

_LOOK_S = 0.5  # between two looks at how far jobs are


def leave(queue: JobQueue, kind: str, words: Sequence[str]) -> str:
    """Add a job as a person writes it, and return its id. A path is that of whoever adds it, not of the worker."""
    if kind not in BY_HAND:
        raise NotFound(f"There are no jobs of the kind '{kind}'.", mend=f"There are: {', '.join(BY_HAND)}.")
    if len(words) not in BY_HAND[kind].takes:
        raise Invalid(f"'{kind}' can't do with {len(words)} words.", mend=BY_HAND[kind].usage)
    paths = [word if "://" in word else str(given_path(word).absolute()) for word in words]
    return queue.add(kind, BY_HAND[kind].given(paths))


@contextmanager
def opened_queue(habitus: Habitus) -> Iterator[JobQueue]:
    habitus.refuse_if_read_only()
    queue = JobQueue(_url(habitus))
    try:
        yield queue
    finally:
        queue.close()


async def follow(habitus: Habitus, id: str = "", *, every_s: float = _LOOK_S) -> AsyncIterator[tuple[Job, ...]]:
    """All jobs, or the one with this id, each time anything about them changed, and at first as they are.

    Ends when the one is over; of all of them there is no end.
    """
    habitus.refuse_if_read_only()
    queue = await in_thread(lambda: JobQueue(_url(habitus)))
    try:
        told: tuple[Job, ...] | None = None
        while True:
            now = await in_thread(lambda: (queue.get(id),) if id else tuple(queue.all()))
            if now != told:
                yield now
            if id and now[0].state.is_over:
                return
            told = now
            await asyncio.sleep(every_s)
    finally:
        await in_thread(queue.close)


@contextmanager
def at_work(habitus: Habitus, *, concurrency: int = 1) -> Iterator[str]:
    """Do jobs in this process until the block is left."""
    habitus.refuse_if_read_only()
    owners = Owners(habitus.settings.home / "workers")
    with working(_url(habitus), kinds(habitus), owners, concurrency=concurrency) as name:
        yield name


def _url(habitus: Habitus) -> str:
    """The engine has a database of its own beside ours, as private."""
    path = habitus.settings.home / "jobs.db"
    path.touch(mode=0o600)
    return f"sqlite:///{path}"
