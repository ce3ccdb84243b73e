"""Nobody waits for the disk: what a test writes must outlive a killed process, never a power cut."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import sqlalchemy as sa


def wait_for_no_disk() -> None:
    """From now on nothing is forced onto the disk, by this process or those forked from it."""
    os.fsync = lambda fd: None
    sa.event.listen(sa.Engine, "do_connect", _hurry)


def _hurry(dialect: sa.Dialect, record: Any, arguments: Any, options: dict[str, Any]) -> None:
    if dialect.name == "sqlite":
        options["factory"] = _Hurried


class _Hurried(sqlite3.Connection):
    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return super().execute("PRAGMA synchronous = OFF" if "synchronous" in statement else statement, *values)
