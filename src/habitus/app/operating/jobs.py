"""Jobs: submit and watch them, run a worker, and start scheduled jobs when they are due."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import zoneinfo
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from habitus import sql
from habitus.agent.background import LoopThread, in_thread
from habitus.app import home_directory
from habitus.app.home import Clock, Home
from habitus.app.operating import configuring
from habitus.app.operating.configuring import Configured
from habitus.app.operating.job_kinds import KINDS, SCHEDULED, add, kinds
from habitus.app.sharing.approvals import serving
from habitus.errors import Invalid, NotFound, Refused, UserError, did_you_mean
from habitus.files import given_path
from habitus.jobs.model import Job, Limits, Priority
from habitus.jobs.queue import JobQueue, is_shared
from habitus.jobs.schedule import Slot, read
from habitus.jobs.worker import PATIENCE_S, Hearts, Locks, Manner, Owners, working
from habitus.settings import FILE, ScheduleSettings, Settings

# Seconds between two polls of the queue.
_LOOK_S = 0.5
# Slower for a shared database, which many hosts poll.
_LOOK_SHARED_S = 1.0


def leave(
    settings: Settings,
    queue: JobQueue,
    kind: str,
    words: Sequence[str] = (),
    *,
    tokens: int | None = None,
    priority: Priority = Priority.NORMAL,
    id: str = "",
) -> str:
    """Submit a job from a person's arguments and return its id; an existing job with this id stays as it is.

    Paths are resolved here, because the worker may run in another directory.
    """
    if kind not in KINDS:
        raise NotFound(f"There are no jobs of the kind '{kind}'.", hint=f"There are: {', '.join(KINDS)}.")
    if len(words) not in KINDS[kind].takes:
        raise Invalid(f"'{kind}' does not take {len(words)} words.", hint=KINDS[kind].usage)
    if settings.is_guest and any(not word.startswith("https://") for word in words):
        what = "Which files and databases are read is for the owner of this home to say."
        raise Refused(what, hint=f"Ask them to run 'habitus jobs add {kind} …' where Habitus runs.")
    paths = [word if "://" in word else str(given_path(word).absolute()) for word in words]
    given = {**KINDS[kind].inputs_from(paths), **({} if tokens is None else {"tokens": tokens})}
    return add(settings, queue, kind, given, id=id, priority=priority)


def open_queue(home: Home, *, for_worker: bool = False) -> JobQueue:
    """Return the queue with the user's own jobs; an admin and a worker get everyone's."""
    home.refuse_unless_kept()
    if for_worker:
        return JobQueue(sql.acting_as(home.shared, "", is_admin=True))
    return read_queue(home)


def read_queue(home: Home) -> JobQueue:
    """Return the queue for reading.

    It is empty while the shared database is away, as offline snapshots have no jobs.
    """
    home.refuse_if_read_only()
    return JobQueue(home.shared, user=None if home.settings.is_admin else home.settings.user)


async def follow(home: Home, id: str = "", *, every_s: float = _LOOK_S) -> AsyncGenerator[tuple[Job, ...], None]:
    """Yield all jobs, or the one with this id, at first and after each change.

    Ends when that one job is over; watching all jobs never ends.
    """
    queue, told = read_queue(home), None
    while True:
        now: tuple[Job, ...] = await in_thread(lambda: (queue.get(id),) if id else tuple(queue.all()))
        if now != told:
            yield now
        if id and now[0].state.is_over:
            return
        told = now
        await asyncio.sleep(every_s)


@contextmanager
def at_work(
    home: Home,
    queue: JobQueue,
    *,
    concurrency: int = 1,
    only: Collection[str] = (),
    starts_due: bool = True,
    patience_s: float = PATIENCE_S,
) -> Iterator[str]:
    """Run jobs in this process until the block is left, of all kinds or only of these, and start those that are due.

    Running parts then have `patience_s` to end; a part that still waits is cut off and repeated later.
    """
    loop = LoopThread("habitus-jobs")
    known = kinds(home, loop)
    if unknown := sorted(set(only) - known.keys()):
        raise NotFound(f"There are no jobs of the kind '{unknown[0]}'.", hint=f"There are: {', '.join(known)}.")
    done = {name: work for name, work in known.items() if not only or name in only}
    limits = Limits(per_model=home.settings.jobs.per_model, per_user=home.settings.jobs.per_user)
    each_look = Scheduler(home, queue).look if starts_due else partial(database_now, home.shared, home.clock)
    look_s = _LOOK_SHARED_S if queue.is_shared else _LOOK_S
    host = _host(home.settings, queue)
    manner = Manner(
        concurrency=concurrency,
        host=host,
        limits=limits,
        look_s=look_s,
        each_look=each_look,
        patience_s=patience_s,
        cut_off=loop.close,
    )
    with serving(home), _own_line(home) as engine, working(engine, done, _owners(engine), manner) as name:
        yield name


@contextmanager
def _own_line(home: Home) -> Iterator[sa.Engine]:
    """Open a separate connection for the worker, so its heartbeats get through while its jobs keep the others busy."""
    if not is_shared(home.shared):
        yield home.shared
        return
    engine = sql.open_engine(home_directory.address(home.settings), home.settings.workspace, connections=1, apart=True)
    try:
        yield engine
    finally:
        engine.dispose()


def _owners(engine: sa.Engine) -> Owners:
    return Hearts() if is_shared(engine) else Locks(Path(engine.url.database or "").parent / "workers")


def is_idle(settings: Settings, queue: JobQueue, only: Collection[str] = ()) -> bool:
    """Whether no job is pending or running that a worker here would do."""
    return not queue.count_left(only or KINDS, host=_host(settings, queue))


def _host(settings: Settings, queue: JobQueue) -> str:
    return home_directory.host_of(settings.home) if queue.is_shared else ""


log = logging.getLogger(__name__)
# Seconds for running jobs when the server stops.
_PATIENCE_S = 2.0


@contextmanager
def jobs_beside(served: Callable[[], Home]) -> Iterator[None]:
    """Run a worker in a thread until the block is left; an unfinished job is continued by the next process.

    The server neither waits for the worker nor fails with it. `get_home` returns the home that is served now: while an
    offline snapshot replaces its database, no jobs are run.
    """
    if served().is_read_only:
        log.info("No jobs are done here: the home is read-only.")
        yield
        return
    stopped = threading.Event()
    thread = threading.Thread(target=_work, args=(served, stopped), name="jobs")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _work(served: Callable[[], Home], stopped: threading.Event) -> None:
    while (home := served()).is_stand_in:
        if stopped.wait(_LOOK_SHARED_S):
            return
    try:
        with at_work(home, open_queue(home, for_worker=True), patience_s=_PATIENCE_S):
            stopped.wait()
    # The server must keep serving pages even if jobs can't run.
    except Exception:
        log.warning("Jobs can't be done here.", exc_info=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """The schedule of a kind of job; `next_on` is None if it is off, `last` is its latest job."""

    kind: str
    when: str
    next_on: datetime | None
    last: Job | None


def list_schedules(home: Home, queue: JobQueue) -> tuple[Scheduled, ...]:
    """Return the schedule of each kind that can start by itself."""
    now, zone = database_now(home.shared, home.clock), _zone(home.settings, home.clock)
    found = []
    now_set = _Followed(home).schedule()
    for kind in SCHEDULED:
        when = str(getattr(now_set, kind))
        schedule = read(when)
        next_on = schedule.next(now, zone).timestamp if schedule else None
        found.append(
            Scheduled(kind=kind, when=when, next_on=next_on, last=queue.last(_prefix(home.settings, queue, kind)))
        )
    return tuple(found)


def set_schedule(home: Home, kind: str, when: str | None) -> Configured:
    """Change when a kind of job starts by itself, or restore the default with None; running workers follow."""
    if kind not in SCHEDULED:
        hint = did_you_mean(kind, SCHEDULED) or f"There are: {', '.join(SCHEDULED)}."
        raise NotFound(f"No jobs of the kind '{kind}' start by themselves.", hint=hint)
    home.refuse_unless_kept()
    # Fails before anything is changed if the database is away.
    database_now(home.shared, home.clock)
    return configuring.put(home.settings, os.environ, f"schedule.{kind}", when)


class _Followed:
    """The schedule in the settings file, read again after each change; an unreadable file keeps the last one."""

    def __init__(self, home: Home) -> None:
        self._settings = home.settings
        self._mark: object = None
        self._known = home.settings.schedule

    def schedule(self) -> ScheduleSettings:
        with suppress(OSError, UserError):
            found = (self._settings.home / FILE).stat()
            if self._mark != (found.st_mtime_ns, found.st_size):
                self._known = configuring.read_again(self._settings, os.environ).schedule
                self._mark = (found.st_mtime_ns, found.st_size)
        return self._known


def database_now(shared: sa.Engine, clock: Clock) -> datetime:
    """Return the current time, by the database's clock on a shared server, because the hosts' clocks differ.

    Fails if the schema is newer than this code, so an outdated worker takes no jobs.
    """
    with sql.reading(shared) as connection:
        if shared.dialect.name == "postgresql":
            now: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
            return now
    return clock()


class Scheduler:
    """Adds the jobs that are due and removes old ones.

    A job's id contains its time slot, so several hosts add it only once. A slot that was missed is made up for once,
    but not one from before the schedule was first followed: after switching something on in the afternoon, nobody wants
    last night's run.
    """

    def __init__(self, home: Home, queue: JobQueue) -> None:
        self._home = home
        self._queue = queue
        self._zone = _zone(home.settings, home.clock)
        self._began = database_now(home.shared, home.clock)
        self._followed = _Followed(home)
        self._seen: dict[str, str] = {}  # kind → last slot checked

    def look(self) -> list[str]:
        """Add the jobs that are due now; return their ids."""
        now, added = database_now(self._home.shared, self._home.clock), list[str]()
        now_set = self._followed.schedule()
        for kind in SCHEDULED:
            schedule = read(str(getattr(now_set, kind)))
            slot = schedule.last(now, self._zone) if schedule else None
            if slot is None or self._seen.get(kind) == slot.key:
                continue
            if self._is_due(kind, slot):
                added.append(self._add(kind, slot))
            self._seen[kind] = slot.key
        if added:
            self._queue.forget(now - timedelta(days=self._home.settings.retention.turn_days))
        return added

    def _is_due(self, kind: str, slot: Slot) -> bool:
        return (
            slot.timestamp > self._began
            or self._queue.last(_prefix(self._home.settings, self._queue, kind)) is not None
        )

    def _add(self, kind: str, slot: Slot) -> str:
        id = f"{_prefix(self._home.settings, self._queue, kind)}{slot.key}"
        return add(self._home.settings, self._queue, kind, SCHEDULED[kind].scheduled, id=id, priority=Priority.LOW)


def _prefix(settings: Settings, queue: JobQueue, kind: str) -> str:
    """Return the prefix of scheduled job ids: per home for jobs about its files, per user for all others."""
    is_local = SCHEDULED[kind].is_local(SCHEDULED[kind].scheduled)
    whose = home_directory.host_of(settings.home) if is_local and queue.is_shared else settings.user
    return f"scheduled-{kind}-{whose}-"


def _zone(settings: Settings, clock: Clock) -> tzinfo:
    name = settings.schedule.timezone
    if not name:
        here = clock().astimezone().tzinfo
        assert here is not None
        return here
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        hint = "Write one such as Europe/Berlin, or leave schedule.timezone out."
        raise Invalid(f"There is no time zone '{name}'.", hint=hint) from None
