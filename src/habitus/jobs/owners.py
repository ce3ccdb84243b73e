"""Which workers are alive: on one machine each holds a lock that its death lets go; across hosts their hearts beat."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from habitus.locks import lock, try_lock

GONE_S = 10.0  # without a beat


class Owners(Protocol):
    def alive(self) -> AbstractContextManager[str]:
        """A name for this worker, which counts as alive until the block is left."""

    def gone(self, beats: Mapping[str, int]) -> list[str]:
        """Those of the workers, given with the beats of their hearts, that died without saying so."""

    def bury(self, name: str) -> None:
        """Nothing is left of it that anybody would have to take over."""


class Locks:
    """A lock on a file for each: no clock is compared, and nobody waits longer than for the next look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def alive(self) -> Iterator[str]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        hidden = self._folder / f".{name}"
        with lock(hidden):
            hidden.rename(self._folder / name)  # never seen without its lock
            yield name

    def gone(self, beats: Mapping[str, int]) -> list[str]:
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
    """Who watches counts beats by its own clock, which never goes back: the clocks of two hosts are not compared."""

    def __init__(self, *, gone_s: float = GONE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._gone_s = gone_s
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}  # the last beat, and when it was new to us
        self._looked: float | None = None

    @contextmanager
    def alive(self) -> Iterator[str]:
        yield f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def gone(self, beats: Mapping[str, int]) -> list[str]:
        now = self._clock()
        if self._looked is None or now - self._looked > self._gone_s / 2:
            self._seen = {}  # who could not look has seen nobody die
        self._looked = now
        before = self._seen
        self._seen = {
            name: before[name] if name in before and before[name][0] == beat else (beat, now)
            for name, beat in beats.items()
        }
        return sorted(name for name, (_, since) in self._seen.items() if now - since > self._gone_s)

    def bury(self, name: str) -> None:
        self._seen.pop(name, None)
