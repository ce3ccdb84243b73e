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
from habitus.app.home import Home, refuse_if_read_only
from habitus.errors import Invalid, Refused
from habitus.locks import try_lock
from habitus.settings import Settings

ANSWER_TTL = timedelta(days=7)
# An attempt of another host that is not answered by then was cut off.
ATTEMPT_TIMEOUT = timedelta(minutes=1)
LOCK_FOLDER = "cache/answering"  # of lock files

answered_requests = sa.Table(
    "answered_requests",
    sql.metadata,
    *sql.build_primary_key_columns(sa.String, "user", "key"),
    # A hash, because a request may be long.
    sa.Column("asked", sa.String, nullable=False),
    # NULL while the request is running.
    sa.Column("answer", sa.Text),
    sa.Column("asked_on", sql.UtcDateTime, nullable=False),
)

AnswerJson = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestAttempt:
    """An attempt at a request.

    `id` is the same for each attempt; `since` is the start of an earlier one that was cut off.
    """

    id: str = ""
    since: datetime | None = None


def answer_request_once_per_key(
    home: Home, key: str, request: object, make_answer: Callable[[RequestAttempt], AnswerJson]
) -> AnswerJson:
    """Return the stored answer, or that of `make_answer`; without a key, always the latter. `request` must be JSON.

    An attempt that was killed may have finished its work or not: `make_answer` is told when it began, and must not
    repeat the work.
    """
    if not key:
        return make_answer(RequestAttempt())
    refuse_if_read_only(home)
    wanted = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    this = (answered_requests.c.user == home.settings.user) & (answered_requests.c.key == key)
    with hold_request_lock(home.settings, key):
        claim, is_new = _claim_idempotency_key(home, key, wanted, this)
        if claim.asked != wanted:
            raise Invalid("This Idempotency-Key belongs to another request.", hint="Take a new one for a new request.")
        if claim.answer is not None:
            answer: AnswerJson = json.loads(claim.answer)
            return answer
        if not is_new and home.settings.database and home.clock() < claim.asked_on + ATTEMPT_TIMEOUT:
            raise _make_conflict_error()
        id = hashlib.sha256(f"{claim.user} {key} {claim.asked_on}".encode()).hexdigest()[:16]
        return _make_and_store_answer(
            home.shared, this, make_answer, RequestAttempt(id=id, since=None if is_new else claim.asked_on)
        )


@contextmanager
def hold_request_lock(settings: Settings, key: str) -> Iterator[None]:
    """Keep other processes on this machine from running the same request; a killed process releases the lock."""
    folder = settings.home / LOCK_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / hashlib.sha256(f"{settings.user} {key}".encode()).hexdigest()
    while True:
        with try_lock(path) as held:
            if held is None:
                raise _make_conflict_error()
            if not os.fstat(held).st_nlink:
                # The holder finished and removed the file between opening and locking it.
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _make_conflict_error() -> Refused:
    return Refused("A request with this Idempotency-Key is under way.", hint="Send it again in a moment.")


def _claim_idempotency_key(home: Home, key: str, wanted: str, this: sa.ColumnElement[bool]) -> tuple[sa.Row[Any], bool]:
    """Return the row that owns the key, and whether this request created it."""
    now, mine = home.clock(), sa.select(answered_requests).where(this)
    with sql.write_transaction(home.shared, durable=True, lock="answers") as connection:
        connection.execute(answered_requests.delete().where(answered_requests.c.asked_on < now - ANSWER_TTL))
        if (before := connection.execute(mine).first()) is not None:
            return before, False
        connection.execute(
            answered_requests.insert().values(user=home.settings.user, key=key, asked=wanted, asked_on=now)
        )
        return connection.execute(mine).one(), True


def _make_and_store_answer(
    shared: sa.Engine,
    this: sa.ColumnElement[bool],
    make: Callable[[RequestAttempt], AnswerJson],
    attempt: RequestAttempt,
) -> AnswerJson:
    try:
        answer = make(attempt)
    # A failed request is not stored, so it can be sent again with the same key.
    except BaseException:
        with sql.write_transaction(shared, lock="answers") as connection:
            connection.execute(answered_requests.delete().where(this))
        raise
    with sql.write_transaction(shared, durable=True, lock="answers") as connection:
        connection.execute(answered_requests.update().where(this).values(answer=json.dumps(answer)))
    return answer
