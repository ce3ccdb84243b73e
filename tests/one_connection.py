"""One connection each, and none while waiting: whoever holds one asks for no other, and for nothing outside.

A thread that holds one and asks for another would wait for itself when there are no more; whoever waits for a model,
the network, a lock of a file or a program inside a transaction makes all others wait as long.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import sqlalchemy as sa

import habitus
from habitus import locks, sql
from habitus.llm.model import CompletionRequest
from habitus.llm.providers import ProviderModel
from habitus.llm.scripted import ScriptedModel

_OURS = str(Path(habitus.__file__).parent)
# They copy one database into another, or prove on one connection that they hear on another; nobody waits for them.
_MAY_HOLD_TWO = tuple(
    f"{_OURS}/{name}" for name in ("app/sharing/copying", "app/sharing/offline_snapshot", "sql/change_notifications")
)

_held: dict[int, dict[int, str]] = defaultdict(dict)  # by thread, then by connection
_holder: dict[int, int] = {}  # by connection; not kept in its `info`, which is emptied when the server goes away


def one_connection_each() -> None:
    """From now on code of ours fails that asks for a connection in a thread which holds one, to whatever database."""
    sa.event.listen(sa.pool.Pool, "checkout", _take)
    sa.event.listen(sa.pool.Pool, "checkin", _give_back)


def forget_connections() -> None:
    """Begin a test with nothing held: one that fails with a connection in its hands must not fail the next."""
    _held.clear()
    _holder.clear()


def no_model_in_a_transaction() -> None:
    """From now on it fails to ask a model while a transaction is open."""
    for kind in (ScriptedModel, ProviderModel):
        _watch(kind)


def no_waiting_in_a_transaction() -> None:
    """From now on it fails to wait for a lock of a file, or to start a program, while a transaction is open."""
    take, start = locks.acquire_lock, subprocess.Popen.__init__

    @functools.wraps(take)
    def take_outside(path: Path, *, shared: bool = False, wait_s: float = 0.0) -> int | None:
        if wait_s:
            refuse_in_transaction(f"waits for the lock {path}")
        return take(path, shared=shared, wait_s=wait_s)

    @functools.wraps(start)
    def start_outside(self: Any, *given: Any, **more: Any) -> None:
        refuse_in_transaction("starts a program")
        start(self, *given, **more)

    locks.acquire_lock = take_outside
    subprocess.Popen.__init__ = start_outside  # type: ignore[method-assign]  # of the tests alone


def _watch(kind: Any) -> None:
    stream = kind.stream

    @functools.wraps(stream)
    def watched(self: Any, ask: CompletionRequest) -> Any:
        refuse_in_transaction("asks a model")
        return stream(self, ask)

    kind.stream = watched


def refuse_in_transaction(what: str) -> None:
    """Code of ours; what a test itself connects to is its own affair."""
    if sql.count_open_transactions() and any(where.startswith(_OURS) for where in _places(sys._getframe(1))):
        raise AssertionError(f"{what} while a transaction is open")


def _take(driver: Any, record: Any, proxy: Any) -> None:
    places = list(_places(sys._getframe(1)))
    asked = next((where for where in places if "sqlalchemy" not in where and "contextlib" not in where), "")
    if not asked.startswith(_OURS):
        return  # a test looks by itself
    held = _held[threading.get_ident()]
    held.pop(id(record), None)  # asked for anew: the server had ended it
    if held and not any(where.startswith(_MAY_HOLD_TWO) for where in places):
        ours = [where for where in places if where.startswith(_OURS)]
        raise AssertionError(f"holds a connection since {list(held.values())} and asks for another at {ours}")
    _holder[id(record)] = threading.get_ident()
    held[id(record)] = next((where for where in places if where.startswith(_OURS) and "/sql/" not in where), asked)


def _give_back(driver: Any, record: Any) -> None:
    _held[_holder.pop(id(record), 0)].pop(id(record), None)


def _places(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
