"""Locks on files and folders for one process at a time, released when the block ends or the process dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from habitus import operating_system
from habitus.errors import StorageFailed

LOCK_TIMEOUT_S = 60.0
_RETRY_INTERVAL_S = 0.02


@contextmanager
def hold_lock(path: Path, *, shared: bool = False, wait_s: float = LOCK_TIMEOUT_S) -> Iterator[int]:
    """Hold a lock, exclusively or shared, and yield its descriptor; raise StorageFailed after `wait_s` seconds."""
    descriptor = acquire_lock(path, shared=shared, wait_s=wait_s)
    if descriptor is None:
        what = f"Another process of Habitus has held {path} for {wait_s:.0f} s."
        raise StorageFailed(what, hint="Retry when it is done, or stop it.")
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: Path, *, wait_s: float = 0.0) -> Iterator[int | None]:
    """Yield the descriptor of an exclusive lock; None if another process holds it for `wait_s` seconds."""
    descriptor = acquire_lock(path, wait_s=wait_s)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def acquire_lock(path: Path, *, shared: bool = False, wait_s: float = 0.0) -> int | None:
    """Return the descriptor of a lock, held until it is closed; None if others held it all the time.

    Creates a missing file. A folder is locked itself.
    """
    try:
        descriptor = operating_system.open_lock_file(path)
    except OSError as error:
        raise StorageFailed(f"Can't lock {path}: {error.strerror}.", hint="Check its permissions.") from None
    until = time.monotonic() + wait_s
    while True:
        try:
            # Polled instead of blocking, because such locks have no timeout.
            if operating_system.try_lock_descriptor(descriptor, shared=shared):
                return descriptor
            if time.monotonic() < until:
                time.sleep(_RETRY_INTERVAL_S)
                continue
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None
