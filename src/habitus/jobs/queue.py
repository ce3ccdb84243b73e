"""The job queue in the database: adding and inspecting jobs, and claiming them for a worker. No job runs here."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from habitus import sql, tracing
from habitus.errors import NotFound, Refused
from habitus.jobs import worker_records
from habitus.jobs.model import (
    FIRST_RETRY_DELAY_S,
    NO_CONCURRENCY_KEYS,
    Job,
    JobConcurrencyKeys,
    JobConcurrencyLimits,
    JobFailureStreak,
    JobLease,
    JobPriority,
    JobState,
    QueuePollSnapshot,
    choose_startable_job_ids,
    explain_wait,
)
from habitus.jobs.worker_records import WorkerDetails, workers

jobs = sa.Table(
    "jobs",
    sql.metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("given", sa.Text, nullable=False),  # JSON
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    # The worker that runs it, or ran it last.
    *sql.build_required_columns(sa.String, "worker", "model", "user", "host", default=""),
    # A fencing token, raised at every change of worker: updates with an older number have no effect.
    sa.Column("attempt", sa.BigInteger, nullable=False, server_default="0"),
    # Its worker renews the lease while it runs the job; in milliseconds by the database's clock.
    *sql.build_required_columns(sa.BigInteger, "lease_until", "not_before", default="0"),
    # Parts done at the last failure.
    *sql.build_required_columns(sa.BigInteger, "stuck_at", "failures", "deaths", default="0"),
    # When its worker claimed it.
    sa.Column("begun_on", sa.BigInteger, nullable=False, server_default="0"),
    # Parts done by then.
    sa.Column("begun_at", sa.BigInteger, nullable=False, server_default="0"),
    # The span that added it, as a W3C `traceparent`.
    *sql.build_required_columns(sa.String, "traceparent", default=""),
    # JSON list of parts, once they are planned.
    sa.Column("plan", sa.Text),
    sa.Column("result", sa.Text),  # JSON
    sa.Column("reason", sa.Text, nullable=False, server_default=""),
    *sql.build_required_columns(sa.BigInteger, "added_on", "changed_on"),
    sa.Index("jobs_by_state", "state", "priority", "added_on"),
)
parts = sa.Table(
    "job_parts",
    sql.metadata,
    sa.Column("job", sa.String, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("result", sa.Text, nullable=False),  # JSON
)


def is_shared_database(engine: sa.Engine) -> bool:
    """Return whether workers of other hosts can use this database."""
    return engine.dialect.name == "postgresql"


def build_database_time_expression(engine: sa.Engine) -> sa.ColumnElement[int]:
    """Return the current time in milliseconds by the database's clock, because the hosts' clocks differ."""
    if not is_shared_database(engine):
        return sa.literal(int(time.time() * 1000))
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * 1000, sa.BigInteger)


# Its holder alone decides which worker gets which job.
CLAIM_LOCK = "jobs"
_UNFINISHED_STATES = (JobState.PENDING, JobState.RUNNING)
_NEWEST_FIRST = (jobs.c.added_on.desc(), jobs.c.id)


class JobQueue:
    """Adds, lists, cancels and retries jobs of `user`, or of all users if None."""

    def __init__(self, engine: sa.Engine, *, user: str | None = None) -> None:
        self.engine = engine
        self._seen = sa.true() if user is None else jobs.c.user == user

    @property
    def is_shared(self) -> bool:
        return is_shared_database(self.engine)

    def add_job(
        self,
        kind: str,
        arguments: Mapping[str, Any],
        *,
        id: str = "",
        keys: JobConcurrencyKeys = NO_CONCURRENCY_KEYS,
        priority: JobPriority = JobPriority.NORMAL,
    ) -> str:
        """Add a job and return its id; an existing job with this id stays unchanged."""
        id = id or uuid.uuid4().hex[:12]
        row = {"id": id, "kind": kind, "given": json.dumps(arguments), "state": JobState.PENDING, **asdict(keys)}
        row["traceparent"] = tracing.get_traceparent()
        with sql.write_transaction(self.engine, durable=True) as conn:
            now = conn.execute(sa.select(build_database_time_expression(self.engine))).scalar_one()
            row |= {"priority": priority.order, "added_on": now, "changed_on": now}
            sql.insert_missing_rows(conn, jobs, [row])
        return id

    def list_jobs(self, *, limit: int | None = None) -> list[Job]:
        """Return the jobs, newest first."""
        return self._load_jobs(sa.select(jobs).order_by(*_NEWEST_FIRST).limit(limit))

    def list_unfinished_jobs_of_kind(self, kind: str) -> list[Job]:
        """Return the waiting and running jobs of a kind, newest first."""
        return self._load_jobs(
            sa.select(jobs).where(jobs.c.state.in_(_UNFINISHED_STATES), jobs.c.kind == kind).order_by(*_NEWEST_FIRST)
        )

    def list_job_ids(self) -> list[str]:
        """Return the ids of all jobs, newest first; jobs added at the same time are sorted by id."""
        with sql.read_transaction(self.engine) as conn:
            return list(conn.execute(sa.select(jobs.c.id).where(self._seen).order_by(*_NEWEST_FIRST)).scalars())

    def get_jobs_by_ids(self, ids: Sequence[str]) -> list[Job]:
        """Return the jobs with these ids, in this order; deleted ones are left out."""
        by_id = {job.id: job for job in self._load_jobs(sa.select(jobs).where(jobs.c.id.in_(ids)))}
        return [by_id[id] for id in ids if id in by_id]

    def get(self, id: str) -> Job:
        """Return a job; raise NotFound if it does not exist."""
        found = self.get_jobs_by_ids([id])
        if not found:
            raise NotFound(f"There is no job '{id}'.", hint="See 'habitus jobs list'.")
        return found[0]

    def find_newest_job_by_id_prefix(self, prefix: str) -> Job | None:
        """Return the newest job whose id begins with the prefix, or None."""
        begins = jobs.c.id.startswith(prefix, autoescape=True)
        return next(iter(self._load_jobs(sa.select(jobs).where(begins).order_by(*_NEWEST_FIRST).limit(1))), None)

    def list_workers(self) -> list[WorkerDetails]:
        """Return the workers, the one seen last first, each with the jobs of this queue that it holds."""
        held = sa.select(jobs.c.worker, jobs.c.id).where(_is_running, self._seen).order_by(jobs.c.begun_on)
        with sql.read_transaction(self.engine) as conn:
            now = conn.execute(sa.select(build_database_time_expression(self.engine))).scalar_one()
            rows = conn.execute(sa.select(workers).order_by(workers.c.seen_on.desc(), workers.c.name)).all()
            running = conn.execute(held).all()
        found = []
        for row in rows:
            seen_on = row.seen_on
            if not self.is_shared and worker_records.is_worker_on_this_host(row):
                if not worker_records.is_worker_process_alive(row):
                    continue
                # An idle worker of one machine writes nothing: its process is its sign of life.
                seen_on = now
            ids = tuple(job.id for job in running if job.worker == row.name)
            when = _datetime_from_milliseconds(seen_on)
            found.append(WorkerDetails(name=row.name, host=row.host, version=row.version, seen_on=when, jobs=ids))
        return found

    def count_unfinished_jobs(self, kinds: Collection[str] | None = None, *, host: str = "") -> int:
        """Count the unfinished jobs; with `kinds`, only those of these kinds that `host` can run."""
        is_left = [jobs.c.state.in_(_UNFINISHED_STATES)]
        if kinds is not None:
            is_left += [jobs.c.kind.in_(kinds), jobs.c.host.in_(("", host))]
        with sql.read_transaction(self.engine) as conn:
            return int(conn.execute(sa.select(sa.func.count()).select_from(jobs).where(*is_left)).scalar_one())

    def count_jobs_by_state(self) -> Mapping[JobState, int]:
        """Count the jobs in each state, of all users."""
        count = sa.select(jobs.c.state, sa.func.count()).group_by(jobs.c.state)
        with sql.read_transaction(self.engine) as conn:
            found = {JobState(state): int(number) for state, number in conn.execute(count)}
        return {state: found.get(state, 0) for state in JobState}

    def delete_jobs_finished_before(self, before: datetime) -> int:
        """Delete the jobs that ended before then, with their results; return how many."""
        is_old = (jobs.c.state.not_in(_UNFINISHED_STATES), jobs.c.changed_on < int(before.timestamp() * 1000))
        with sql.write_transaction(self.engine) as conn:
            return conn.execute(sa.delete(jobs).where(*is_old)).rowcount

    def delete_user_jobs(self, user: str, *, dry_run: bool = False) -> int:
        """Delete all jobs of a user, finished or not; return how many."""
        theirs = jobs.c.user == user
        with sql.write_transaction(self.engine) as conn:
            if dry_run:
                count = sa.select(sa.func.count()).select_from(jobs).where(theirs)
                return int(conn.execute(count).scalar_one())
            return conn.execute(sa.delete(jobs).where(theirs)).rowcount

    def list_part_results(self, id: str) -> list[Any]:
        """Return the results of the parts that are done."""
        query = sa.select(parts.c.result).where(parts.c.job == self.get(id).id).order_by(parts.c.number)
        with sql.read_transaction(self.engine) as conn:
            return [json.loads(text) for text in conn.execute(query).scalars()]

    def cancel(self, id: str) -> Job:
        """Cancel a job before its next part; finished parts keep their results."""
        job = self.get(id)
        if job.state.is_over:
            raise Refused(f"The job '{id}' is {job.state} already.", hint="")
        self._change_job_state(id, _UNFINISHED_STATES, state=JobState.CANCELLED)
        return self.get(id)

    def retry(self, id: str) -> Job:
        """Resume a failed, cancelled or dead-lettered job at its next part."""
        job = self.get(id)
        ended = (JobState.FAILED, JobState.CANCELLED, JobState.DEAD_LETTERED)
        if job.state not in ended:
            raise Refused(f"The job '{id}' is {job.state}: there is nothing to try again.", hint="")
        # A person retries it, so it gets all its attempts again.
        fresh = {"stuck_at": 0, "failures": 0, "deaths": 0, "not_before": 0, "reason": ""}
        self._change_job_state(id, ended, state=JobState.PENDING, worker="", attempt=jobs.c.attempt + 1, **fresh)
        return self.get(id)

    def _change_job_state(self, id: str, states: Collection[JobState], **values: Any) -> None:
        with sql.write_transaction(self.engine, durable=True, lock=CLAIM_LOCK) as conn:
            is_so = (jobs.c.id == id, jobs.c.state.in_(states))
            conn.execute(
                sa.update(jobs).where(*is_so).values(**values, changed_on=build_database_time_expression(self.engine))
            )

    def _load_jobs(self, query: sa.Select[Any]) -> list[Job]:
        with sql.read_transaction(self.engine) as conn:
            rows = conn.execute(query.where(self._seen)).all()
            counted = sa.select(parts.c.job, sa.func.count()).group_by(parts.c.job)
            ids = [row.id for row in rows]
            done = {row[0]: row[1] for row in conn.execute(counted.where(parts.c.job.in_(ids)))}
        has_worker = any(row.state == JobState.PENDING for row in rows) and self._has_worker()
        return [_job_from_row(row, done.get(row.id, 0), has_worker=has_worker) for row in rows]

    def _has_worker(self) -> bool:
        """Return whether a worker runs that takes jobs of any home."""
        if not self.is_shared:
            return bool(self.list_workers())
        is_seen = workers.c.seen_on > build_database_time_expression(self.engine) - _SILENT_AFTER_MS
        with sql.read_transaction(self.engine) as conn:
            return conn.execute(sa.select(workers.c.name).where(is_seen).limit(1)).first() is not None


# An idle worker gives a sign of life every ten seconds.
_SILENT_AFTER_MS = 30_000


def _job_from_row(row: sa.Row[Any], done: int, *, has_worker: bool) -> Job:
    state = JobState(row.state)
    return Job(
        id=row.id,
        kind=row.kind,
        arguments=json.loads(row.given),
        state=state,
        priority=JobPriority.from_order(row.priority),
        parts_done=done,
        parts_total=None if row.plan is None else len(json.loads(row.plan)),
        result=None if row.result is None else json.loads(row.result),
        reason="" if state is JobState.DONE else row.reason,
        waits_for=explain_wait(row.host, has_worker=has_worker) if state is JobState.PENDING else "",
        worker=row.worker,
        host=row.host,
        added_on=_datetime_from_milliseconds(row.added_on),
        begun_on=_datetime_from_milliseconds(row.begun_on) if row.begun_on else None,
        parts_done_at_start=row.begun_at,
        changed_on=_datetime_from_milliseconds(row.changed_on),
        not_before=_datetime_from_milliseconds(row.not_before)
        if state is JobState.PENDING and row.not_before
        else None,
    )


def _datetime_from_milliseconds(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


# Waiting jobs to consider at a time, besides those at their limit.
_CANDIDATE_LIMIT = 200
_is_running = jobs.c.state == JobState.RUNNING


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedJob:
    """A job that this worker has claimed."""

    id: str
    kind: str
    arguments: Mapping[str, Any]
    attempt: int
    traceparent: str

    @property
    def still_claimed_condition(self) -> sa.ColumnElement[bool]:
        """SQL condition that the job still belongs to this claim."""
        return sa.and_(jobs.c.id == self.id, jobs.c.attempt == self.attempt)


# A lease lasts so long without a renewal.
LEASE_S = 5.0
# A worker that gave no sign of life for so long is no longer listed.
_FORGET_AFTER_MS = 3_600_000


class WorkerQueueClient:
    """Claims jobs for one worker and records their progress and results."""

    def __init__(
        self,
        engine: sa.Engine,
        worker: str,
        *,
        host: str = "",
        only_own_host: bool = False,
        first_wait_s: float = FIRST_RETRY_DELAY_S,
        lease_s: float = LEASE_S,
    ) -> None:
        """With `only_own_host` claim only the jobs that no other host can run."""
        self._engine = engine
        self._worker = worker
        self._hosts = (host,) if only_own_host else ("", host)
        self._first_wait_s = first_wait_s
        self._lease_end = build_database_time_expression(engine) + int(lease_s * 1000)
        self._has = sa.and_(jobs.c.worker == worker, _is_running)

    @property
    def is_shared(self) -> bool:
        return is_shared_database(self._engine)

    def register_worker(self, row: Mapping[str, Any]) -> None:
        """List this worker, and forget those that have been silent for long."""
        now = build_database_time_expression(self._engine)
        with sql.write_transaction(self._engine) as conn:
            conn.execute(sa.delete(workers).where(workers.c.seen_on < now - _FORGET_AFTER_MS))
            conn.execute(sa.insert(workers).values({**row, "seen_on": now}))

    def release_jobs_and_unregister_worker(self) -> None:
        """Release all unfinished jobs of this worker immediately, and take it off the list."""
        with sql.write_transaction(self._engine, durable=True, lock=CLAIM_LOCK) as conn:
            conn.execute(sa.update(jobs).where(self._has).values(_RELEASED_VALUES))
            conn.execute(sa.delete(workers).where(workers.c.name == self._worker))

    def claim_jobs(self, kinds: Collection[str], *, max_count: int, limits: JobConcurrencyLimits) -> list[ClaimedJob]:
        """Claim up to `max_count` jobs, by priority and then by age."""
        now = build_database_time_expression(self._engine)
        is_due = sa.and_(
            *(jobs.c.state == JobState.PENDING, jobs.c.kind.in_(kinds)),
            *(jobs.c.host.in_(self._hosts), jobs.c.not_before <= now),
        )
        # A cheap read first: most looks find nothing, and the lock would serialize all workers.
        with sql.read_transaction(self._engine) as conn:
            if conn.execute(sa.select(jobs.c.id).where(is_due).limit(1)).first() is None:
                return []
        with sql.write_transaction(self._engine, durable=True, lock=CLAIM_LOCK) as conn:
            rows = conn.execute(sa.select(jobs.c.model, jobs.c.user).where(_is_running)).all()
            running = [JobConcurrencyKeys(model=row.model, user=row.user) for row in rows]
            # Jobs at their limit are excluded by the query, else many of them would hide the others.
            found = sa.select(jobs.c.id, jobs.c.model, jobs.c.user).where(
                is_due, *_build_conditions_excluding_keys_at_limit(running, limits)
            )
            ordered = found.order_by(jobs.c.priority, jobs.c.added_on, jobs.c.id).limit(_CANDIDATE_LIMIT + max_count)
            waiting = [(id, JobConcurrencyKeys(model=model, user=user)) for id, model, user in conn.execute(ordered)]
            taken = choose_startable_job_ids(waiting, running, max_count=max_count, limits=limits)
            done = sa.select(sa.func.count()).where(parts.c.job == jobs.c.id).scalar_subquery()
            mine = {"worker": self._worker, "state": JobState.RUNNING, "attempt": jobs.c.attempt + 1}
            mine |= {"changed_on": now, "begun_on": now, "begun_at": done, "lease_until": self._lease_end}
            conn.execute(sa.update(jobs).where(jobs.c.id.in_(taken)).values(mine))
            got = conn.execute(sa.select(jobs).where(jobs.c.id.in_(taken))).all()
        return [
            ClaimedJob(
                id=row.id,
                kind=row.kind,
                arguments=json.loads(row.given),
                attempt=row.attempt,
                traceparent=row.traceparent,
            )
            for row in got
        ]

    def read_queue_snapshot(self) -> QueuePollSnapshot:
        """Read the state of all workers and jobs in one transaction, because every worker polls."""
        held = sa.select(jobs.c.id, jobs.c.worker, jobs.c.attempt, jobs.c.lease_until).where(_is_running)
        waiting = sa.select(jobs.c.kind, sa.func.min(jobs.c.not_before).label("due")).group_by(jobs.c.kind)
        with sql.read_transaction(self._engine) as conn:
            now = conn.execute(sa.select(build_database_time_expression(self._engine))).scalar_one()
            leases = [JobLease(id=row[0], worker=row[1], attempt=row[2], until=row[3]) for row in conn.execute(held)]
            due = {row.kind: row.due for row in conn.execute(waiting.where(jobs.c.state == JobState.PENDING))}
            names = {lease.worker for lease in leases}
            holders = {row.name: row for row in conn.execute(sa.select(workers).where(workers.c.name.in_(names)))}
        ended = frozenset(lease for lease in leases if self._has_lease_ended(lease, holders.get(lease.worker), now))
        coming = [*(lease.until for lease in leases), *due.values()]
        next_event_s = min((at - now for at in coming if at > now), default=math.inf) / 1000
        return QueuePollSnapshot(ended_leases=ended, waiting_kinds=frozenset(due), next_event_s=next_event_s)

    def _has_lease_ended(self, lease: JobLease, holder: sa.Row[Any] | None, now: int) -> bool:
        """Return whether the lease is over: on one machine when the process is, however long it was suspended."""
        if self.is_shared or (holder and not worker_records.is_worker_on_this_host(holder)):
            return lease.until <= now
        return holder is None or not worker_records.is_worker_process_alive(holder)

    def load_planned_parts_and_results(self, job: ClaimedJob) -> tuple[list[Any] | None, list[Any]]:
        """Return the planned parts (None before planning) and the results of those that are done."""
        planned = sa.select(jobs.c.plan).where(jobs.c.id == job.id)
        done = sa.select(parts.c.result).where(parts.c.job == job.id).order_by(parts.c.number)
        with sql.read_transaction(self._engine) as conn:
            plan = conn.execute(planned).scalar()
            results = [json.loads(text) for text in conn.execute(done).scalars()]
        return (None if plan is None else json.loads(plan)), results

    def save_planned_parts(self, job: ClaimedJob, plan: str) -> bool:
        """Save the planned parts; False if the job was cancelled or claimed by another worker, so stop."""
        return self._save_progress_if_still_claimed(job, {"plan": plan})

    def save_part_result(self, job: ClaimedJob, number: int, result: str) -> bool:
        """Save the result of a part; False if the job was cancelled or claimed by another worker, so stop."""
        return self._save_progress_if_still_claimed(job, {}, [{"job": job.id, "number": number, "result": result}])

    def mark_job_done_or_failed(
        self, job: ClaimedJob, state: JobState, *, result: str | None = None, reason: str = ""
    ) -> None:
        """Mark the job as done, or as failed for a reason that a person can fix."""
        with sql.write_transaction(self._engine, durable=True) as conn:
            values = {
                "state": state,
                "result": result,
                "reason": reason,
                "changed_on": build_database_time_expression(self._engine),
            }
            conn.execute(sa.update(jobs).where(job.still_claimed_condition, _is_running).values(values))

    def record_failed_part_and_schedule_retry(self, job: ClaimedJob, reason: str) -> JobFailureStreak:
        """Record a failed part and schedule a retry, or dead-letter the job after too many."""
        with sql.write_transaction(self._engine, durable=True, lock=CLAIM_LOCK) as conn:
            row = conn.execute(sa.select(jobs).where(job.still_claimed_condition, _is_running)).first()
            if row is None:
                # Cancelled, or another worker has claimed it.
                return JobFailureStreak(reason=reason)
            done = _count_parts_done(conn, job.id)
            trouble = _job_failure_streak_from_row(row).with_one_more_failure(reason, at=done)
            wait_ms = int(trouble.get_retry_delay_s(self._first_wait_s) * 1000)
            self._release_or_dead_letter_job(
                conn, job.id, trouble, not_before=build_database_time_expression(self._engine) + wait_ms
            )
            return trouble

    def release_jobs_with_ended_leases(self, leases: Collection[JobLease]) -> None:
        """Release the jobs whose lease is still the same, and dead-letter those that too many workers died with."""
        until = {lease.id: lease.until for lease in leases}
        with sql.write_transaction(self._engine, durable=True, lock=CLAIM_LOCK) as conn:
            # Two workers may do this at once: under the lock, the second finds nothing left.
            for row in conn.execute(sa.select(jobs).where(jobs.c.id.in_(until), _is_running)).all():
                if row.lease_until == until[row.id]:
                    trouble = _job_failure_streak_from_row(row)
                    after = trouble.with_one_more_dead_worker(row.worker, at=_count_parts_done(conn, row.id))
                    self._release_or_dead_letter_job(conn, row.id, after)

    def renew_heartbeat_and_leases(self, ids: Collection[str]) -> None:
        """Give a sign of life, and renew the leases of these jobs as far as this worker still has them."""
        with sql.write_transaction(self._engine) as conn:
            seen = {"seen_on": build_database_time_expression(self._engine)}
            conn.execute(sa.update(workers).where(workers.c.name == self._worker).values(seen))
            if ids:
                kept = sa.update(jobs).where(self._has, jobs.c.id.in_(ids)).values(lease_until=self._lease_end)
                conn.execute(kept.execution_options(habitus_silent=True))

    def _save_progress_if_still_claimed(
        self, job: ClaimedJob, values: Mapping[str, Any], done: Collection[Mapping[str, Any]] = ()
    ) -> bool:
        """Save values and results unless another worker has claimed the job; False if it is no longer running."""
        with sql.write_transaction(self._engine, durable=True) as conn:
            changed = {**values, "changed_on": build_database_time_expression(self._engine)}
            update = sa.update(jobs).where(job.still_claimed_condition).values(changed).returning(jobs.c.state)
            state = conn.execute(update).scalar()
            # A part that finished after a cancellation still keeps its result.
            if state is not None:
                sql.insert_missing_rows(conn, parts, list(done))
            return bool(state == JobState.RUNNING)

    def _release_or_dead_letter_job(
        self,
        conn: sa.Connection,
        id: str,
        trouble: JobFailureStreak,
        *,
        not_before: sa.ColumnElement[int] | None = None,
    ) -> None:
        values: dict[str, Any] = {
            **_RELEASED_VALUES,
            "changed_on": build_database_time_expression(self._engine),
            "reason": trouble.reason,
        }
        values |= {"stuck_at": trouble.at, "failures": trouble.failures, "deaths": trouble.deaths}
        if trouble.is_exhausted:
            values["state"] = JobState.DEAD_LETTERED
        elif not_before is not None:
            values["not_before"] = not_before
        conn.execute(sa.update(jobs).where(jobs.c.id == id).values(values))


_RELEASED_VALUES: dict[str, Any] = {"state": JobState.PENDING, "worker": "", "attempt": jobs.c.attempt + 1}


def _build_conditions_excluding_keys_at_limit(
    running: Collection[JobConcurrencyKeys], limits: JobConcurrencyLimits
) -> list[sa.ColumnElement[bool]]:
    """Return conditions that exclude the jobs at a concurrency limit, however many they are."""
    full: list[sa.ColumnElement[bool]] = []
    for column, lanes, limit in (
        (jobs.c.model, [each.model for each in running], limits.per_model),
        (jobs.c.user, [each.user for each in running], limits.per_user),
    ):
        names = {lane for lane in lanes if lane and limit and lanes.count(lane) >= limit}
        if names:
            full.append(column.not_in(names))
    return full


def _job_failure_streak_from_row(row: sa.Row[Any]) -> JobFailureStreak:
    return JobFailureStreak(at=row.stuck_at, failures=row.failures, deaths=row.deaths, reason=row.reason)


def _count_parts_done(conn: sa.Connection, id: str) -> int:
    return int(conn.execute(sa.select(sa.func.count()).select_from(parts).where(parts.c.job == id)).scalar_one())
