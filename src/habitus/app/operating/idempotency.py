"""Idempotent requests: a request with a key runs once, and a repetition gets the stored answer.

The answer is kept in the database, so this also holds after a restart.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.app.home import Home
from habitus.errors import Invalid, Refused
from habitus.locks import try_lock
from habitus.settings import Settings

KEPT = timedelta(days=7)
# An attempt of another host that is not answered by then was cut off.
CUT_OFF = timedelta(minutes=1)
FOLDER = "cache/answering"  # of lock files

answered = sa.Table(
    "answered_requests",
    sql.metadata,
    sa.Column("user", sa.String, primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    # A hash, because a request may be long.
    sa.Column("asked", sa.String, nullable=False),
    # NULL while the request is running.
    sa.Column("answer", sa.Text),
    sa.Column("asked_on", sql.Utc, nullable=False),
)

Answer = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """An attempt at a request.

    `id` is the same for each attempt; `since` is the start of an earlier one that was cut off.
    """

    id: str = ""
    since: datetime | None = None


def once(home: Home, key: str, asked: object, make: Callable[[Attempt], Answer]) -> Answer:
    """Return the stored answer, or that of `make_answer`; without a key, always the latter. `request` must be JSON.

    An attempt that was killed may have finished its work or not: `make_answer` is told when it began, and must not
    repeat the work.
    """
    if not key:
        return make(Attempt())
    home.refuse_if_read_only()
    wanted = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    this = (answered.c.user == home.settings.user) & (answered.c.key == key)
    with alone(home.settings, key):
        claim, is_new = _claim(home, key, wanted, this)
        if claim.asked != wanted:
            raise Invalid("This Idempotency-Key belongs to another request.", hint="Take a new one for a new request.")
        if claim.answer is not None:
            answer: Answer = json.loads(claim.answer)
            return answer
        if not is_new and home.settings.database and home.clock() < claim.asked_on + CUT_OFF:
            raise _under_way()
        id = hashlib.sha256(f"{claim.user} {key} {claim.asked_on}".encode()).hexdigest()[:16]
        return _make_answer(home.shared, this, make, Attempt(id=id, since=None if is_new else claim.asked_on))


@contextmanager
def alone(settings: Settings, key: str) -> Iterator[None]:
    """Keep other processes on this machine from running the same request; a killed process releases the lock."""
    folder = settings.home / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / hashlib.sha256(f"{settings.user} {key}".encode()).hexdigest()
    while True:
        with try_lock(path) as held:
            if held is None:
                raise _under_way()
            if not os.fstat(held).st_nlink:
                # The holder finished and removed the file between opening and locking it.
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _under_way() -> Refused:
    return Refused("A request with this Idempotency-Key is under way.", hint="Send it again in a moment.")


def _claim(home: Home, key: str, wanted: str, this: sa.ColumnElement[bool]) -> tuple[sa.Row[Any], bool]:
    """Return the row that owns the key, and whether this request created it."""
    now, mine = home.clock(), sa.select(answered).where(this)
    with sql.writing(home.shared, durable=True, lock="answers") as connection:
        connection.execute(answered.delete().where(answered.c.asked_on < now - KEPT))
        if (before := connection.execute(mine).first()) is not None:
            return before, False
        connection.execute(answered.insert().values(user=home.settings.user, key=key, asked=wanted, asked_on=now))
        return connection.execute(mine).one(), True


def _make_answer(
    shared: sa.Engine, this: sa.ColumnElement[bool], make: Callable[[Attempt], Answer], attempt: Attempt
) -> Answer:
    try:
        answer = make(attempt)
    # A failed request is not stored, so it can be sent again with the same key.
    except BaseException:
        with sql.writing(shared, lock="answers") as connection:
            connection.execute(answered.delete().where(this))
        raise
    with sql.writing(shared, durable=True, lock="answers") as connection:
        connection.execute(answered.update().where(this).values(answer=json.dumps(answer)))
    return answer
