"""Requests that carry a key are done once: sent again, even after a restart, they get the answer they had."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from habitus import sql
from habitus.app.habitus import Habitus
from habitus.errors import Invalid, Refused

KEPT = timedelta(days=7)

answered = sa.Table(
    "answered_requests",
    sql.metadata,
    sa.Column("user", sa.String, primary_key=True),
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("asked", sa.String, nullable=False),  # a hash: what was asked may be long
    sa.Column("answer", sa.Text),  # none while it is being done
    sa.Column("asked_on", sql.Utc, nullable=False),
)

Answer = dict[str, Any]


def once(habitus: Habitus, key: str, asked: object, make: Callable[[], Answer]) -> Answer:
    """What `make` answers, or has answered; `asked` is the request as JSON knows it. Without a key it is just made."""
    if not key:
        return make()
    habitus.refuse_if_read_only()
    wanted = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    this = (answered.c.user == habitus.settings.user) & (answered.c.key == key)
    if (before := _claimed(habitus, key, wanted, this)) is not None:
        return _known(before, wanted)
    try:
        answer = make()
    except BaseException:
        with sql.writing(habitus.shared, lock="answers") as connection:
            connection.execute(answered.delete().where(this))
        raise
    with sql.writing(habitus.shared, durable=True, lock="answers") as connection:
        connection.execute(answered.update().where(this).values(answer=json.dumps(answer)))
    return answer


def _claimed(habitus: Habitus, key: str, wanted: str, this: sa.ColumnElement[bool]) -> sa.Row[Any] | None:
    """The request that had the key before; none where it is ours from now on."""
    now = habitus.clock()
    with sql.writing(habitus.shared, durable=True, lock="answers") as connection:
        connection.execute(answered.delete().where(answered.c.asked_on < now - KEPT))
        before = connection.execute(sa.select(answered).where(this)).first()
        if before is None:
            connection.execute(
                answered.insert().values(user=habitus.settings.user, key=key, asked=wanted, asked_on=now)
            )
        return before


def _known(before: sa.Row[Any], wanted: str) -> Answer:
    if before.asked != wanted:
        raise Invalid("This Idempotency-Key belongs to another request.", mend="Take a new one for a new request.")
    if before.answer is None:
        raise Refused(
            "A request with this Idempotency-Key is under way, or was cut off.",
            mend="Send it again in a moment, or look whether it was done and take a new key.",
        )
    answer: Answer = json.loads(before.answer)
    return answer
