"""The waiting room: which jobs a worker takes, and what it writes down about them.

Each takes only as many as it has hands for and only kinds it knows; limits hold for all hosts together. Whenever a job
changes hands its number of attempts grows, and who knows an older number writes in vain.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.jobs.model import FIRST_WAIT_S, JobState, Lanes, Limits, Trouble, choose_startable
from habitus.jobs.queue import LOCK, is_shared, jobs, now_ms, parts

_LOOKED_AT = 200  # waiting jobs at a time, beside those whose lanes are full
_is_running = jobs.c.state == JobState.RUNNING


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A job that this worker has."""

    id: str
    kind: str
    given: Mapping[str, Any]
    attempt: int

    @property
    def is_mine(self) -> sa.ColumnElement[bool]:
        return sa.and_(jobs.c.id == self.id, jobs.c.attempt == self.attempt)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Every worker that has a job with how often its heart has beaten, what counts as running here, and the kinds of
    what waits."""

    beats: Mapping[str, int]
    begun: frozenset[str]
    waiting: frozenset[str]


class Room:
    def __init__(self, engine: sa.Engine, worker: str, *, host: str = "", first_wait_s: float = FIRST_WAIT_S) -> None:
        self._engine = engine
        self._worker = worker
        self._host = host
        self._first_wait_s = first_wait_s
        self._has = sa.and_(jobs.c.worker == worker, _is_running)

    def take(self, kinds: Collection[str], *, hands: int, limits: Limits) -> list[Taken]:
        """Take as many jobs as there are hands for, the most urgent and then the oldest first."""
        now = now_ms(self._engine)
        is_due = sa.and_(
            *(jobs.c.state == JobState.WAITING, jobs.c.kind.in_(kinds)),
            *(jobs.c.host.in_(("", self._host)), jobs.c.not_before <= now),
        )
        with sql.reading(self._engine) as connection:
            if connection.execute(sa.select(jobs.c.id).where(is_due).limit(1)).first() is None:
                return []
        with sql.writing(self._engine, durable=True, lock=LOCK) as connection:
            rows = connection.execute(sa.select(jobs.c.model, jobs.c.user).where(_is_running)).all()
            running = [Lanes(model=row.model, user=row.user) for row in rows]
            found = sa.select(jobs.c.id, jobs.c.model, jobs.c.user).where(is_due, *_room(running, limits))
            ordered = found.order_by(jobs.c.priority, jobs.c.added_on, jobs.c.id).limit(_LOOKED_AT + hands)
            waiting = [(id, Lanes(model=model, user=user)) for id, model, user in connection.execute(ordered)]
            taken = choose_startable(waiting, running, most=hands, limits=limits)
            done = sa.select(sa.func.count()).where(parts.c.job == jobs.c.id).scalar_subquery()
            mine = {"worker": self._worker, "state": JobState.RUNNING, "attempt": jobs.c.attempt + 1}
            mine |= {"changed_on": now, "begun_on": now, "begun_at": done}
            connection.execute(sa.update(jobs).where(jobs.c.id.in_(taken)).values(mine))
            got = connection.execute(sa.select(jobs).where(jobs.c.id.in_(taken))).all()
        return [Taken(id=row.id, kind=row.kind, given=json.loads(row.given), attempt=row.attempt) for row in got]

    def look(self) -> Seen:
        """How it stands, in one transaction: every worker looks again and again."""
        with sql.reading(self._engine) as connection:
            running = connection.execute(sa.select(jobs.c.id, jobs.c.worker, jobs.c.beat).where(_is_running)).all()
            waiting = connection.execute(sa.select(jobs.c.kind).where(jobs.c.state == JobState.WAITING).distinct())
            kinds = frozenset(waiting.scalars())
        beats: dict[str, int] = {}
        for row in running:
            beats[row.worker] = max(beats.get(row.worker, 0), row.beat)
        mine = frozenset(row.id for row in running if row.worker == self._worker)
        return Seen(beats=beats, begun=mine, waiting=kinds)

    def known_parts(self, job: Taken) -> tuple[list[Any] | None, list[Any]]:
        """The parts that were planned, if they were, and what those came to that are done."""
        planned = sa.select(jobs.c.plan).where(jobs.c.id == job.id)
        done = sa.select(parts.c.result).where(parts.c.job == job.id).order_by(parts.c.number)
        with sql.reading(self._engine) as connection:
            plan = connection.execute(planned).scalar()
            results = [json.loads(text) for text in connection.execute(done).scalars()]
        return (None if plan is None else json.loads(plan)), results

    def keep_plan(self, job: Taken, plan: str) -> bool:
        """Whether to go on: not if it was cancelled meanwhile, or somebody else has it."""
        return self._keep(job, {"plan": plan})

    def keep_part(self, job: Taken, number: int, result: str) -> bool:
        return self._keep(job, {}, [{"job": job.id, "number": number, "result": result}])

    def finish(self, job: Taken, state: JobState, *, result: str | None = None, reason: str = "") -> None:
        """It is over: done, or failed for a reason that a person could mend."""
        with sql.writing(self._engine, durable=True) as connection:
            values = {"state": state, "result": result, "reason": reason, "changed_on": now_ms(self._engine)}
            connection.execute(sa.update(jobs).where(job.is_mine, _is_running).values(values))

    def record_failure(self, job: Taken, reason: str) -> Trouble:
        """A part failed, and not for a reason that a person could mend: it waits to be tried again, or is parked."""
        with sql.writing(self._engine, durable=True, lock=LOCK) as connection:
            row = connection.execute(sa.select(jobs).where(job.is_mine, _is_running)).first()
            if row is None:
                return Trouble(reason=reason)  # cancelled, or another worker has it
            trouble = _trouble(row).after_failure(reason, at=_count_done(connection, job.id))
            wait_ms = int(trouble.wait_s(self._first_wait_s) * 1000)
            self._put_back(connection, job.id, trouble, not_before=now_ms(self._engine) + wait_ms)
            return trouble

    def put_back(self, ids: Collection[str]) -> None:
        """Jobs that this worker has and does not do."""
        with sql.writing(self._engine, durable=True, lock=LOCK) as connection:
            connection.execute(sa.update(jobs).where(self._has, jobs.c.id.in_(ids)).values(_WAITING_AGAIN))

    def leave(self) -> None:
        """What is left here is for others, at once."""
        with sql.writing(self._engine, durable=True, lock=LOCK) as connection:
            connection.execute(sa.update(jobs).where(self._has).values(_WAITING_AGAIN))

    def inherit(self, worker: str) -> None:
        """What a dead worker had is for everybody again, but for what so many have died of. Two who do so at once do no
        harm."""
        with sql.writing(self._engine, durable=True, lock=LOCK) as connection:
            for row in connection.execute(sa.select(jobs).where(jobs.c.worker == worker, _is_running)).all():
                self._put_back(
                    connection, row.id, _trouble(row).after_death(worker, at=_count_done(connection, row.id))
                )

    def beat(self) -> None:
        """On one machine a lock says who lives, and nobody listens."""
        if is_shared(self._engine):
            with sql.writing(self._engine) as connection:
                connection.execute(sa.update(jobs).where(self._has).values(beat=jobs.c.beat + 1))

    def _keep(self, job: Taken, values: Mapping[str, Any], done: Collection[Mapping[str, Any]] = ()) -> bool:
        """What was done stays done, also where the job was cancelled meanwhile; not where another worker has it."""
        with sql.writing(self._engine, durable=True) as connection:
            changed = {**values, "changed_on": now_ms(self._engine)}
            update = sa.update(jobs).where(job.is_mine).values(changed).returning(jobs.c.state)
            state = connection.execute(update).scalar()
            if state is not None:
                sql.insert_missing(connection, parts, list(done))
            return bool(state == JobState.RUNNING)

    def _put_back(
        self, connection: sa.Connection, id: str, trouble: Trouble, *, not_before: sa.ColumnElement[int] | None = None
    ) -> None:
        values: dict[str, Any] = {**_WAITING_AGAIN, "changed_on": now_ms(self._engine), "reason": trouble.reason}
        values |= {"stuck_at": trouble.at, "failures": trouble.failures, "deaths": trouble.deaths}
        if trouble.is_too_much:
            values["state"] = JobState.PARKED
        elif not_before is not None:
            values["not_before"] = not_before
        connection.execute(sa.update(jobs).where(jobs.c.id == id).values(values))


_WAITING_AGAIN: dict[str, Any] = {"state": JobState.WAITING, "worker": "", "attempt": jobs.c.attempt + 1}


def _room(running: Collection[Lanes], limits: Limits) -> list[sa.ColumnElement[bool]]:
    """Those whose lane is full are not looked at, however many they are."""
    full: list[sa.ColumnElement[bool]] = []
    for column, lanes, limit in (
        (jobs.c.model, [each.model for each in running], limits.per_model),
        (jobs.c.user, [each.user for each in running], limits.per_user),
    ):
        names = {lane for lane in lanes if lane and limit and lanes.count(lane) >= limit}
        if names:
            full.append(column.not_in(names))
    return full


def _trouble(row: sa.Row[Any]) -> Trouble:
    return Trouble(at=row.stuck_at, failures=row.failures, deaths=row.deaths, reason=row.reason)


def _count_done(connection: sa.Connection, id: str) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(parts).where(parts.c.job == id)).scalar_one())
