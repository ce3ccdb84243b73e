"""PostgreSQL connections that give up on a server that no longer answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import psycopg
import sqlalchemy as sa

# From this limit on, waits are unbounded: a migration or a full copy is running.
_UNBOUNDED_FROM_S = 30.0


def limit_connection_waits(engine: sa.Engine, get_timeout_s: Callable[[], float]) -> None:
    """Limit how long the engine's connections wait for an answer; `get_timeout_s` is called for each wait."""

    class Impatient(psycopg.Connection[Any]):
        # Marks the connection as pooled, which stops the driver's warning when the engine is collected.
        _pool = None

        def wait(self, gen: Any, *given: Any, **more: Any) -> Any:
            seconds = get_timeout_s()
            if seconds >= _UNBOUNDED_FROM_S:
                return super().wait(gen, *given, **more)
            try:
                return super().wait(_run_driver_wait_with_timeout(gen, seconds), *given, **more)
            except _NoAnswerError:
                # A late answer would be mistaken for the answer to the next query.
                self.pgconn.finish()
                said = f"connection is bad: no answer within {seconds:g} s"
                raise psycopg.OperationalError(said) from None

    def connect(dialect: object, record: object, given: list[Any], more: dict[str, Any]) -> psycopg.Connection[Any]:
        # Our "begin" event opens transactions, not the driver.
        return Impatient.connect(*given, **{"autocommit": True} | more)

    sa.event.listen(engine, "do_connect", connect)


class _NoAnswerError(Exception):
    pass


def _run_driver_wait_with_timeout(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """Run the driver's wait generator, and raise when nothing arrives for so many seconds."""
    until = time.monotonic() + seconds
    try:
        # The driver resumes the generator several times a second even when nothing has arrived.
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                until = time.monotonic() + seconds
            elif time.monotonic() > until:
                raise _NoAnswerError
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value
