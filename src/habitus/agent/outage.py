"""A database that is away or busy: the turn makes do without it, and the person is told once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from habitus import sql
from habitus.errors import StorageFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 3.0  # with a database that somebody else keeps busy, while a person waits


class Outage:
    """`trouble` says why the database could not be used in this turn; empty while it can."""

    def __init__(self) -> None:
        self.trouble = ""

    @property
    def _patience(self) -> float:
        """Who has waited once in a turn does not wait again."""
        return 0.0 if self.trouble else PATIENCE_S

    def unless_away(self, look: Callable[[], T], otherwise: T) -> T:
        """What the database says; while it can't be used, what is known without it."""
        try:
            with sql.patience(self._patience):
                return look()
        except away() as error:
            self.trouble = self.trouble or str(error)
            log.info("The database is away: %s", error)  # the person is told at the end of the turn
            return otherwise

    def safely(self, what: Callable[[], object], saying: str) -> None:
        """The person has the answer; what fails now is logged and takes nothing away."""
        try:
            with sql.patience(self._patience):
                what()
        except away() as error:
            self.trouble = self.trouble or str(error)
            log.info("Could not %s: %s", saying, error)
        except Exception:
            log.warning("Could not %s.", saying, exc_info=True)


def away() -> tuple[type[Exception], ...]:
    """What is raised while the disk or the database can't be used."""
    from sqlalchemy.exc import SQLAlchemyError

    return StorageFailed, OSError, SQLAlchemyError
