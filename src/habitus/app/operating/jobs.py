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

import sqlalchemy as sa

from habitus import sql
from habitus.agent.background import EventLoopThread, run_in_thread
from habitus.app import home_directory
from habitus.app.home import Clock, Home, refuse_if_read_only, refuse_if_read_only_or_offline
from habitus.app.operating import configuring
from habitus.app.operating.housekeeping import Housekeeper
from habitus.app.operating.job_kinds import JOB_KINDS, SCHEDULED_KINDS, add_job, make_job_handlers
from habitus.app.sharing.approvals import watch_and_apply_approvals
from habitus.errors import Invalid, NotFound, UserError, did_you_mean
from habitus.files import parse_user_path
from habitus.jobs.model import Job, JobConcurrencyLimits, JobPriority
from habitus.jobs.queue import JobQueue, is_shared_database
from habitus.jobs.schedule import ScheduleDueTime, parse_schedule
from habitus.jobs.worker import SHUTDOWN_WAIT_S, WorkerConfig, run_worker_until_block_ends
from habitus.settings import SETTINGS_FILE, ScheduleSettings, Settings
from habitus.sql.change_notifications import get_change_feed

# Seconds between two polls of the queue where no notification wakes the worker.
_POLL_S = 0.5
# Slower for a shared database, which many hosts poll.
_SHARED_POLL_S = 1.0


def submit_job(
    home: Home,
    queue: JobQueue,
    kind: str,
    arguments: Sequence[str] = (),
    *,
    tokens: int | None = None,
    priority: JobPriority = JobPriority.NORMAL,
    id: str = "",
) -> str:
    """Submit a job from a person's arguments and return its id; an existing job with this id stays as it is.

    Paths are resolved here, because the worker may run in another directory.
    """
    if kind not in JOB_KINDS:
        raise NotFound(f"There are no jobs of the kind '{kind}'.", hint=f"There are: {', '.join(JOB_KINDS)}.")
    if len(arguments) not in JOB_KINDS[kind].takes:
        raise Invalid(f"'{kind}' does not take {len(arguments)} words.", hint=JOB_KINDS[kind].usage)
    if any(not word.startswith("https://") for word in arguments):
        home.host.files.require_access("which files and databases are read")
    if JOB_KINDS[kind].reads:
        home.host.files.require_access(JOB_KINDS[kind].reads)
    paths = [word if "://" in word else str(parse_user_path(word).absolute()) for word in arguments]
    given = {**JOB_KINDS[kind].parse_arguments(paths), **({} if tokens is None else {"tokens": tokens})}
    return add_job(home.settings, queue, kind, given, id=id, priority=priority)


def open_job_queue(home: Home, *, for_worker: bool = False) -> JobQueue:
    """Return the queue with the user's own jobs; an admin and a worker get everyone's."""
    refuse_if_read_only_or_offline(home)
    if for_worker:
        return JobQueue(sql.get_engine_for_user(home.shared, "", is_admin=True))
    return open_read_only_queue(home)


def open_read_only_queue(home: Home) -> JobQueue:
    """Return the queue for reading.

    It is empty while the shared database is away, as offline snapshots have no jobs.
    """
    refuse_if_read_only(home)
    return JobQueue(home.shared, user=None if home.settings.is_admin else home.settings.user)


async def watch_jobs(home: Home, id: str = "", *, poll_s: float = _POLL_S) -> AsyncGenerator[tuple[Job, ...], None]:
    """Yield all jobs, or the one with this id, at first and after each change.

    Ends when that one job is over; watching all jobs never ends.
    """
    queue, told = open_read_only_queue(home), None
    while True:
        now: tuple[Job, ...] = await run_in_thread(lambda: (queue.get(id),) if id else tuple(queue.list_jobs()))
        if now != told:
            yield now
        if id and now[0].state.is_over:
            return
        told = now
        await asyncio.sleep(poll_s)


