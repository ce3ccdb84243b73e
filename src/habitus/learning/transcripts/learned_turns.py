"""The store of turns that were learned from, so that none teaches twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum

import sqlalchemy as sa

from habitus import sql

learned_turns = sa.Table(
    "learned_turns",
    sql.metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("how", sa.String(16), primary_key=True),
    sa.Column("learned_on", sql.Utc, nullable=False),
)


class LearnedBy(StrEnum):
    DETECTORS = "detectors"
    POST_MORTEM = "post-mortem"
    REMEDIES = "remedies"


class NotSettled(Exception):
    """Raised inside `first_time` to leave the turns as not learned from."""


class LearnedTurns:
    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def is_new(self, digest: str, how: LearnedBy) -> bool:
        with sql.reading(self._engine) as connection:
            return bool(self._new(connection, [digest], how))

    @contextmanager
    def first_time(self, digests: Iterable[str], how: LearnedBy) -> Iterator[list[str]]:
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

    def _new(self, connection: sa.Connection, digests: Iterable[str], how: LearnedBy) -> list[str]:
        known = sa.select(learned_turns.c.digest).where(learned_turns.c.how == how.value)
        return [
            digest
            for digest in dict.fromkeys(digests)
            if connection.execute(known.where(learned_turns.c.digest == digest)).first() is None
        ]
