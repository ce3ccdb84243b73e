"""Which turns of transcripts have been learned from, so that reading a transcript again teaches nothing twice.

Turns, not files: a session that goes on is read again with its earlier turns in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from habitus import sql
from habitus.learning.transcripts.model import Turn

learned_turns = sa.Table(
    "learned_turns",
    sql.metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("how", sa.String(16), primary_key=True),
    sa.Column("learned_on", sql.Utc, nullable=False),
)


class How(StrEnum):
    DETECTORS = "detectors"
    POST_MORTEM = "post-mortem"


class NotSettled(Exception):
    """Raised inside `first_time` to leave a turn as one that has not been learned from."""


class TurnLedger:
    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def is_learned(self, turn: Turn, how: How) -> bool:
        with sql.reading(self._engine) as connection:
            return self._is_there(connection, digest_of(turn), how)

    @contextmanager
    def first_time(self, turn: Turn, how: How) -> Iterator[bool]:
        """Whether this turn is new. What is done inside and the note that it was done are one transaction."""
        digest = digest_of(turn)
        try:
            with sql.writing(self._engine, lock="learned_turns") as connection:
                if self._is_there(connection, digest, how):
                    yield False
                    return
                yield True
                row = {"digest": digest, "how": how.value, "learned_on": self._clock()}
                connection.execute(learned_turns.insert().values(row))
        except NotSettled:
            pass

    def _is_there(self, connection: sa.Connection, digest: str, how: How) -> bool:
        known = sa.select(learned_turns.c.digest).where(learned_turns.c.digest == digest, learned_turns.c.how == how)
        return connection.execute(known).first() is not None


def digest_of(turn: Turn) -> str:
    """By what happened in it: a copy of the file under another name is the same turn."""
    whole = hashlib.sha256()
    for event in turn.events:
        row = [event.kind.value, dict(event.detail), event.round_idx]
        whole.update(json.dumps(row, sort_keys=True, default=str, ensure_ascii=True).encode())
    return whole.hexdigest()
