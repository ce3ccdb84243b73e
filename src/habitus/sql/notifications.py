"""Notifications of changes that other hosts make to a shared database, through PostgreSQL's LISTEN.

Without them (SQLite, a pooler in transaction mode, a cut connection) readers query the database each time.
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

# After this silence, in seconds, the listener verifies that it would still receive something.
_PROVED_EVERY = 10.0
_HEARD_WITHIN = 1.0
_RETRY_AFTER = 2.0
_LEAVES_WITHIN = 5.0


class Topic(StrEnum):
    """The tables whose changes are announced, by triggers from the migrations or by the writer itself."""

    SKILLS = "sequences"
    ROWS = "agent_skills"
    LESSONS = "memory_revision"
    PROPOSALS = "skill_proposals"
    PEOPLE = "sign_ins"
    SWITCHES = "switches"


def tell(connection: sa.Connection, topic: Topic) -> None:
    """Announce a change to a table that has no trigger, when the transaction commits."""
    if connection.dialect.name == "postgresql":
        connection.execute(_TELL, {"topic": topic.value})


# Channels are per database, so the workspace has to be part of the name.
_CHANNEL = "'habitus_' || md5(current_schema())"
_TELL = sa.text(f"SELECT pg_notify({_CHANNEL}, :topic)")


class News:
    """The change notifications of one database, shared by everything in this process that uses it."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._listeners = 0
        self._thread: _Listening | None = None
        self._known: dict[tuple[Topic, Hashable], tuple[Hashable, Any]] = {}

    def start(self) -> None:
        """Start listening; it ends after as many calls of `close`."""
        with self._lock:
            self._listeners += 1
            if self._thread is None and self._engine.dialect.name == "postgresql":
                self._thread = _Listening(self._engine)
                self._thread.start()

    def close(self) -> None:
        """Stop listening, once every starter has closed."""
        with self._lock:
            self._listeners = max(0, self._listeners - 1)
            gone, self._thread = (self._thread, None) if not self._listeners else (None, self._thread)
        if gone is not None:
            gone.stop()

    def last_change(self, topic: Topic) -> Hashable:
        """Return a token that changes with every announced change; None while notifications do not work."""
        thread = self._thread
        return None if thread is None or not thread.hears else (thread.name, thread.heard[topic])

    def fresh(self, topic: Topic, ask: Callable[[], T], *, of: Hashable = None) -> T:
        """Return the result of `fetch`, cached until the next change of the topic by any host.

        `key` distinguishes several values of one topic. The value is refetched every few seconds regardless, because a
        restored dump may lack the triggers.
        """
        heard = self.last_change(topic)
        if heard is None:
            return ask()
        # Our own commits count too: their notification arrives only after the next wait.
        mark = heard, sql.last_commit(self._engine, topic), time.monotonic() // _PROVED_EVERY
        kept = self._known.get((topic, of))
        if kept is None or kept[0] != mark:
            self._known[topic, of] = kept = mark, ask()
        found: T = kept[1]
        return found


_of_place: dict[tuple[sa.URL, str], News] = {}


def news_of(engine: sa.Engine) -> News:
    """Return the process-wide feed of a database: it needs one connection, however many callers there are."""
    if engine.dialect.name != "postgresql":
        return News(engine)
    key = sql.key_of(engine)
    return _of_place.get(key) or _of_place.setdefault(key, News(engine))


class _Listening(threading.Thread):
    """A thread with one connection from the engine's pool that waits for notifications."""

    def __init__(self, engine: sa.Engine) -> None:
        super().__init__(name=f"habitus-news-{secrets.token_hex(4)}", daemon=True)
        self.hears = False
        self.heard = dict.fromkeys(Topic, 0)
        self._engine = engine
        self._stopped = threading.Event()

    def run(self) -> None:
        """Listen until stopped, reconnecting after errors."""
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
            # Wakes the thread from its wait.
            self._beat()
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
                # A connection that still listens must not return to the pool.
                kept.invalidate()

    def _prove(self, kept: sa.Connection) -> None:
        """Send a notification over another connection; raise if it does not arrive."""
        self._beat()
        if not self._take(kept, _HEARD_WITHIN, is_proof=True):
            raise StorageFailed("What is said on one connection is not heard on another.", hint="Is there a pooler?")
        if not self.hears:
            # Changes during the gap were missed, so every topic counts as changed.
            self.heard = {topic: count + 1 for topic, count in self.heard.items()}
            self.hears = True

    def _beat(self) -> None:
        with sql.reading(self._engine) as connection:
            connection.execute(sa.text("SELECT pg_notify(:name, '')"), {"name": self.name})

    def _take(self, kept: sa.Connection, seconds: float, *, is_proof: bool = False) -> bool:
        """Count notifications for some seconds; with `until_ping`, return True as soon as our own arrives."""
        driver: Any = kept.connection.driver_connection
        for notice in driver.notifies(timeout=seconds):
            if notice.channel == self.name:
                if is_proof or self._stopped.is_set():
                    return True
            elif notice.payload in self.heard:
                self.heard[Topic(notice.payload)] += 1
        return False
