"""A worker: takes jobs from the waiting room and does them part by part, its own and those of workers that died."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dbos import DBOS, DBOSConfig

from habitus import tracing
from habitus.errors import StorageFailed, UserError
from habitus.jobs.engine import APPLICATION, FORMAT, PLAN, WORKFLOW, Json, own_queue
from habitus.jobs.model import Work
from habitus.jobs.owners import Owners
from habitus.jobs.queue import JobQueue
from habitus.jobs.room import Room
from habitus.jobs.rules import FIRST_WAIT_S, Limits
from habitus.jobs.store import JobStore

log = logging.getLogger(__name__)

PATIENCE_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Manner:
    """How a worker works: how many jobs at a time, on which host, within which limits, how often it looks for some, and
    how soon it tries again. `each_look` is called whenever it looks."""

    concurrency: int = 1
    host: str = ""
    limits: Limits = field(default_factory=Limits)
    look_s: float = 0.5
    first_wait_s: float = FIRST_WAIT_S
    patience_s: float = PATIENCE_S  # for parts that run when it leaves
    cut_off: Callable[[], object] = lambda: None  # ends what those wait for that have used it up
    dropped_s: float = 5.0  # after which a job that nobody here is at is put back
    each_look: Callable[[], object] = lambda: None


class _Leaving(BaseException):
    """The worker leaves before the next part. No Exception, which the engine would take for the job's own."""


class _Failed(BaseException):
    """A part failed in a way that may be over the next time; the engine must not keep it as what the part came to."""


@contextmanager
def working(queue: JobQueue, kinds: Mapping[str, Work], owners: Owners, manner: Manner) -> Iterator[str]:
    """Work on jobs in threads of this process until the block is left; their other parts are then for others.

    Parts that run at that time have some patience to end: else somebody does them again. Only one block at a time in a
    process: the engine is one.
    """
    with owners.alive() as name:
        room = Room(queue.store, name, host=manner.host, first_wait_s=manner.first_wait_s)
        hands = _Hands(kinds, room, manner)
        looking = _Looking(room, owners, hands, manner, partial(_register, queue, name, manner))
        DBOS(config=_config(queue.store, name))
        try:
            hands.register()
            looking.open_queue()
            DBOS.listen_queues([own_queue(name)])
            DBOS.launch()
            thread = threading.Thread(target=looking.run, name="jobs-look")
            thread.start()
            try:
                yield name
            finally:
                hands.rest()
                looking.stop()
                thread.join()
        finally:
            DBOS.destroy(destroy_registry=True)
            with suppress(StorageFailed):  # else it counts as dead soon, and what it has left is for others then
                room.leave()
            owners.bury(name)


def _register(queue: JobQueue, name: str, manner: Manner) -> None:
    queue.open_for(name, hands=manner.concurrency, look_s=manner.look_s)


def _config(store: JobStore, name: str) -> DBOSConfig:
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=store.url,
        system_database_engine=store.engine,
        dbos_system_schema=store.schema,
        application_version=FORMAT,
        executor_id=name,
        serializer=Json(),
        log_level="ERROR",
        use_listen_notify=False,  # a listener would take a connection, and nobody waits for what it hears
        run_migrations=False,
    )


class _Hands:
    """Does the parts, and knows which jobs it is at."""

    def __init__(self, kinds: Mapping[str, Work], room: Room, manner: Manner) -> None:
        self.kinds = kinds
        self.freed = threading.Event()
        self._room = room
        self._manner = manner
        self._at: list[str] = []
        self._busy = 0
        self._is_leaving = False
        self._changed = threading.Condition()

    def register(self) -> None:
        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=None)
        def job(kind: str, given: dict[str, Any]) -> Any:
            id = DBOS.workflow_id or ""
            with self._changed:
                self._at.append(id)
            try:
                with tracing.about(job=id):
                    return self._done(id, self.kinds[kind], given)
            except _Failed as failed:
                self._report(id, str(failed))
                raise _Leaving from None
            finally:
                with self._changed:
                    self._at.remove(id)
                self.freed.set()

    def rest(self) -> None:
        with self._changed:
            self._is_leaving = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, self._manner.patience_s)
        self._manner.cut_off()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, self._manner.patience_s)

    @property
    def at(self) -> frozenset[str]:
        with self._changed:
            return frozenset(self._at)

    def _done(self, id: str, work: Work, given: Mapping[str, Any]) -> Any:
        parts = self._step(PLAN, lambda: list(work.plan(given)))
        results: list[Any] = []
        for number, part in enumerate(parts):
            if _is_spent(given, results):
                break
            key = f"{id}/{number}"
            results.append(self._step(key, partial(work.do, part, key, tuple(results))))
        return work.sum_up(results)

    def _step(self, name: str, do: Callable[[], Any]) -> Any:
        with self._changed:
            if self._is_leaving:
                raise _Leaving
            self._busy += 1
        try:
            return DBOS.run_step({"name": name}, _attempt, do)
        except _Failed:
            if self._is_leaving:  # it was cut off, which is no fault of its own
                raise _Leaving from None
            raise
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _report(self, id: str, reason: str) -> None:
        """Until it is written down: a job that nobody knows to have stopped would never be tried again."""
        while True:
            try:
                trouble = self._room.failed(id, reason)
            except StorageFailed:
                log.warning("That the job %s failed could not be written down yet.", id)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_leaving, self._manner.look_s):
                        return
            else:
                log.warning("The job %s failed: %s", id, trouble.reason)
                return


def _attempt(do: Callable[[], Any]) -> Any:
    """What a person could mend is what the part came to; all else is worth another try."""
    try:
        return do()
    except StorageFailed as error:
        raise _Failed(str(error)) from error
    except UserError:
        raise
    except Exception as error:  # a job's own, whatever it is
        log.info("A part of a job failed.", exc_info=True)
        raise _Failed(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error


def _is_spent(given: Mapping[str, Any], results: Sequence[Any]) -> bool:
    """Whether the parts that are done took the tokens that the job may take."""
    most = given.get("tokens")
    return most is not None and sum(each.get("tokens", 0) for each in results if isinstance(each, Mapping)) >= most


class _Looking:
    """Whatever a worker does besides its jobs, again and again, in a thread of its own."""

    def __init__(
        self, room: Room, owners: Owners, hands: _Hands, manner: Manner, open_queue: Callable[[], None]
    ) -> None:
        self.open_queue = open_queue
        self._room = room
        self._owners = owners
        self._hands = hands
        self._manner = manner
        self._is_stopped = threading.Event()
        self._dropped: dict[str, float] = {}  # since when
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
        if not self._room.beat():
            self.open_queue()  # it was away so long that others took it for dead
        for name in self._owners.gone(self._room.beats()):
            self._room.inherit(name)
            self._owners.bury(name)
        self._pick_up()
        for kind in self._room.unknown(self._hands.kinds) - self._left:
            log.warning("Jobs of the kind '%s' are left to other workers: this one does none.", kind)
            self._left.add(kind)
        self._manner.each_look()
        self._room.take(self._hands.kinds, hands=self._manner.concurrency, limits=self._manner.limits)

    def _pick_up(self) -> None:
        """What counts as running here and does not run, look after look, was dropped when the database was away."""
        now, idle = time.monotonic(), self._room.begun() - self._hands.at
        self._dropped = {id: self._dropped.get(id, now) for id in idle}
        if dropped := [id for id, since in self._dropped.items() if now - since > self._manner.dropped_s]:
            self._room.put_back(dropped)
