"""How far running turns got, reported for other processes by the one that runs them, and what these ask of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from habitus import sql
from habitus.events import OutcomeKind
from habitus.journal.journal import Journal
from habitus.journal.model import JudgementSourceKind, TurnMessage, TurnOutcome
from habitus.journal.tables import running_turns, turns

# After this silence its process has ended, or lost the database, and then its complete turn replaces what others wrote.
_LOST_AFTER_S = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningTurn:
    """A turn as its process last reported it, one line per event, numbered from `began_at`."""

    began_at: int
    lines: tuple[str, ...]
    # False once its process has been silent for too long.
    is_reported: bool


class RunningTurnStore:
    """Reports of running turns on a PostgreSQL database; each is deleted with the record that its end replaces."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def report_lines_and_take_requests(
        self, turn: str, *, began_at: int, lines: Sequence[str]
    ) -> tuple[str, ...] | None:
        """Store the lines that are new and return the requests since; None if the journal has no such running turn."""
        its, now = running_turns.c.turn == turn, _build_server_clock_expression()
        with sql.write_transaction(self._engine) as connection:
            query = sa.select(running_turns.c.line_count, running_turns.c.requests).where(its).with_for_update()
            row = connection.execute(query).mappings().first()
            if row is None:
                running = sa.select(turns.c.id).where(turns.c.id == turn, turns.c.ended_on.is_(None))
                if connection.execute(running).first() is None:
                    return None
                facts = {"turn": turn, "began_at": began_at, "line_count": len(lines), "lines": _join_lines(lines)}
                connection.execute(running_turns.insert().values(**facts, reported_s=now))
                return ()
            # Counted, because the answer to an earlier report may have been lost.
            joined = running_turns.c.lines + _join_lines(lines[row["line_count"] :])
            values = {"reported_s": now, "line_count": len(lines), "lines": joined, "requests": ""}
            connection.execute(running_turns.update().where(its).values(values))
            return tuple(row["requests"].splitlines())

    def find_running_turn(self, turn: str) -> RunningTurn | None:
        """Return a running turn; None if it has ended, or its process doesn't report."""
        silence = (_build_server_clock_expression() - running_turns.c.reported_s).label("silence")
        with sql.read_transaction(self._engine) as connection:
            query = sa.select(running_turns.c.began_at, running_turns.c.lines, silence)
            row = connection.execute(query.where(running_turns.c.turn == turn)).mappings().first()
        if row is None:
            return None
        lines = tuple(row["lines"].splitlines())
        return RunningTurn(began_at=row["began_at"], lines=lines, is_reported=row["silence"] < _LOST_AFTER_S)

    def add_request_to_running_turn(self, turn: str, line: str) -> None:
        """Leave a request for the process that runs a turn."""
        with sql.write_transaction(self._engine) as connection:
            values = {"requests": running_turns.c.requests + _join_lines([line])}
            connection.execute(running_turns.update().where(running_turns.c.turn == turn).values(values))

    def record_abandoned_turn(self, journal: Journal, id: str, said: Sequence[TurnMessage], ended_on: datetime) -> None:
        """Record the end of a turn whose process is gone, with what it had said; its own record would replace this."""
        gone = TurnOutcome(
            kind=OutcomeKind.INFRA,
            weight=1.0,
            source="signal",
            source_kind=JudgementSourceKind.SIGNAL,
            reason="The process that answered has ended.",
        )
        # The lock of `record_complete_turn`, so that a turn that has ended after all stays as it is.
        with sql.write_transaction(self._engine, lock=f"usage:{id}"):
            turn = journal.get_turn(id)
            if turn.ended_on is None:
                messages = (*turn.messages, *said)
                journal.record_complete_turn(replace(turn, ended_on=ended_on, messages=messages, outcomes=(gone,)))


def _join_lines(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _build_server_clock_expression() -> sa.ColumnElement[float]:
    """Return the time by the server's clock, because the hosts' clocks differ."""
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Float)
