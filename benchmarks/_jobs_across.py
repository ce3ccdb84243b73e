"""Jobs a second with 1, 2 and 4 workers on one database; their parts do nothing, so only the engine counts."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping, Sequence
from multiprocessing.synchronize import Event
from typing import Any

from _report import Metrics, progress
from habitus import sql
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import WorkerConfig, run_worker_until_block_ends
from habitus.sql.change_notifications import get_change_feed

_SPAWN = multiprocessing.get_context("spawn")
_PARTS, _HANDS = 3, 4


class Nothing:
    """Work that is done at once."""

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        return list(range(_PARTS))

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        return part

    def summarize_results(self, results: Sequence[Any]) -> Any:
        return len(results)


def jobs_across(url: str, *, jobs: int = 200, workers: Sequence[int] = (1, 2, 4)) -> Metrics:
    """Jobs a second by how many worker processes there are, each with four hands, at a PostgreSQL address."""
    return {f"{count} workers": round(_rate(url, jobs, count), 1) for count in workers}


def _rate(url: str, jobs: int, workers: int) -> float:
    progress(f"{jobs} jobs with {workers} workers …")
    engine, stop = sql.open_engine_with_current_schema(url), _SPAWN.Event()
    queue = JobQueue(engine)
    ready = [_SPAWN.Event() for _ in range(workers)]
    processes = [_SPAWN.Process(target=_work, args=(url, each, stop)) for each in ready]
    for process in processes:
        process.start()
    for each in ready:
        each.wait()
    began = time.perf_counter()
    for _ in range(jobs):
        queue.add_job("nothing", {})
    while queue.count_unfinished_jobs():
        time.sleep(0.05)
    took = time.perf_counter() - began
    stop.set()
    for process in processes:
        process.join()
    engine.dispose()
    return jobs / took


def _work(url: str, ready: Event, stop: Event) -> None:
    engine = sql.open_engine_with_current_schema(url, connections=1, dedicated=True)
    feed = get_change_feed(sql.open_engine_with_current_schema(url))
    with run_worker_until_block_ends(engine, {"nothing": Nothing()}, WorkerConfig(concurrency=_HANDS, feed=feed)):
        ready.set()
        stop.wait()
    engine.dispose()
