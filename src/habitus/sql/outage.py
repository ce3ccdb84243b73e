"""Keeps a turn running while the database is unreachable or slow, and reports the outage once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError

from habitus import sql
from habitus.errors import StorageFailed

log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D")

# What is raised when the disk or the database can't be used.
STORAGE_ERRORS = (StorageFailed, OSError, SQLAlchemyError)

# Longest wait for a busy database while a person waits for the reply.
TURN_BUSY_TIMEOUT_S = 3.0
# A reachable server answers the smallest query within this time.
PROBE_TIMEOUT_S = 0.2
_PROBE_INTERVAL_S = 0.5


class OutageGuard:
    """Guards a turn's database calls; `failure_reason` says why the database is unusable in this turn, else it is
    empty.

    `probe` returns why a remote database does not answer in time. `frozen` is the reason why nothing may be written at
    all.
    """

    def __init__(self, probe: Callable[[float], str] = lambda within: "", *, frozen: str = "") -> None:
        self.failure_reason = ""
        self._silence = probe
        self._frozen = frozen
        self._asked = (float("-inf"), "")
        self._is_told = False

    def reset_outage_for_turn(self) -> None:
        """Start a new turn, which tries the database again."""
        if not self.failure_reason:
            self._is_told = False
        self.failure_reason = ""
        self._asked = (float("-inf"), "")

    def claim_first_outage_report(self) -> bool:
        """Return whether this outage has not been reported yet, and mark it as reported."""
        is_first, self._is_told = not self._is_told, True
        return is_first

    def read_or_default(self, read: Callable[[], T], default: D) -> T | D:
        """Return the result of a read, or the default while the database is unusable."""
        try:
            with self._guard_call():
                return read()
        except STORAGE_ERRORS as error:
            self.failure_reason = self.failure_reason or str(error)
            # Only logged here: the user is told once, at the end of the turn.
            log.info("The database is unreachable: %s", error)
            return default

    def try_write(self, write: Callable[[], object], description: str) -> bool:
        """Run a write after the reply; log a failure instead of raising it. Returns whether it succeeded."""
        try:
            if self._frozen:
                raise StorageFailed(self._frozen)
            with self._guard_call():
                write()
        except STORAGE_ERRORS as error:
            self.failure_reason = self.failure_reason or str(error)
            log.info("Could not %s: %s", description, error)
        except Exception:
            log.warning("Could not %s.", description, exc_info=True)
        else:
            return True
        return False

    @contextmanager
    def _guard_call(self) -> Iterator[None]:
        """Guard one database call: bounded wait, and none at all after the first failure of the turn."""
        if self.failure_reason:
            raise StorageFailed(self.failure_reason)
        with sql.limit_busy_wait(TURN_BUSY_TIMEOUT_S):
            at, silence = self._asked
            # The answer of the last probe is reused for a moment, because a turn makes many calls.
            if time.monotonic() - at >= _PROBE_INTERVAL_S:
                silence = self._silence(PROBE_TIMEOUT_S)
                self._asked = (time.monotonic(), silence)
            if silence:
                raise StorageFailed(silence)
            yield
