"""Store which turns were learned from, so none teaches twice."""

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
    sa.Column("learned_on", sql.UtcDateTime, nullable=False),
)


class LearningMethodKind(StrEnum):
    """How a turn was learned from; each method learns from it once."""

    DETECTORS = "detectors"
    POST_MORTEM = "post-mortem"
    REMEDIES = "remedies"


class TurnsNotLearnedError(Exception):
    """Raised inside `claim_new_turns` to leave the turns as not learned from."""


class LearnedTurnStore:
    """Stores the digests of turns that were learned from."""

    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime]) -> None:
        self._engine = engine
        self._clock = clock

    def is_new_turn(self, digest: str, method: LearningMethodKind) -> bool:
        """Whether the turn was not learned from by this method."""
        with sql.read_transaction(self._engine) as conn:
            return bool(self._filter_unlearned_digests(conn, [digest], method))

    @contextmanager
    def claim_new_turns(self, digests: Iterable[str], method: LearningMethodKind) -> Iterator[list[str]]:
        """Yield the digests that are new and mark them as learned, in one transaction with the work inside."""
        try:
            with sql.write_transaction(self._engine, lock="memory") as conn:
                new = self._filter_unlearned_digests(conn, digests, method)
                yield new
                rows = [{"digest": digest, "how": method.value, "learned_on": self._clock()} for digest in new]
                sql.insert_missing_rows(conn, learned_turns, rows)
        except TurnsNotLearnedError:
            pass

    @contextmanager
    def open_savepoint(self) -> Iterator[None]:
        """Open a savepoint inside `claim_new_turns`: a failure in it is rolled back alone."""
        with sql.write_transaction(self._engine, lock="memory") as conn, conn.begin_nested():
            yield

    def _filter_unlearned_digests(
        self, conn: sa.Connection, digests: Iterable[str], how: LearningMethodKind
    ) -> list[str]:
        known = sa.select(learned_turns.c.digest).where(learned_turns.c.how == how.value)
        return [
            digest
            for digest in dict.fromkeys(digests)
            if conn.execute(known.where(learned_turns.c.digest == digest)).first() is None
        ]
