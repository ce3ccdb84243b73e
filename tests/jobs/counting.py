"""Workers as processes of their own, some at a time, for jobs that kill them: whoever dies is replaced.

`python -m tests.jobs.counting ROOT [SECONDS]` goes on until its standard input is closed, and kills a worker every so
many seconds. The work writes down each part that begins and each effect it has; it kills its process where a part says
so, once. ROOT/url names the database, if it is not SQLite.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from habitus import sql
from habitus.errors import Invalid
from habitus.jobs.model import Job, JobConcurrencyLimits, JobState
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import WorkerConfig, run_worker_until_block_ends
from habitus.sql.change_notifications import ChangeFeed
from tests.homes import migrated

LOOK_S = 0.05
GONE_S = 5.0  # on a busy machine a write may take seconds, and whoever lives must not count as gone


class Counting:
    """Parts are {"die": "before" | "after" | "always" | ""}; one takes `takes_s`, unless ROOT/hurry is there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def plan_parts(self, given: Mapping[str, Any]) -> Sequence[Any]:
        self._write("began", f"{given['job']}/plan")
        if given.get("die") == "plan":
            self._die_once(given["job"])
        return list(given["parts"])

    def run_part(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        self._write("began", key)
        if part.get("fails") and not (self._root / "fixed").exists():
            raise Invalid("It is not fixed yet.")
        if part.get("stumbles") and not (self._root / "fixed").exists():
            raise OSError("The line is dead.")
        if part["die"] == "before":
            self._die_once(key)
        if part["die"] == "always":
            os.kill(os.getpid(), signal.SIGKILL)
        if part.get("takes_s") and not (self._root / "hurry").exists():
            time.sleep(part["takes_s"])
        with contextlib.suppress(FileExistsError):  # not twice under one key
            (self._root / "effects" / key.replace("/", ":")).touch(exist_ok=False)
        if part["die"] == "after":
            self._die_once(key)
        self._write("ended", key)
        return {"done": 1, "tokens": part.get("tokens", 0)}

    def summarize_results(self, results: Sequence[Any]) -> Any:
        return sum(each["done"] for each in results)

    def _write(self, name: str, line: str) -> None:
        with (self._root / name).open("a") as written:
            written.write(f"{line}\n")

    def _die_once(self, key: str) -> None:
        try:
            (self._root / "deaths" / key.replace("/", ":")).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def url(root: Path) -> str:
    named = root / "url"
    return named.read_text() if named.exists() else sql.build_sqlite_url(migrated(root / "habitus.db"))


@contextlib.contextmanager
def queue_at(address: str) -> Iterator[JobQueue]:
    engine = sql.open_engine_with_current_schema(address, connections=1, dedicated=True)
    try:
        yield JobQueue(engine)
    finally:
        engine.dispose()


@contextlib.contextmanager
def counting(
    root: Path,
    *,
    concurrency: int = 2,
    kinds: Collection[str] = ("count",),
    per_model: int = 0,
    gone_s: float = GONE_S,
) -> Iterator[str]:
    listening = sql.create_engine(url(root))
    manner = WorkerConfig(
        concurrency=concurrency,
        poll_interval_s=LOOK_S,
        first_retry_delay_s=0.001,
        concurrency_limits=JobConcurrencyLimits(per_model=per_model),
        lease_s=gone_s / 2,  # half of it to end, and half for its worker to come back
        feed=ChangeFeed(listening),
    )
    with (
        queue_at(url(root)) as queue,
        run_worker_until_block_ends(queue.engine, dict.fromkeys(kinds, Counting(root)), manner) as name,
    ):
        yield name
    listening.dispose()


def until(is_so: Callable[[], bool], *, longest_s: float = 600) -> None:
    end = time.monotonic() + longest_s
    while not is_so():
        assert time.monotonic() < end, "It took too long."
        time.sleep(0.05)


def begun(root: Path) -> list[str]:
    return (root / "began").read_text().splitlines()


def check(root: Path, jobs: Sequence[Job]) -> None:
    """No job is lost, no effect is there twice, and no part begins again once the next one has begun: then it was
    kept."""
    lines = begun(root)
    for job in jobs:
        assert (job.state, job.result) == (JobState.DONE, job.parts_total), job
        keys = [f"{job.id}/plan", *(f"{job.id}/{number}" for number in range(job.parts_total or 0))]
        order = [keys.index(key) for key in lines if key in set(keys)]
        assert order == sorted(order), order
        assert set(order) == set(range(len(keys)))
    assert len(list((root / "effects").iterdir())) == sum(job.parts_total or 0 for job in jobs)


def _work(root: Path, gone_s: float = GONE_S) -> None:
    with counting(root, concurrency=1, gone_s=gone_s):
        while True:
            time.sleep(60)


def _nurse(root: Path, kills_s: float) -> None:
    alive: set[int] = set()
    due = time.monotonic() + kills_s
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        while len(alive) < 2:
            if (child := os.fork()) == 0:
                _work(root)
            alive.add(child)
        if kills_s and time.monotonic() > due:
            os.kill(random.choice(sorted(alive)), signal.SIGKILL)
            due = time.monotonic() + kills_s * random.uniform(0.2, 1.8)
        dead, _ = os.waitpid(-1, os.WNOHANG)
        alive.discard(dead)
    for child in alive:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    _nurse(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
