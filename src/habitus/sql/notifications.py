"""News of what other hosts change in a shared database: PostgreSQL tells, so nobody has to ask before every step.

Where nobody tells (SQLite, a pooler that hands out connections by transaction, a cut line), everybody asks, as ever.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

import sqlalchemy as sa

from habitus import sql
from habitus.errors import StorageFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

_PROVED_EVERY = 10.0  # seconds of silence after which we make sure that we would hear something
_HEARD_WITHIN = 1.0
_RETRY_AFTER = 2.0
_LEAVES_WITHIN = 5.0


class Topic(StrEnum):
    """The tables whose every change is told, by triggers that the migrations made, or by whoever makes it."""

    SKILLS = "sequences"
    ROWS = "agent_skills"
    LESSONS = "memory_revision"
    PROPOSALS = "skill_proposals"
    PEOPLE = "sign_ins"
    SWITCHES = "switches"


def tell(connection: sa.Connection, topic: Topic) -> None:
    """Say with a change that it was made, where no trigger does."""
    if connection.dialect.name == "postgresql":
        connection.execute(_TELL, {"topic": topic.value})


_CHANNEL = "'habitus_' || md5(current_schema())"
_TELL = sa.text(f"SELECT pg_notify({_CHANNEL}, :topic)")


class News:
    """News of one database, for everything in this process that uses it."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._listeners = 0
        self._thread: _Listening | None = None
        self._known: dict[tuple[Topic, Hashable], tuple[Hashable, Any]] = {}

    def start(self) -> None:
        """Listen from now on, until as many have closed as have started."""
        with self._lock:
            self._listeners += 1
            if self._thread is None and self._engine.dialect.name == "postgresql":
                self._thread = _Listening(self._engine)
                self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._listeners = max(0, self._listeners - 1)
            gone, self._thread = (self._thread, None) if not self._listeners else (None, self._thread)
        if gone is not None:
            gone.stop()

    def last_change(self, topic: Topic) -> Hashable:
        """Changes when another host, or this one, has changed something; None while nobody would tell."""
        thread = self._thread
        return None if thread is None or not thread.hears else (thread.name, thread.heard[topic])

    def fresh(self, topic: Topic, ask: Callable[[], T], *, of: Hashable = None) -> T:
        """The answer of `ask`, as of the last change that was heard of, or that this process has made itself.

        `of` is whose, or what else of the topic is asked for, where there is more than one thing to ask.
        It is asked for now and then all the same: a dump may have been restored without what tells of changes.
        """
        heard = self.last_change(topic)
        if heard is None:
            return ask()
        mark = heard, sql.last_commit(self._engine, topic), time.monotonic() // _PROVED_EVERY
        kept = self._known.get((topic, of))
        if kept is None or kept[0] != mark:
            self._known[topic, of] = kept = mark, ask()
        found: T = kept[1]
        return found


_of_place: dict[tuple[sa.URL, str], News] = {}


def news_of(engine: sa.Engine) -> News:
    """One for all who use a server in this process: it takes one connection, however many they are."""
    if engine.dialect.name != "postgresql":
        return News(engine)
    key = sql.key_of(engine)
    return _of_place.get(key) or _of_place.setdefault(key, News(engine))


class _Listening(threading.Thread):
    """One connection of the engine's own few, which waits for word."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(name=f"habitus-news-{secrets.token_hex(4)}", daemon=True)
        self.hears = False
        self.heard = dict.fromkeys(Topic, 0)
        self._engine = engine
        self._stopped = threading.Event()

    def run(self) -> None:
        of_driver: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        while not self._stopped.is_set():
            try:
                self._listen()
            except (StorageFailed, sa.exc.SQLAlchemyError, of_driver) as error:
                log.debug("no news from the database, so it is asked each time: %s", error)
            finally:
                self.hears = False
            self._stopped.wait(_RETRY_AFTER)

    def stop(self) -> None:
        self._stopped.set()
        with suppress(StorageFailed):
            self._beat()  # wakes it
        self.join(_LEAVES_WITHIN)

    def _listen(self) -> None:
        with sql.reading(self._engine) as connection:
            channel = connection.execute(sa.text(f"SELECT {_CHANNEL}")).scalar_one()
        with sql.storage_errors(self._engine), self._engine.connect() as kept:
            kept.execution_options(isolation_level="AUTOCOMMIT")
            try:
                for name in (channel, self.name):
                    kept.execute(sa.text(f'LISTEN "{name}"'))
                while not self._stopped.is_set():
                    self._prove(kept)
                    self._take(kept, _PROVED_EVERY)
            finally:
                kept.invalidate()  # nobody else shall be told on it

    def _prove(self, kept: sa.Connection) -> None:
        """Say something on another connection: who does not hear that would hear nothing else either."""
        self._beat()
        if not self._take(kept, _HEARD_WITHIN, is_proof=True):
            raise StorageFailed("What is said on one connection is not heard on another.", mend="Is there a pooler?")
        if not self.hears:
            self.heard = {topic: count + 1 for topic, count in self.heard.items()}  # whatever was missed meanwhile
            self.hears = True

    def _beat(self) -> None:
        with sql.reading(self._engine) as connection:
            connection.execute(sa.text("SELECT pg_notify(:name, '')"), {"name": self.name})

    def _take(self, kept: sa.Connection, seconds: float, *, is_proof: bool = False) -> bool:
        """Hear what is said for some time; of a proof, until it is there."""
        driver: Any = kept.connection.driver_connection
        for notice in driver.notifies(timeout=seconds):
            if notice.channel == self.name:
                if is_proof or self._stopped.is_set():
                    return True
            elif notice.payload in self.heard:
                self.heard[Topic(notice.payload)] += 1
        return False
