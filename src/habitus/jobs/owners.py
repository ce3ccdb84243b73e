"""Which workers are alive: each holds a lock on a file of its own, which its death lets go, however it died."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Owners:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def alive(self) -> Iterator[str]:
        """A name for this worker, which counts as alive until the block is left. Its file stays: what it had begun is
        for others."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        with (self._folder / f".{name}").open("x") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            Path(held.name).rename(self._folder / name)  # never seen without its lock
            yield name

    def gone(self) -> list[str]:
        """Those that died without saying so."""
        return [path.name for path in sorted(self._folder.glob("*-*")) if _is_free(path)]

    def bury(self, name: str) -> None:
        """Nothing is left of it that anybody would have to take over."""
        (self._folder / name).unlink(missing_ok=True)


def _is_free(path: Path) -> bool:
    try:
        with path.open() as seen:
            fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError):
        return False
    return True
