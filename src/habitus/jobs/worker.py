"""A worker: claims jobs and runs them part by part, including those of workers that died."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from habitus import tracing
from habitus.errors import StorageFailed, UserError
from habitus.jobs import worker_records
from habitus.jobs.model import (
    FIRST_RETRY_DELAY_S,
    JobConcurrencyLimits,
    JobHandler,
    JobLease,
    JobState,
    QueuePollSnapshot,
)
from habitus.jobs.queue import LEASE_S, ClaimedJob, WorkerQueueClient
from habitus.sql.change_notifications import ChangeFeed, ChangeTopic

log = logging.getLogger(__name__)

T = TypeVar("T")

SHUTDOWN_WAIT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """Options of a worker; `on_poll` is called at every poll for jobs."""

    concurrency: int = 1
    host: str = ""
    # Run only the jobs that no other host can run; such a worker is not listed.
    only_own_host: bool = False
    concurrency_limits: JobConcurrencyLimits = field(default_factory=JobConcurrencyLimits)
    poll_interval_s: float = 0.5
    first_retry_delay_s: float = FIRST_RETRY_DELAY_S
    # How long a shutdown waits for running parts.
    shutdown_wait_s: float = SHUTDOWN_WAIT_S
    # Interrupts whatever the parts that exceed this wait for.
    interrupt_waits: Callable[[], object] = lambda: None
    lease_s: float = LEASE_S
    # Wakes the worker for new jobs; while it does not work, the worker polls.
    feed: ChangeFeed | None = None
    on_poll: Callable[[], object] = lambda: None


class _JobReleasedError(Exception):
    """The worker shuts down, or no longer owns the job: another worker does the rest."""


@contextmanager
def run_worker_until_block_ends(
    engine: sa.Engine, handlers: Mapping[str, JobHandler], config: WorkerConfig
) -> Iterator[str]:
    """Run jobs in threads of this process until the block ends; unfinished jobs are then released.

    Running parts get some seconds to finish; otherwise another worker repeats them.
    """
    row = worker_records.build_new_worker_row()
    name: str = row["name"]
    room = WorkerQueueClient(
        engine,
        name,
        host=config.host,
        only_own_host=config.only_own_host,
        first_wait_s=config.first_retry_delay_s,
        lease_s=config.lease_s,
    )
    hands = _JobThreadPool(handlers, room, config)
    looking = _WorkerLoop(room, hands, config)
    thread = threading.Thread(target=looking.poll_until_stopped, name="jobs-look")
    feed = config.feed or ChangeFeed(engine)
    try:
        if not config.only_own_host:
            room.register_worker(row)
        with feed.call_on_change(ChangeTopic.JOBS, hands.freed.set):
            thread.start()
            try:
                yield name
            finally:
                hands.shut_down()
                looking.stop()
                thread.join()
                # If the database is away, the leases end and its jobs are released then.
                with suppress(StorageFailed):
                    room.release_jobs_and_unregister_worker()
    finally:
        worker_records.mark_own_worker_ended(name)


class _JobThreadPool:
    """Runs the parts of claimed jobs in threads."""

    def __init__(self, kinds: Mapping[str, JobHandler], room: WorkerQueueClient, manner: WorkerConfig) -> None:
        self.kinds = kinds
        self.freed = threading.Event()
        self._room = room
        self._manner = manner
        self._at: set[str] = set()
        self._busy = 0
        self._is_leaving = False
        self._changed = threading.Condition()

    @property
    def running_job_ids(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._at)

    def start_job(self, job: ClaimedJob) -> None:
        with self._changed:
            self._at.add(job.id)
        threading.Thread(target=self._run_job_in_thread, args=(job,), name=f"job-{job.id}", daemon=True).start()

    def shut_down(self) -> None:
        """Stop starting parts, and wait for the running ones; interrupt them if they take too long."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, self._manner.shutdown_wait_s)
        self._manner.interrupt_waits()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, self._manner.shutdown_wait_s)

    def _run_job_in_thread(self, job: ClaimedJob) -> None:
        try:
            with (
                tracing.add_log_context(job=job.id),
                tracing.trace_span("job", traceparent=job.traceparent, kind=job.kind),
                suppress(_JobReleasedError),
            ):
                self._run_job(job)
        finally:
            with self._changed:
                self._at.discard(job.id)
            self.freed.set()

    def _run_job(self, job: ClaimedJob) -> None:
        """Run a job; an error that a person can fix ends it, any other is retried."""
        try:
            self._run_parts(job)
        except _JobReleasedError:
            raise
        except StorageFailed as error:
            self._record_and_log_failure(job, str(error))
        except UserError as error:
            reason = str(error)
            self._write_until_saved(lambda: self._room.mark_job_done_or_failed(job, JobState.FAILED, reason=reason))
        # Handlers are foreign code: whatever they raise must not kill the worker.
        except Exception as error:
            log.info("A part of a job failed.", exc_info=True)
            self._record_and_log_failure(
                job, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            )

    def _run_parts(self, job: ClaimedJob) -> None:
        work = self.kinds[job.kind]
        plan, results = self._write_until_saved(lambda: self._room.load_planned_parts_and_results(job))
        if plan is None:
            plan = self._run_and_save_step(
                lambda: list(work.plan_parts(job.arguments)), lambda text: self._room.save_planned_parts(job, text)
            )
        for number in range(len(results), len(plan)):
            if _has_job_spent_its_tokens(job.arguments, results):
                break
            results.append(self._run_part(job, work, number, plan[number], tuple(results)))
        result = json.dumps(work.summarize_results(results))
        self._write_until_saved(lambda: self._room.mark_job_done_or_failed(job, JobState.DONE, result=result))

    def _run_part(self, job: ClaimedJob, work: JobHandler, number: int, part: Any, before: Sequence[Any]) -> Any:
        return self._run_and_save_step(
            lambda: work.run_part(part, f"{job.id}/{number}", before),
            lambda text: self._room.save_part_result(job, number, text),
        )

    def _run_and_save_step(self, do: Callable[[], Any], keep: Callable[[str], bool]) -> Any:
        """Run one step and save its result as JSON before the next one starts."""
        with self._changed:
            if self._is_leaving:
                raise _JobReleasedError
            self._busy += 1
        try:
            text = json.dumps(do())
            if not self._write_until_saved(lambda: keep(text)):
                raise _JobReleasedError
            return json.loads(text)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _record_and_log_failure(self, job: ClaimedJob, reason: str) -> None:
        # Interrupted by the shutdown, which is not the job's fault.
        if self._is_leaving:
            return
        trouble = self._write_until_saved(lambda: self._room.record_failed_part_and_schedule_retry(job, reason))
        log.warning("The job %s failed: %s", job.id, trouble.reason)

    def _write_until_saved(self, write: Callable[[], T]) -> T:
        """Retry a write while the database is away: an unrecorded part would be run twice."""
        while True:
            try:
                return write()
            except StorageFailed as error:
                log.warning("What became of a job could not be written down yet: %s", error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_leaving, self._manner.poll_interval_s):
                        raise _JobReleasedError from None


