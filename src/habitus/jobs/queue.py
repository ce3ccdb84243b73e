"""The queue of jobs as those see it who add to it and look at it; no job is done here."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.errors import NotFound, Refused
from habitus.jobs.model import ALONE, Job, JobState, Lanes, Priority
from habitus.sql import metadata

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("given", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("worker", sa.String, nullable=False, server_default=""),  # who has it, or had it last
    sa.Column("model", sa.String, nullable=False, server_default=""),
    sa.Column("user", sa.String, nullable=False, server_default=""),
    sa.Column("host", sa.String, nullable=False, server_default=""),
    # Counts up whenever it changes hands: whoever knows an older number writes in vain.
    sa.Column("attempt", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("beat", sa.BigInteger, nullable=False, server_default="0"),  # counts up while its worker lives
    sa.Column("not_before", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("stuck_at", sa.BigInteger, nullable=False, server_default="0"),  # parts done at the last trouble
    sa.Column("failures", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("deaths", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("begun_on", sa.BigInteger, nullable=False, server_default="0"),  # when its worker took it
    sa.Column("begun_at", sa.BigInteger, nullable=False, server_default="0"),  # parts done by then
    sa.Column("plan", sa.Text),  # JSON: its parts, once they are planned
    sa.Column("result", sa.Text),  # JSON
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    sa.Column("added_on", sa.BigInteger, nullable=False),
    sa.Column("changed_on", sa.BigInteger, nullable=False),
    sa.Index("jobs_by_state", "state", "priority", "added_on"),
)

parts = sa.Table(
    "job_parts",
    metadata,
    sa.Column("job", sa.String, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("result", sa.Text, nullable=False),  # JSON
)


def is_shared(engine: sa.Engine) -> bool:
    """Whether other hosts work on it."""
    return engine.dialect.name == "postgresql"


def now_ms(engine: sa.Engine) -> sa.ColumnElement[int]:
    """By the clock of whoever keeps the jobs: those of the hosts differ."""
    if not is_shared(engine):
        return sa.literal(int(time.time() * 1000))
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)


LOCK = "jobs"  # whoever holds it decides who takes what
_OPEN = (JobState.WAITING, JobState.RUNNING)
_NEWEST = (jobs.c.added_on.desc(), jobs.c.id)


class JobQueue:
    """`user` is whose jobs are shown and changed; None is everybody's."""

    def __init__(self, engine: sa.Engine, *, user: str | None = None) -> None:
        self.engine = engine
        self._seen = sa.true() if user is None else jobs.c.user == user

    @property
    def is_shared(self) -> bool:
        return is_shared(self.engine)

    def add(
        self,
        kind: str,
        given: Mapping[str, Any],
        *,
        id: str = "",
        lanes: Lanes = ALONE,
        priority: Priority = Priority.NORMAL,
    ) -> str:
        """Add a job, and return its id. One that is there under this id stays as it is."""
        id = id or uuid.uuid4().hex[:12]
        row = {"id": id, "kind": kind, "given": json.dumps(given), "state": JobState.WAITING, **asdict(lanes)}
        with sql.writing(self.engine, durable=True) as connection:
            now = connection.execute(sa.select(now_ms(self.engine))).scalar_one()
            row |= {"priority": priority.order, "added_on": now, "changed_on": now}
            sql.insert_missing(connection, jobs, [row])
        return id

    def all(self, *, limit: int | None = None) -> list[Job]:
        """The newest first."""
        return self._jobs(sa.select(jobs).order_by(*_NEWEST).limit(limit))

    def list_unfinished(self, kind: str) -> list[Job]:
        """Those of a kind that wait or run, the newest first."""
        return self._jobs(sa.select(jobs).where(jobs.c.state.in_(_OPEN), jobs.c.kind == kind).order_by(*_NEWEST))

    def ids(self) -> list[str]:
        """Of all of them, the newest first; those of one moment in the order of their names."""
        with sql.reading(self.engine) as connection:
            return list(connection.execute(sa.select(jobs.c.id).where(self._seen).order_by(*_NEWEST)).scalars())

    def some(self, ids: Sequence[str]) -> list[Job]:
        """Those with these ids, in their order; what has gone is left out."""
        by_id = {job.id: job for job in self._jobs(sa.select(jobs).where(jobs.c.id.in_(ids)))}
        return [by_id[id] for id in ids if id in by_id]

    def get(self, id: str) -> Job:
        found = self.some([id])
        if not found:
            raise NotFound(f"There is no job '{id}'.", mend="See 'habitus jobs list'.")
        return found[0]

    def last(self, prefix: str) -> Job | None:
        """The newest of those whose ids begin so."""
        begins = jobs.c.id.startswith(prefix, autoescape=True)
        return next(iter(self._jobs(sa.select(jobs).where(begins).order_by(*_NEWEST).limit(1))), None)

    def count_left(self, kinds: Collection[str] | None = None, *, host: str = "") -> int:
        """How many jobs wait or run; of these kinds, and not those of other hosts, where that is said."""
        is_left = [jobs.c.state.in_(_OPEN)]
        if kinds is not None:
            is_left += [jobs.c.kind.in_(kinds), jobs.c.host.in_(("", host))]
        with sql.reading(self.engine) as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(jobs).where(*is_left)).scalar_one())

    def states(self) -> Mapping[JobState, int]:
        """How many there are in each state, of everybody's."""
        count = sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state)
        with sql.reading(self.engine) as connection:
            found = {JobState(state): int(number) for state, number in connection.execute(count)}
        return {state: found.get(state, 0) for state in JobState}

    def forget(self, before: datetime) -> int:
        """Delete what was over by then, with all that it came to; how many jobs it were."""
        is_old = (jobs.c.state.not_in(_OPEN), jobs.c.changed_on < int(before.timestamp() * 1000))
        with sql.writing(self.engine) as connection:
            return connection.execute(sa.delete(jobs).where(*is_old)).rowcount

    def forget_user(self, user: str, *, dry_run: bool = False) -> int:
        """Delete what a user left, whether it is over or not; how many jobs it are."""
        theirs = jobs.c.user == user
        with sql.writing(self.engine) as connection:
            if dry_run:
                count = sa.select(sa.func.count()).select_from(jobs).where(theirs)
                return int(connection.execute(count).scalar_one())
            return connection.execute(sa.delete(jobs).where(theirs)).rowcount

    def results(self, id: str) -> list[Any]:
        """What the parts came to that are done."""
        query = sa.select(parts.c.result).where(parts.c.job == self.get(id).id).order_by(parts.c.number)
        with sql.reading(self.engine) as connection:
            return [json.loads(text) for text in connection.execute(query).scalars()]

    def cancel(self, id: str) -> Job:
        """End it before its next part; what is done stays done."""
        job = self.get(id)
        if job.state.is_over:
            raise Refused(f"The job '{id}' is {job.state} already.", mend="")
        self._turn(id, _OPEN, state=JobState.CANCELLED)
        return self.get(id)

    def retry(self, id: str) -> Job:
        """Go on with the part that failed, or that was to come when it was cancelled."""
        job = self.get(id)
        ended = (JobState.FAILED, JobState.CANCELLED, JobState.PARKED)
        if job.state not in ended:
            raise Refused(f"The job '{id}' is {job.state}: there is nothing to try again.", mend="")
        fresh = {"stuck_at": 0, "failures": 0, "deaths": 0, "not_before": 0, "reason": ""}
        self._turn(id, ended, state=JobState.WAITING, worker="", attempt=jobs.c.attempt + 1, **fresh)
        return self.get(id)

    def _turn(self, id: str, states: Collection[JobState], **values: Any) -> None:
        with sql.writing(self.engine, durable=True, lock=LOCK) as connection:
            is_so = (jobs.c.id == id, jobs.c.state.in_(states))
            connection.execute(sa.update(jobs).where(*is_so).values(**values, changed_on=now_ms(self.engine)))

    def _jobs(self, query: sa.Select[Any]) -> list[Job]:
        with sql.reading(self.engine) as connection:
            rows = connection.execute(query.where(self._seen)).all()
            counted = sa.select(parts.c.job, sa.func.count()).group_by(parts.c.job)
            ids = [row.id for row in rows]
            done = {row[0]: row[1] for row in connection.execute(counted.where(parts.c.job.in_(ids)))}
        return [_job(row, done.get(row.id, 0)) for row in rows]


def _job(row: sa.Row[Any], done: int) -> Job:
    state = JobState(row.state)
    return Job(
        id=row.id,
        kind=row.kind,
        given=json.loads(row.given),
        state=state,
        priority=Priority.of(row.priority),
        done=done,
        of=None if row.plan is None else len(json.loads(row.plan)),
        result=None if row.result is None else json.loads(row.result),
        reason="" if state is JobState.DONE else row.reason,
        worker=row.worker,
        host=row.host,
        added_on=_moment(row.added_on),
        begun_on=_moment(row.begun_on) if row.begun_on else None,
        begun_at=row.begun_at,
        changed_on=_moment(row.changed_on),
        not_before=_moment(row.not_before) if state is JobState.WAITING and row.not_before else None,
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