@contextmanager
def run_home_worker(
    home: Home,
    queue: JobQueue,
    *,
    concurrency: int = 1,
    only: Collection[str] = (),
    only_own_home: bool = False,
    starts_due: bool = True,
    patience_s: float = SHUTDOWN_WAIT_S,
) -> Iterator[str]:
    """Run jobs in this process until the block is left, of all kinds or only of these, and start those that are due.

    With `only_own_home` these are the jobs that only a process of this home can run.
    Running parts then have `patience_s` to end; a part that still waits is cut off and repeated later.
    """
    loop = EventLoopThread("habitus-jobs")
    known = make_job_handlers(home, loop)
    if unknown := sorted(set(only) - known.keys()):
        raise NotFound(f"There are no jobs of the kind '{unknown[0]}'.", hint=f"There are: {', '.join(known)}.")
    done = {name: work for name, work in known.items() if not only or name in only}
    limits = JobConcurrencyLimits(per_model=home.settings.jobs.per_model, per_user=home.settings.jobs.per_user)
    add_due = (
        Scheduler(home, queue).add_due_jobs
        if starts_due
        else partial(read_current_time_of_shared_clock, home.shared, home.clock)
    )
    housekeeper = Housekeeper(home)

    def poll() -> None:
        add_due()
        housekeeper.start_if_due()

    poll_s = _SHARED_POLL_S if queue.is_shared else _POLL_S
    host = _get_host_name_if_queue_is_shared(home.settings, queue)
    config = WorkerConfig(
        concurrency=concurrency,
        host=host,
        only_own_host=only_own_home,
        concurrency_limits=limits,
        poll_interval_s=poll_s,
        on_poll=poll,
        shutdown_wait_s=patience_s,
        interrupt_waits=loop.close,
        feed=get_change_feed(home.shared),
    )
    with (
        watch_and_apply_approvals(home),
        _open_worker_database_engine(home) as engine,
        run_worker_until_block_ends(engine, done, config) as name,
    ):
        yield name
    housekeeper.wait_until_done()


@contextmanager
def _open_worker_database_engine(home: Home) -> Iterator[sa.Engine]:
    """Open a separate connection for the worker, so its leases are renewed while its jobs keep the others busy."""
    if not is_shared_database(home.shared):
        yield home.shared
        return
    engine = sql.open_engine_with_current_schema(
        home_directory.get_database_url(home.settings), home.settings.workspace, connections=1, dedicated=True
    )
    try:
        yield engine
    finally:
        engine.dispose()


def is_queue_idle(settings: Settings, queue: JobQueue, only: Collection[str] = ()) -> bool:
    """Whether no job is pending or running that a worker here would do."""
    return not queue.count_unfinished_jobs(only or JOB_KINDS, host=_get_host_name_if_queue_is_shared(settings, queue))


def _get_host_name_if_queue_is_shared(settings: Settings, queue: JobQueue) -> str:
    return home_directory.get_or_create_host_name_of_home(settings.home) if queue.is_shared else ""


log = logging.getLogger(__name__)
# Seconds for running jobs when the server stops.
_SHUTDOWN_PATIENCE_S = 2.0


