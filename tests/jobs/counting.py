"""Workers as processes of their own, two at a time, for jobs that kill them: whoever dies is replaced.

`python -m tests.jobs.counting ROOT` goes on until its standard input is closed. The work writes down each part that
begins and each effect it has; it kills its process where the part says so, once.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from habitus.errors import Invalid
from habitus.jobs.owners import Locks
from habitus.jobs.queue import JobQueue
from habitus.jobs.worker import Manner, working

LOOK_S = 0.05


class Counting:
    """Parts are {"die": "before" | "after" | ""}."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def plan(self, given: Mapping[str, Any]) -> Sequence[Any]:
        self._write("began", f"{given['job']}/plan")
        if given.get("die") == "plan":
            self._die_once(given["job"])
        return list(given["parts"])

    def do(self, part: Any, key: str, before: Sequence[Any]) -> Any:
        self._write("began", key)
        if part.get("fails") and not (self._root / "mended").exists():
            raise Invalid("It is not mended yet.")
        if part.get("stumbles") and not (self._root / "mended").exists():
            raise OSError("The line is dead.")
        if part["die"] == "before":
            self._die_once(key)
        with contextlib.suppress(FileExistsError):  # not twice under one key
            (self._root / "effects" / key.replace("/", ":")).touch(exist_ok=False)
        if part["die"] == "after":
            self._die_once(key)
        return {"done": 1, "tokens": part.get("tokens", 0)}

    def sum_up(self, results: Sequence[Any]) -> Any:
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
    return f"sqlite:///{root / 'jobs.db'}"


@contextlib.contextmanager
def counting(root: Path, *, concurrency: int = 2, kinds: Collection[str] = ("count",)) -> Iterator[str]:
    queue = JobQueue(url(root), connections=concurrency)
    manner = Manner(concurrency=concurrency, look_s=LOOK_S, first_wait_s=0.001)
    try:
        with working(queue, dict.fromkeys(kinds, Counting(root)), Locks(root / "workers"), manner) as name:
            yield name
    finally:
        queue.close()


def _work(root: Path) -> None:
    with counting(root, concurrency=1):
        while True:
            time.sleep(60)


def _nurse(root: Path) -> None:
    alive: set[int] = set()
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        while len(alive) < 2:
            if (child := os.fork()) == 0:
                _work(root)
            alive.add(child)
        dead, _ = os.waitpid(-1, os.WNOHANG)
        alive.discard(dead)
    for child in alive:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    _nurse(Path(sys.argv[1]))
