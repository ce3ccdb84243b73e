"""A database that is away or slow: the turn makes do without it, and the person is told once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from habitus import sql
from habitus.errors import StorageFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 3.0  # with a database, whichever it is, that somebody else keeps busy while a person waits
ANSWERS_S = 0.2  # within this a server has to answer the smallest question
_ASKED_EVERY_S = 0.5


class Outage:
    """`trouble` says why the database could not be used in this turn; empty while it can.

    `silence` says why a database on another machine does not answer in time: then it is left alone. `frozen` is why
    nothing can be written at all.
    """

    def __init__(self, silence: Callable[[float], str] = lambda within: "", *, frozen: str = "") -> None:
        self.trouble = ""
        self._silence = silence
        self._frozen = frozen
        self._asked = (float("-inf"), "")  # when, and what it said
        self._is_told = False

    def begin(self) -> None:
        """A turn begins, and things may be better."""
        if not self.trouble:
            self._is_told = False
        self.trouble = ""
        self._asked = (float("-inf"), "")

    def is_first_to_tell(self) -> bool:
        """Whether nobody has heard of this outage yet."""
        is_first, self._is_told = not self._is_told, True
        return is_first

    def unless_away(self, look: Callable[[], T], otherwise: T) -> T:
        """The database's answer; while it can't be used, the one that is known without it."""
        try:
            with self._asking():
                return look()
        except away() as error:
            self.trouble = self.trouble or str(error)
            log.info("The database is away: %s", error)  # the person is told at the end of the turn
            return otherwise

    def safely(self, what: Callable[[], object], saying: str) -> bool:
        """The person has the answer; what fails now is logged and takes nothing away. Whether it was done."""
        try:
            if self._frozen:
                raise StorageFailed(self._frozen)
            with self._asking():
                what()
        except away() as error:
            self.trouble = self.trouble or str(error)
            log.info("Could not %s: %s", saying, error)
        except Exception:
            log.warning("Could not %s.", saying, exc_info=True)
        else:
            return True
        return False

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Who has waited once in a turn does not wait again."""
        if self.trouble:
            raise StorageFailed(self.trouble)
        with sql.patience(PATIENCE_S):
            at, silence = self._asked
            if time.monotonic() - at >= _ASKED_EVERY_S:
                silence = self._silence(ANSWERS_S)
                self._asked = (time.monotonic(), silence)
            if silence:
                raise StorageFailed(silence)
            yield


def away() -> tuple[type[Exception], ...]:
    """The errors raised while the disk or the database can't be used."""
    from sqlalchemy.exc import SQLAlchemyError

    return StorageFailed, OSError, SQLAlchemyError
