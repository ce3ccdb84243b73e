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
from habitus.jobs.model import FIRST_WAIT_S, JobState, Limits, Work
from habitus.jobs.queue import Room, Taken
from habitus.locks import lock, try_lock

# A worker without a heartbeat for so long counts as dead.
GONE_S = 10.0


class Owners(Protocol):
    """Tells which workers are alive."""

    def alive(self) -> AbstractContextManager[str]:
        """Register this worker and yield its name; it counts as alive until the block ends."""

    def find_gone(self, beats: Mapping[str, int]) -> list[str]:
        """Return the workers that died without releasing their jobs, given the heartbeats of the busy ones."""

    def bury(self, name: str) -> None:
        """Forget a dead worker after its jobs were released."""


class Locks:
    """Liveness on one machine: a file lock for each worker, so no clocks are compared and a death shows at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def alive(self) -> Iterator[str]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        hidden = self._folder / f".{name}"
        with lock(hidden):
            # Renamed only after locking, so the file is never visible without its lock.
            hidden.rename(self._folder / name)
            yield name

    def find_gone(self, beats: Mapping[str, int]) -> list[str]:
        files = {path.name for path in self._folder.glob("*-*")}
        return sorted(name for name in {*files, *beats} if _is_free(self._folder / name))

    def bury(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


def _is_free(path: Path) -> bool:
    if not path.exists():
        return True
    with try_lock(path) as held:
        return held is not None


class Hearts:
    """Liveness across hosts: each watcher times heartbeats with its own clock, so no two clocks are compared."""

    def __init__(self, *, gone_s: float = GONE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._gone_s = gone_s
        self._clock = clock
        # The last heartbeat of each worker, and when we first saw it.
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked: float | None = None

    @contextmanager
    def alive(self) -> Iterator[str]:
        yield f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def find_gone(self, beats: Mapping[str, int]) -> list[str]:
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

    def bury(self, name: str) -> None:
        self._seen.pop(name, None)


log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Manner:
    """Options of a worker; `on_poll` is called at every poll for jobs."""

    concurrency: int = 1
    host: str = ""
    limits: Limits = field(default_factory=Limits)
    look_s: float = 0.5
    first_wait_s: float = FIRST_WAIT_S
    # How long a shutdown waits for running parts.
    patience_s: float = PATIENCE_S
    # Interrupts whatever the parts that exceed this wait for.
    cut_off: Callable[[], object] = lambda: None
    # A job that is claimed but not running here is released after this time.
    dropped_s: float = 5.0
    each_look: Callable[[], object] = lambda: None


class _Leaving(Exception):
    """The worker shuts down, or no longer owns the job: another worker does the rest."""


@contextmanager
def working(engine: sa.Engine, kinds: Mapping[str, Work], owners: Owners, manner: Manner) -> Iterator[str]:
    """Run jobs in threads of this process until the block ends; unfinished jobs are then released.

    Running parts get some seconds to finish; otherwise another worker repeats them.
    """
    with owners.alive() as name:
        room = Room(engine, name, host=manner.host, first_wait_s=manner.first_wait_s)
        hands = _Hands(kinds, room, manner)
        looking = _Looking(room, owners, hands, manner)
        thread = threading.Thread(target=looking.run, name="jobs-look")
        thread.start()
        try:
            yield name
        finally:
            hands.rest()
            looking.stop()
            thread.join()
            # If the database is away, the worker counts as dead soon and its jobs are released then.
            with suppress(StorageFailed):
                room.leave()
            owners.bury(name)


class _Hands:
    """Runs the parts of claimed jobs in threads."""

    def __init__(self, kinds: Mapping[str, Work], room: Room, manner: Manner) -> None:
        self.kinds = kinds
        self.freed = threading.Event()
        self._room = room
        self._manner = manner
        self._at: set[str] = set()
        self._busy = 0
        self._is_leaving = False
        self._changed = threading.Condition()

    @property
    def at(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._at)

    def begin(self, job: Taken) -> None:
        with self._changed:
            self._at.add(job.id)
        threading.Thread(target=self._run, args=(job,), name=f"job-{job.id}", daemon=True).start()

    def rest(self) -> None:
        """Stop starting parts, and wait for the running ones; interrupt them if they take too long."""
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, self._manner.patience_s)
        self._manner.cut_off()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, self._manner.patience_s)

    def _run(self, job: Taken) -> None:
        try:
            with tracing.about(job=job.id), suppress(_Leaving):
                self._try(job)
        finally:
            with self._changed:
                self._at.discard(job.id)
            self.freed.set()

    def _try(self, job: Taken) -> None:
        """Run a job; an error that a person can fix ends it, any other is retried."""
        try:
            self._do(job)
        except _Leaving:
            raise
        except StorageFailed as error:
            self._report(job, str(error))
        except UserError as error:
            reason = str(error)
            self._write_patiently(lambda: self._room.finish(job, JobState.FAILED, reason=reason))
        # A failed poll must not end the worker; the first of a series is logged.
        # Handlers are foreign code: whatever they raise must not kill the worker.
        except Exception as error:
            log.info("A part of a job failed.", exc_info=True)
            self._report(job, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)

    def _do(self, job: Taken) -> None:
        work = self.kinds[job.kind]
        plan, results = self._write_patiently(lambda: self._room.known_parts(job))
        if plan is None:
            plan = self._step(lambda: list(work.plan(job.given)), lambda text: self._room.keep_plan(job, text))
        for number in range(len(results), len(plan)):
            if _is_spent(job.given, results):
                break
            results.append(self._part(job, work, number, plan[number], tuple(results)))
        result = json.dumps(work.sum_up(results))
        self._write_patiently(lambda: self._room.finish(job, JobState.DONE, result=result))

    def _part(self, job: Taken, work: Work, number: int, part: Any, before: Sequence[Any]) -> Any:
        return self._step(
            lambda: work.do(part, f"{job.id}/{number}", before), lambda text: self._room.keep_part(job, number, text)
        )

    def _step(self, do: Callable[[], Any], keep: Callable[[str], bool]) -> Any:
        """Run one step and save its result as JSON before the next one starts."""
        with self._changed:
            if self._is_leaving:
                raise _Leaving
            self._busy += 1
        try:
            text = json.dumps(do())
            if not self._write_patiently(lambda: keep(text)):
                raise _Leaving
            return json.loads(text)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _report(self, job: Taken, reason: str) -> None:
        # Interrupted by the shutdown, which is not the job's fault.
        if self._is_leaving:
            return
        trouble = self._write_patiently(lambda: self._room.record_failure(job, reason))
        log.warning("The job %s failed: %s", job.id, trouble.reason)

    def _write_patiently(self, write: Callable[[], T]) -> T:
        """Retry a write while the database is away: an unrecorded part would be run twice."""
        while True:
            try:
                return write()
            except StorageFailed as error:
                log.warning("What became of a job could not be written down yet: %s", error)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_leaving, self._manner.look_s):
                        raise _Leaving from None


def _is_spent(given: Mapping[str, Any], results: Sequence[Any]) -> bool:
    """Return whether the finished parts used up the job's tokens, or one reports that nothing is left."""
    told, most = [each for each in results if isinstance(each, Mapping)], given.get("tokens")
    return any(each.get("is_spent") for each in told) or (
        most is not None and sum(each.get("tokens", 0) for each in told) >= most
    )