@contextmanager
def run_background_worker(get_home: Callable[[], Home], *, only_own_home: bool = False) -> Iterator[None]:
    """Run a worker in a thread until the block is left; an unfinished job is continued by the next process.

    With `only_own_home` it leaves to other workers what these can run, and schedules.
    The server neither waits for the worker nor fails with it. `get_home` returns the home that is served now: while an
    offline snapshot replaces its database, no jobs are run.
    """
    if get_home().is_read_only:
        log.info("No jobs are done here: the home is read-only.")
        yield
        return
    stopped = threading.Event()
    thread = threading.Thread(target=_run_worker_thread, args=(get_home, stopped, only_own_home), name="jobs")
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _run_worker_thread(served: Callable[[], Home], stopped: threading.Event, only_own_home: bool) -> None:
    while (home := served()).is_offline:
        if stopped.wait(_SHARED_POLL_S):
            return
    try:
        queue = open_job_queue(home, for_worker=True)
        # On one machine every worker can reach the files of the home.
        if only_own_home and not queue.is_shared:
            return
        with run_home_worker(
            home,
            queue,
            only_own_home=only_own_home,
            starts_due=not only_own_home,
            patience_s=_SHUTDOWN_PATIENCE_S,
        ):
            stopped.wait()
    # The server must keep serving pages even if jobs can't run.
    except Exception:
        log.warning("Jobs can't be done here.", exc_info=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleStatus:
    """The schedule of a kind of job; `next_on` is None if it is off, `last` is its latest job."""

    kind: str
    when: str
    next_on: datetime | None
    last: Job | None


def list_schedules(home: Home, queue: JobQueue) -> tuple[ScheduleStatus, ...]:
    """Return the schedule of each kind that can start by itself."""
    now, zone = read_current_time_of_shared_clock(home.shared, home.clock), _resolve_timezone(home.settings, home.clock)
    found = []
    now_set = _ReloadingSchedule(home).read_schedule()
    for kind in SCHEDULED_KINDS:
        when = str(getattr(now_set, kind))
        schedule = parse_schedule(when)
        next_on = schedule.get_next_due_time(now, zone).timestamp if schedule else None
        found.append(
            ScheduleStatus(
                kind=kind,
                when=when,
                next_on=next_on,
                last=queue.find_newest_job_by_id_prefix(_make_scheduled_job_id_prefix(home.settings, queue, kind)),
            )
        )
    return tuple(found)


def set_schedule(home: Home, kind: str, schedule: str | None) -> configuring.SettingChangeResult:
    """Change when a kind of job starts by itself, or restore the default with None; running workers follow."""
    if kind not in SCHEDULED_KINDS:
        hint = did_you_mean(kind, SCHEDULED_KINDS) or f"There are: {', '.join(SCHEDULED_KINDS)}."
        raise NotFound(f"Jobs of kind '{kind}' can't be scheduled.", hint=hint)
    refuse_if_read_only_or_offline(home)
    # Fails before anything is changed if the database is away.
    read_current_time_of_shared_clock(home.shared, home.clock)
    return configuring.set_setting(home.settings, os.environ, f"schedule.{kind}", schedule)


class _ReloadingSchedule:
    """The schedule in the settings file, read again after each change; an unreadable file keeps the last one."""

    def __init__(self, home: Home) -> None:
        self._settings = home.settings
        self._mark: object = None
        self._known = home.settings.schedule

    def read_schedule(self) -> ScheduleSettings:
        with suppress(OSError, UserError):
            found = (self._settings.home / SETTINGS_FILE).stat()
            if self._mark != (found.st_mtime_ns, found.st_size):
                self._known = configuring.reload_settings(self._settings, os.environ).schedule
                self._mark = (found.st_mtime_ns, found.st_size)
        return self._known


def read_current_time_of_shared_clock(shared: sa.Engine, clock: Clock) -> datetime:
    """Return the current time, by the database's clock on a shared server, because the hosts' clocks differ.

    Fails if the schema is newer than this code, so an outdated worker takes no jobs.
    """
    with sql.read_transaction(shared) as connection:
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
        self._zone = _resolve_timezone(home.settings, home.clock)
        self._began = read_current_time_of_shared_clock(home.shared, home.clock)
        self._followed = _ReloadingSchedule(home)
        self._seen: dict[str, str] = {}  # kind → last slot checked

    def add_due_jobs(self) -> list[str]:
        """Add the jobs that are due now; return their ids."""
        now, added = read_current_time_of_shared_clock(self._home.shared, self._home.clock), list[str]()
        now_set = self._followed.read_schedule()
        for kind in SCHEDULED_KINDS:
            schedule = parse_schedule(str(getattr(now_set, kind)))
            slot = schedule.get_current_due_time(now, self._zone) if schedule else None
            if slot is None or self._seen.get(kind) == slot.key:
                continue
            if self._has_followed_schedule_before_slot(kind, slot):
                added.append(self._add_job_of_schedule_slot(kind, slot))
            self._seen[kind] = slot.key
        if added:
            self._queue.delete_jobs_finished_before(now - timedelta(days=self._home.settings.retention.turn_days))
        return added

    def _has_followed_schedule_before_slot(self, kind: str, slot: ScheduleDueTime) -> bool:
        return (
            slot.timestamp > self._began
            or self._queue.find_newest_job_by_id_prefix(
                _make_scheduled_job_id_prefix(self._home.settings, self._queue, kind)
            )
            is not None
        )

    def _add_job_of_schedule_slot(self, kind: str, slot: ScheduleDueTime) -> str:
        id = f"{_make_scheduled_job_id_prefix(self._home.settings, self._queue, kind)}{slot.key}"
        return add_job(
            self._home.settings, self._queue, kind, SCHEDULED_KINDS[kind].scheduled, id=id, priority=JobPriority.LOW
        )


def _make_scheduled_job_id_prefix(settings: Settings, queue: JobQueue, kind: str) -> str:
    """Return the prefix of scheduled job ids: per home for jobs about its files, per user for all others."""
    is_bound_to_home_worker = SCHEDULED_KINDS[kind].is_bound_to_home_worker(SCHEDULED_KINDS[kind].scheduled)
    whose = (
        home_directory.get_or_create_host_name_of_home(settings.home)
        if is_bound_to_home_worker and queue.is_shared
        else settings.user
    )
    return f"scheduled-{kind}-{whose}-"


def _resolve_timezone(settings: Settings, clock: Clock) -> tzinfo:
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
