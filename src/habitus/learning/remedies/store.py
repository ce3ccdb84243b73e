"""Transcripts that were studied, as they were then, and the facts of their sessions: what `--since last` goes on from.

Agents delete their transcripts after a while; what a session showed stays here and counts on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from habitus import sql
from habitus.learning.remedies.sessions import SessionFacts

studied_files = sa.Table(
    "studied_files",
    sql.metadata,
    sa.Column("file", sa.Text, primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("changed", sa.BigInteger, nullable=False),  # nanoseconds, as the file system tells it
    sa.Column("facts", sa.Text, nullable=False),  # JSON
    sa.Column("studied_on", sql.Utc, nullable=False),
)

Stamp = tuple[int, int]  # size, time of the last change


def stamp_of(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


class StudiedFiles:
    def __init__(self, engine: sa.Engine, *, clock: Callable[[], datetime], kept_for: timedelta) -> None:
        self._engine = engine
        self._clock = clock
        self._kept_for = kept_for

    def stamps(self) -> dict[str, Stamp]:
        table = studied_files.c
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(table.file, table.size, table.changed)).all()
        return {row.file: (row.size, row.changed) for row in rows}

    def facts(self, *, without: Collection[str] = ()) -> list[SessionFacts]:
        """What is known of all sessions, but not from these files."""
        with sql.reading(self._engine) as connection:
            rows = connection.execute(sa.select(studied_files.c.file, studied_files.c.facts)).all()
        return [facts for row in rows if row.file not in without for facts in _read(row.facts)]

    def keep(self, file: str, stamp: Stamp, facts: Collection[SessionFacts]) -> None:
        """What a file shows now, in place of what it showed before."""
        row = {
            "file": file,
            "size": stamp[0],
            "changed": stamp[1],
            "facts": _adapter().dump_json(tuple(facts)).decode(),
            "studied_on": self._clock(),
        }
        old = self._clock() - self._kept_for
        with sql.writing(self._engine, lock="studied_files") as connection:
            gone = sa.or_(studied_files.c.file == file, studied_files.c.studied_on < old)
            connection.execute(studied_files.delete().where(gone))
            connection.execute(studied_files.insert().values(row))


@cache
def _adapter() -> TypeAdapter[tuple[SessionFacts, ...]]:
    return TypeAdapter(tuple[SessionFacts, ...])


def _read(text: str) -> tuple[SessionFacts, ...]:
    """Facts that another version wrote in another way are none; the file can be studied again."""
    try:
        return _adapter().validate_json(text)
    except ValidationError:
        return ()
