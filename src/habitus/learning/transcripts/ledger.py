"""Which turns of transcripts have been learned from, so that reading a transcript again teaches nothing twice.

Turns, not files: a session that goes on is read again with its earlier turns in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from habitus import sql
from habitus.learning.transcripts.model import TranscriptTurn

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
    REMEDIES = "remedies"


class NotSettled(Exception):
    """Raised inside `first_time` to leave the turns as not learned from."""


class TurnLedger:
    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def is_new(self, digest: str, how: How) -> bool:
        with sql.reading(self._engine) as connection:
            return bool(self._new(connection, [digest], how))

    @contextmanager
    def first_time(self, digests: Iterable[str], how: How) -> Iterator[list[str]]:
        """Those of the turns that are new. What is done inside and the note of it are one transaction."""
        try:
            with sql.writing(self._engine, lock="memory") as connection:
                new = self._new(connection, digests, how)
                yield new
                rows = [{"digest": digest, "how": how.value, "learned_on": self._clock()} for digest in new]
                sql.insert_missing(connection, learned_turns, rows)
        except NotSettled:
            pass

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Inside `first_time`: what fails in here leaves no trace, and the rest holds."""
        with sql.writing(self._engine, lock="memory") as connection, connection.begin_nested():
            yield

    def _new(self, connection: sa.Connection, digests: Iterable[str], how: How) -> list[str]:
        known = sa.select(learned_turns.c.digest).where(learned_turns.c.how == how.value)
        return [
            digest
            for digest in dict.fromkeys(digests)
            if connection.execute(known.where(learned_turns.c.digest == digest)).first() is None
        ]


_NOT_COUNTED = ("at", "cwd", "command", "doubt")  # said besides, so that a turn stays the same when more is read


def digest_of(turn: TranscriptTurn) -> str:
    """By what happened in it: a copy of the file under another name has the same turns."""
    whole = hashlib.sha256()
    for event in turn.events:
        detail = {key: value for key, value in event.detail.items() if key not in _NOT_COUNTED}
        row = [event.kind.value, detail, event.round_idx]
        whole.update(json.dumps(row, sort_keys=True, default=str).encode())
    return whole.hexdigest()
