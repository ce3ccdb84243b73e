"""Schedules of jobs: which kinds start by themselves and when, and starting what is due, once, whoever looks."""

from __future__ import annotations

import os
import zoneinfo
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

import sqlalchemy as sa

from habitus import sql
from habitus.app import home_directory
from habitus.app.home import Clock, Home
from habitus.app.operation import configuring
from habitus.app.operation.configuring import Configured
from habitus.app.work.job_kinds import SCHEDULED, add
from habitus.errors import Invalid, NotFound, UserError, did_you_mean
from habitus.jobs.model import Job, Priority
from habitus.jobs.queue import JobQueue
from habitus.jobs.schedule import Slot, read
from habitus.settings import FILE, ScheduleSettings, Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduled:
    """A kind of job that can start by itself; `next_on` is nothing where it is off, `last` its last job."""

    kind: str
    when: str
    next_on: datetime | None
    last: Job | None


def list_schedules(home: Home, queue: JobQueue) -> tuple[Scheduled, ...]:
    now, zone = moment(home.shared, home.clock), _zone(home.settings, home.clock)
    found = []
    now_set = _Followed(home).schedule()
    for kind in SCHEDULED:
        when = str(getattr(now_set, kind))
        schedule = read(when)
        next_on = schedule.next(now, zone).moment if schedule else None
        found.append(
            Scheduled(kind=kind, when=when, next_on=next_on, last=queue.last(_prefix(home.settings, queue, kind)))
        )
    return tuple(found)


def set_schedule(home: Home, kind: str, when: str | None) -> Configured:
    """Have a kind of job start by itself at other times, or as without a word; whoever looks follows it."""
    if kind not in SCHEDULED:
        mend = did_you_mean(kind, SCHEDULED) or f"There are: {', '.join(SCHEDULED)}."
        raise NotFound(f"No jobs of the kind '{kind}' start by themselves.", mend=mend)
    return configuring.put(home.settings, os.environ, f"schedule.{kind}", when)


class _Followed:
    """The schedule as the file of a home has it now: read again when that has changed, if it can be read."""

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


def moment(shared: sa.Engine, clock: Clock) -> datetime:
    """Now, by the clock of the database where many hosts share one: theirs differ. Refused where that is no longer ours
    to use, so that a worker takes no job for which its code is too old."""
    with sql.reading(shared) as connection:
        if shared.dialect.name == "postgresql":
            now: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
            return now
    return clock()


class Scheduler:
    """Looks again and again; what is due gets a job that bears the slot's key, so it is one whoever looks. What was
    over long ago is forgotten then.

    A time that passed while nobody looked is made up for, once. But one that was before the schedule was first followed
    is not: who switches something on in the afternoon does not want last night's.
    """

    def __init__(self, home: Home, queue: JobQueue) -> None:
        self._home = home
        self._queue = queue
        self._zone = _zone(home.settings, home.clock)
        self._began = moment(home.shared, home.clock)
        self._followed = _Followed(home)
        self._seen: dict[str, str] = {}  # the slot that was looked at last

    def look(self) -> list[str]:
        """The ids of the jobs that were added."""
        now, added = moment(self._home.shared, self._home.clock), list[str]()
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
            slot.moment > self._began or self._queue.last(_prefix(self._home.settings, self._queue, kind)) is not None
        )

    def _add(self, kind: str, slot: Slot) -> str:
        id = f"{_prefix(self._home.settings, self._queue, kind)}{slot.key}"
        return add(self._home.settings, self._queue, kind, SCHEDULED[kind].scheduled, id=id, priority=Priority.LOW)


def _prefix(settings: Settings, queue: JobQueue, kind: str) -> str:
    """Of what many share, each home has the jobs about its files, and each user the others."""
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
        mend = "Write one such as Europe/Berlin, or leave schedule.timezone out."
        raise Invalid(f"There is no time zone '{name}'.", mend=mend) from None