def _has_job_spent_its_tokens(given: Mapping[str, Any], results: Sequence[Any]) -> bool:
    """Return whether the finished parts used up the job's tokens, or one reports that nothing is left."""
    told, most = [each for each in results if isinstance(each, Mapping)], given.get("tokens")
    return any(each.get("is_spent") for each in told) or (
        most is not None and sum(each.get("tokens", 0) for each in told) >= most
    )


# The longest sleep of a worker that is woken by notifications.
_LONGEST_SLEEP_S = 10.0


class _WorkerLoop:
    """The loop of a worker: renews leases, releases those that ended, and claims jobs."""

    def __init__(self, claims: WorkerQueueClient, pool: _JobThreadPool, config: WorkerConfig) -> None:
        self._claims = claims
        self._pool = pool
        self._config = config
        self._is_stopped = threading.Event()
        # When each lease that ended was first seen so.
        self._ended: dict[JobLease, float] = {}
        self._polled_at = self._signed_at = time.monotonic()
        self._left: set[str] = set()
        self._is_away = False

    def poll_until_stopped(self) -> None:
        while not self._is_stopped.is_set():
            sleep_s = self._config.poll_interval_s
            try:
                sleep_s = self._get_sleep_s(self._poll_and_claim_jobs())
                self._is_away = False
            # A failed poll must not end the worker; the first of a series is logged.
            except Exception as error:
                if not self._is_away:
                    log.warning("Could not look for jobs, and will try again: %s", error)
                self._is_away = True
                self._ended = {}
            self._pool.freed.wait(sleep_s)
            self._pool.freed.clear()

    def stop(self) -> None:
        self._is_stopped.set()
        self._pool.freed.set()

    def _get_sleep_s(self, seen: QueuePollSnapshot) -> float:
        """Return the seconds until there is something to do, unless a notification comes first."""
        feed = self._config.feed
        if feed is None or feed.get_token_of_announced_changes(ChangeTopic.JOBS) is None:
            return self._config.poll_interval_s
        if self._pool.running_job_ids or self._ended:
            return min(self._config.lease_s / 4, seen.next_event_s)
        return min(_LONGEST_SLEEP_S, seen.next_event_s)

    def _poll_and_claim_jobs(self) -> QueuePollSnapshot:
        self._renew_heartbeat_and_leases()
        seen = self._claims.read_queue_snapshot()
        self._release_jobs_of_dead_workers(seen.ended_leases)
        for kind in seen.waiting_kinds - self._pool.kinds.keys() - self._left:
            log.warning("Jobs of the kind '%s' are left to other workers: this one does none.", kind)
            self._left.add(kind)
        self._config.on_poll()
        free = self._config.concurrency - len(self._pool.running_job_ids)
        if free > 0 and seen.waiting_kinds & self._pool.kinds.keys():
            limits = self._config.concurrency_limits
            for job in self._claims.claim_jobs(self._pool.kinds, max_count=free, limits=limits):
                self._pool.start_job(job)
        return seen

    def _renew_heartbeat_and_leases(self) -> None:
        """Renew the leases of the jobs that run; an idle worker on a shared database gives a sign of life."""
        now, running = time.monotonic(), self._pool.running_job_ids
        due_s = self._config.lease_s / 4 if running else _LONGEST_SLEEP_S if self._claims.is_shared else math.inf
        # A little early, because the next look may come late.
        if now - self._signed_at >= 0.9 * due_s:
            self._claims.renew_heartbeat_and_leases(running)
            self._signed_at = now

    def _release_jobs_of_dead_workers(self, ended: frozenset[JobLease]) -> None:
        """Release the jobs of workers that died.

        On a shared database only after it has answered for one lease length: after an outage, or when this worker was
        suspended itself, the others get the time to renew theirs.
        """
        now, wait_s = time.monotonic(), self._config.lease_s if self._claims.is_shared else 0.0
        if now - self._polled_at > self._config.lease_s:
            self._ended = {}
        self._polled_at = now
        self._ended = {lease: self._ended.get(lease, now) for lease in ended}
        if over := [lease for lease, since in self._ended.items() if now - since >= wait_s]:
            self._claims.release_jobs_with_ended_leases(over)
