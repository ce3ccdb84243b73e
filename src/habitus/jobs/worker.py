"""A worker: claims jobs and runs them part by part, including those of workers that died."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

from habitus import tracing
from habitus.errors import StorageFailed, UserError
from habitus.jobs.model import FIRST_RETRY_DELAY_S, ConcurrencyLimits, JobHandler, JobState
from habitus.jobs.queue import ClaimedJob, JobClaims
from habitus.locks import hold_lock, try_lock

# A worker without a heartbeat for so long counts as dead.
DEAD_AFTER_S = 10.0


class Liveness(Protocol):
    """Tells which workers are alive."""

    def register_worker(self) -> AbstractContextManager[str]:
        """Register this worker and yield its name; it counts as alive until the block ends."""

    def find_dead_workers(self, beats: Mapping[str, int]) -> list[str]:
        """Return the workers that died without releasing their jobs, given the heartbeats of the busy ones."""

    def forget_worker(self, name: str) -> None:
        """Forget a dead worker after its jobs were released."""


class FileLockLiveness:
    """Liveness on one machine: a file lock for each worker, so no clocks are compared and a death shows at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def register_worker(self) -> Iterator[str]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        hidden = self._folder / f".{name}"
        with hold_lock(hidden):
            # Renamed only after locking, so the file is never visible without its lock.
            hidden.rename(self._folder / name)
            yield name

    def find_dead_workers(self, beats: Mapping[str, int]) -> list[str]:
        files = {path.name for path in self._folder.glob("*-*")}
        return sorted(name for name in {*files, *beats} if _is_unlocked(self._folder / name))

    def forget_worker(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


def _is_unlocked(path: Path) -> bool:
    if not path.exists():
        return True
    with try_lock(path) as held:
        return held is not None


class HeartbeatLiveness:
    """Liveness across hosts: each watcher times heartbeats with its own clock, so no two clocks are compared."""

    def __init__(self, *, dead_after_s: float = DEAD_AFTER_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._gone_s = dead_after_s
        self._clock = clock
        # The last heartbeat of each worker, and when we first saw it.
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked: float | None = None

    @contextmanager
    def register_worker(self) -> Iterator[str]:
        yield f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def find_dead_workers(self, beats: Mapping[str, int]) -> list[str]:
        now = self._clock()
        if self._looked is None or now - self._looked > self._gone_s / 2:
            # After a gap in our own watching, silence proves nothing, so all timers restart.
            self._seen = {}
        self._looked = now
        before = self._seen
        self._seen = {
            name: before[name] if name in before and before[name][0] == beat else (beat, now)
            for name, beat in beats.items()
        }
        return sorted(name for name, (_, since) in self._seen.items() if now - since > self._gone_s)

    def forget_worker(self, name: str) -> None:
        self._seen.pop(name, None)


log = logging.getLogger(__name__)

T = TypeVar("T")

SHUTDOWN_WAIT_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerConfig:
    """Options of a worker; `on_poll` is called at every poll for jobs."""

    concurrency: int = 1
    host: str = ""
    concurrency_limits: ConcurrencyLimits = field(default_factory=ConcurrencyLimits)
    poll_interval_s: float = 0.5
    first_retry_delay_s: float = FIRST_RETRY_DELAY_S
    # How long a shutdown waits for running parts.
    shutdown_wait_s: float = SHUTDOWN_WAIT_S
    # Interrupts whatever the parts that exceed this wait for.
    interrupt_waits: Callable[[], object] = lambda: None
    # A job that is claimed but not running here is released after this time.
    release_after_s: float = 5.0
    on_poll: Callable[[], object] = lambda: None


class _JobReleased(Exception):
    """The worker shuts down, or no longer owns the job: another worker does the rest."""


@contextmanager
def run_worker(
    engine: sa.Engine, handlers: Mapping[str, JobHandler], liveness: Liveness, config: WorkerConfig
) -> Iterator[str]:
    """Run jobs in threads of this process until the block ends; unfinished jobs are then released.

    Running parts get some seconds to finish; otherwise another worker repeats them.
    """
    with liveness.register_worker() as name:
        room = JobClaims(engine, name, host=config.host, first_wait_s=config.first_retry_delay_s)
        hands = _WorkerPool(handlers, room, config)
        looking = _WorkerLoop(room, liveness, hands, config)
        thread = threading.Thread(target=looking.poll_until_stopped, name="jobs-look")
        thread.start()
        try:
            yield name
        finally:
            hands.shut_down()
            looking.stop()
            thread.join()
            # If the database is away, the worker counts as dead soon and its jobs are released then.
            with suppress(StorageFailed):
                room.release_all_jobs()
            liveness.forget_worker(name)


class _WorkerPool:
    """Runs the parts of claimed jobs in threads."""

    def __init__(self, kinds: Mapping[str, JobHandler], room: JobClaims, manner: WorkerConfig) -> None:
        self.kinds = kinds
        self.freed = threading.Event()
        self._room = room
        self._manner = manner
        self._at: set[str] = set()
        self._busy = 0
        self._is_leaving = False
        self._changed = threading.Condition()

    @property
    def running_jobs(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._at)

    def start_job(self, job: ClaimedJob) -> None:
        with self._changed:
            self._at.add(job.id)
        threading.Thread(target=self._run_in_thread, args=(job,), name=f"job-{job.id}", daemon=True).start()

    def shut_down(self) -> None:
        """Stop starting parts, and wait for the running ones; interrupt them if they take too long."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, self._manner.shutdown_wait_s)
        self._manner.interrupt_waits()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, self._manner.shutdown_wait_s)

    def _run_in_thread(self, job: ClaimedJob) -> None:
        try:
            with tracing.add_log_context(job=job.id), suppress(_JobReleased):
                self._run_job(job)
        finally:
            with self._changed:
                self._at.discard(job.id)
            self.freed.set()

    def _run_job(self, job: ClaimedJob) -> None:
        """Run a job; an error that a person can fix ends it, any other is retried."""
        try:
            self._run_parts(job)
        except _JobReleased:
            raise
        except StorageFailed as error:
            self._report_failure(job, str(error))
        except UserError as error:
            reason = str(error)
            self._write_until_saved(lambda: self._room.finish_job(job, JobState.FAILED, reason=reason))
        # A failed poll must not end the worker; the first of a series is logged.
        # Handlers are foreign code: whatever they raise must not kill the worker.
        except Exception as error:
            log.info("A part of a job failed.", exc_info=True)
            self._report_failure(job, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    def _run_parts(self, job: ClaimedJob) -> None:
        work = self.kinds[job.kind]
        plan, results = self._write_until_saved(lambda: self._room.load_parts(job))
        if plan is None:
            plan = self._run_step(
                lambda: list(work.plan_parts(job.arguments)), lambda text: self._room.save_plan(job, text)
            )
        for number in range(len(results), len(plan)):
            if _is_budget_spent(job.arguments, results):
                break
            results.append(self._run_part(job, work, number, plan[number], tuple(results)))
        result = json.dumps(work.summarize_results(results))
        self._write_until_saved(lambda: self._room.finish_job(job, JobState.DONE, result=result))

    def _run_part(self, job: ClaimedJob, work: JobHandler, number: int, part: Any, before: Sequence[Any]) -> Any:
        return self._run_step(
            lambda: work.run_part(part, f"{job.id}/{number}", before),
            lambda text: self._room.save_part_result(job, number, text),
        )

    def _run_step(self, do: Callable[[], Any], keep: Callable[[str], bool]) -> Any:
        """Run one step and save its result as JSON before the next one starts."""
        with self._changed:
            if self._is_leaving:
                raise _JobReleased
            self._busy += 1
        try:
            text = json.dumps(do())
            if not self._write_until_saved(lambda: keep(text)):
                raise _JobReleased
            return json.loads(text)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _report_failure(self, job: ClaimedJob, reason: str) -> None:
        # Interrupted by the shutdown, which is not the job's fault.
        if self._is_leaving:
            return
        trouble = self._write_until_saved(lambda: self._room.record_failure(job, reason))
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
                        raise _JobReleased from None


def _is_budget_spent(given: Mapping[str, Any], results: Sequence[Any]) -> bool:
    """Return whether the finished parts used up the job's tokens, or one reports that nothing is left."""
    told, most = [each for each in results if isinstance(each, Mapping)], given.get("tokens")
    return any(each.get("is_spent") for each in told) or (
        most is not None and sum(each.get("tokens", 0) for each in told) >= most
    )


class _WorkerLoop:
    """The polling loop of a worker: heartbeats, dead workers, dropped jobs and new claims."""

    def __init__(self, room: JobClaims, owners: Liveness, hands: _WorkerPool, manner: WorkerConfig) -> None:
        self._room = room
        self._owners = owners
        self._hands = hands
        self._manner = manner
        self._is_stopped = threading.Event()
        # When each claimed job was first seen not running.
        self._dropped: dict[str, float] = {}
        self._left: set[str] = set()
        self._is_away = False

    def poll_until_stopped(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._poll()
                self._is_away = False
            except Exception as error:
                if not self._is_away:
                    log.warning("Could not look for jobs, and will try again: %s", error)
                self._is_away = True
            self._hands.freed.wait(self._manner.poll_interval_s)
            self._hands.freed.clear()

    def stop(self) -> None:
        self._is_stopped.set()
        self._hands.freed.set()

    def _poll(self) -> None:
        if self._hands.running_jobs:
            self._room.send_heartbeat()
        seen = self._room.take_snapshot()
        for name in self._owners.find_dead_workers(seen.beats):
            self._room.release_dead_worker_jobs(name)
            self._owners.forget_worker(name)
        self._release_dropped_jobs(seen.own_running_jobs)
        for kind in seen.waiting_kinds - self._hands.kinds.keys() - self._left:
            log.warning("Jobs of the kind '%s' are left to other workers: this one does none.", kind)
            self._left.add(kind)
        self._manner.on_poll()
        free = self._manner.concurrency - len(self._hands.running_jobs)
        if free > 0 and seen.waiting_kinds & self._hands.kinds.keys():
            for job in self._room.claim_jobs(self._hands.kinds, max_count=free, limits=self._manner.concurrency_limits):
                self._hands.start_job(job)

    def _release_dropped_jobs(self, begun: frozenset[str]) -> None:
        """Release jobs that count as running here but do not run: they were lost while the database was away."""
        now, idle = time.monotonic(), begun - self._hands.running_jobs
        self._dropped = {id: self._dropped.get(id, now) for id in idle}
        if dropped := [id for id, since in self._dropped.items() if now - since > self._manner.release_after_s]:
            self._room.release_jobs(dropped)