class _Looking:
    """The polling loop of a worker: heartbeats, dead workers, dropped jobs and new claims."""

    def __init__(self, room: Room, owners: Owners, hands: _Hands, manner: Manner) -> None:
        self._room = room
        self._owners = owners
        self._hands = hands
        self._manner = manner
        self._is_stopped = threading.Event()
        # When each claimed job was first seen not running.
        self._dropped: dict[str, float] = {}
        self._left: set[str] = set()
        self._is_away = False

    def run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._look()
                self._is_away = False
            except Exception as error:
                if not self._is_away:
                    log.warning("Could not look for jobs, and will try again: %s", error)
                self._is_away = True
            self._hands.freed.wait(self._manner.look_s)
            self._hands.freed.clear()

    def stop(self) -> None:
        self._is_stopped.set()
        self._hands.freed.set()

    def _look(self) -> None:
        if self._hands.at:
            self._room.beat()
        seen = self._room.look()
        for name in self._owners.find_gone(seen.beats):
            self._room.inherit(name)
            self._owners.bury(name)
        self._pick_up(seen.begun)
        for kind in seen.waiting - self._hands.kinds.keys() - self._left:
            log.warning("Jobs of the kind '%s' are left to other workers: this one does none.", kind)
            self._left.add(kind)
        self._manner.each_look()
        free = self._manner.concurrency - len(self._hands.at)
        if free > 0 and seen.waiting & self._hands.kinds.keys():
            for job in self._room.take(self._hands.kinds, hands=free, limits=self._manner.limits):
                self._hands.begin(job)

    def _pick_up(self, begun: frozenset[str]) -> None:
        """Release jobs that count as running here but do not run: they were lost while the database was away."""
        now, idle = time.monotonic(), begun - self._hands.at
        self._dropped = {id: self._dropped.get(id, now) for id in idle}
        if dropped := [id for id, since in self._dropped.items() if now - since > self._manner.dropped_s]:
            self._room.put_back(dropped)
