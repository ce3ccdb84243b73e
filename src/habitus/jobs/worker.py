"""A worker: takes jobs from the queue and does them part by part, its own and those of workers that died."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from dbos import DBOS, DBOSConfig

from habitus.errors import NotFound
from habitus.jobs.engine import APPLICATION, FORMAT, PLAN, QUEUE, WORKFLOW, Json
from habitus.jobs.model import Work
from habitus.jobs.owners import Owners

log = logging.getLogger(__name__)

_MOST_DEATHS = 20  # of workers with one job before it is parked


class _Leaving(BaseException):
    """The worker leaves before the next part. No Exception, which the engine would take for the job's own."""


@contextmanager
def working(
    url: str,
    kinds: Mapping[str, Work],
    owners: Owners,
    *,
    concurrency: int = 1,
    look_s: float = 0.5,
    patience_s: float = 10.0,
) -> Iterator[str]:
    """Work on jobs in threads of this process until the block is left; their other parts are then for others.

    Parts that run at that time have `patience_s` to end: else somebody does them again. Only one block at a time in a
    process: the engine is one.
    """
    with owners.alive() as name:
        DBOS(config=_config(url, name, look_s))
        hands = _Hands(kinds)
        leaving = threading.Event()
        watch = threading.Thread(target=_take_over, args=(owners, leaving, look_s), name="jobs-take-over")
        try:
            hands.register()
            DBOS.listen_queues([QUEUE])
            DBOS.launch()
            DBOS.register_queue(QUEUE, worker_concurrency=concurrency, polling_interval_sec=look_s)
            watch.start()
            try:
                yield name
            finally:
                leaving.set()
                hands.rest(patience_s)
                watch.join()
        finally:
            DBOS.destroy(destroy_registry=True)


class _Hands:
    """Does the parts, and knows how many it is at."""

    def __init__(self, kinds: Mapping[str, Work]) -> None:
        self._kinds = kinds
        self._busy = 0
        self._is_leaving = False
        self._changed = threading.Condition()

    def register(self) -> None:
        @DBOS.workflow(name=WORKFLOW, max_recovery_attempts=_MOST_DEATHS)
        def job(kind: str, given: dict[str, Any]) -> Any:
            work = self._kinds.get(kind)
            if work is None:
                raise NotFound(f"This worker knows no jobs of the kind '{kind}'.", mend="Upgrade it.")
            parts = self._step(PLAN, lambda: list(work.plan(given)))
            results: list[Any] = []
            for number, part in enumerate(parts):
                key = f"{DBOS.workflow_id}/{number}"
                results.append(self._step(key, partial(work.do, part, key, tuple(results))))
            return work.sum_up(results)

    def rest(self, patience_s: float) -> None:
        with self._changed:
            self._is_leaving = True
            self._changed.wait_for(lambda: not self._busy, patience_s)

    def _step(self, name: str, do: Callable[[], Any]) -> Any:
        with self._changed:
            if self._is_leaving:
                raise _Leaving
            self._busy += 1
        try:
            return DBOS.run_step({"name": name}, do)
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()


def _config(url: str, name: str, look_s: float) -> DBOSConfig:
    return DBOSConfig(
        name=APPLICATION,
        system_database_url=url,
        application_version=FORMAT,
        executor_id=name,
        serializer=Json(),
        log_level="WARNING",
        sys_db_pool_size=2,
        notification_listener_polling_interval_sec=look_s,
        scheduler_polling_interval_sec=look_s,
    )


def _take_over(owners: Owners, leaving: threading.Event, look_s: float) -> None:
    """Put back into the queue what dead workers had taken from it. Two that do so at once do no harm: the engine puts
    back only what still belongs to the dead."""
    while True:
        try:
            for name in owners.gone():
                DBOS._recover_pending_workflows([name])  # the engine recovers by itself only what is its own
                owners.bury(name)
        except Exception:
            log.warning("Could not look for workers that died; the next look will.", exc_info=True)
        if leaving.wait(look_s):
            return
