"""PostgreSQL connections that don't wait for ever: a server that says nothing any more is given up, not hung on to."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any

import psycopg
import sqlalchemy as sa

_LONGEST_WAIT_S = 30.0  # from here on a wait has no end: somebody migrates, or copies everything


def make_impatient(engine: sa.Engine, patience: Callable[[], float]) -> None:
    """Let connections of the engine wait for an answer as long as `patience` says at that moment."""

    class Impatient(psycopg.Connection[Any]):
        _pool = None  # one of a pool, which may go with its engine: the driver then closes it without a warning

        def wait(self, gen: Any, *given: Any, **more: Any) -> Any:
            seconds = patience()
            if seconds >= _LONGEST_WAIT_S:
                return super().wait(gen, *given, **more)
            try:
                return super().wait(_bound_wait(gen, seconds), *given, **more)
            except _SaysNothing:
                self.pgconn.finish()  # what it would say later nobody would understand
                said = f"connection is bad: no answer within {seconds:g} s"
                raise psycopg.OperationalError(said) from None

    def connect(dialect: object, record: object, given: list[Any], more: dict[str, Any]) -> psycopg.Connection[Any]:
        return Impatient.connect(*given, **{"autocommit": True} | more)  # a transaction says itself that it begins

    sa.event.listen(engine, "do_connect", connect)


class _SaysNothing(Exception):
    pass


def _bound_wait(gen: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """The same steps of a conversation, until for so long there was none; a driver that waits looks in every moment."""
    until = time.monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                until = time.monotonic() + seconds
            elif time.monotonic() > until:
                raise _SaysNothing
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value
