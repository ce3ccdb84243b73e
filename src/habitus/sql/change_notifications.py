"""Notifications of changes that other hosts make to a shared database, through PostgreSQL's LISTEN.

Without them (SQLite, a pooler in transaction mode, a cut connection) readers query the database each time. Open pages
follow `read_token_of_all_commits`, which on SQLite is one `PRAGMA data_version`.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy as sa

from habitus import sql
from habitus.errors import StorageFailed
from habitus.sql.transactions import NOTIFICATION_CHANNEL, announce_table_changes

log = logging.getLogger(__name__)

T = TypeVar("T")

# After this silence, in seconds, the listener verifies that it would still receive something.
_VERIFY_INTERVAL_S = 10.0
_VERIFY_TIMEOUT_S = 1.0
_RETRY_DELAY_S = 2.0
_STOP_TIMEOUT_S = 5.0


class ChangeTopic(StrEnum):
    """The tables whose changes are announced, by triggers from the migrations or by the writer itself."""

    SKILLS = "sequences"
    ROWS = "agent_skills"
    LESSONS = "memory_revision"
    PROPOSALS = "skill_proposals"
    PEOPLE = "sign_ins"
    SWITCHES = "switches"
    TURNS = "turns"
    OUTCOMES = "outcomes"
    JOBS = "jobs"


def notify_change(conn: sa.Connection, topic: ChangeTopic) -> None:
    """Announce a change to a table that has no trigger when the transaction commits."""
    announce_table_changes(conn, [topic])


class ChangeFeed:
    """The change notifications of one database, shared by everything in this process that uses it."""

    def __init__(self, engine: sa.Engine) -> None:
        self.key = sql.get_database_key(engine)
        self._engine = engine
        self._lock = threading.Lock()
        self._listeners = 0
        self._thread: _NotificationListener | None = None
        self._version: sqlite3.Connection | None = None
        self._known: dict[tuple[ChangeTopic, Hashable], tuple[Hashable, Any]] = {}
        self._callbacks: list[tuple[ChangeTopic, Callable[[], object]]] = []

    def start(self) -> None:
        """Start listening; it ends after as many calls of `close`."""
        with self._lock:
            self._listeners += 1
            if self._thread is None and self._engine.dialect.name == "postgresql":
                self._thread = _NotificationListener(self._engine, self._call_callbacks_of_topic)
                self._thread.start()

    def close(self) -> None:
        """Stop listening, once every starter has closed."""
        with self._lock:
            self._listeners = max(0, self._listeners - 1)
            gone, self._thread = (self._thread, None) if not self._listeners else (None, self._thread)
            if self._version is not None and not self._listeners:
                self._version.close()
                self._version = None
        if gone is not None:
            gone.stop()

    @contextmanager
    def call_on_change(self, topic: ChangeTopic, callback: Callable[[], object]) -> Iterator[None]:
        """Listen, and call back after each change of the topic, and when notifications begin or stop to work."""
        self._callbacks.append((topic, callback))
        self.start()
        try:
            yield
        finally:
            self.close()
            self._callbacks.remove((topic, callback))

    def _call_callbacks_of_topic(self, topic: ChangeTopic | None) -> None:
        for of, callback in tuple(self._callbacks):
            if topic in (None, of):
                callback()

    def get_token_of_announced_changes(self, topic: ChangeTopic) -> Hashable:
        """Return a token that changes with every announced change; None while notifications do not work."""
        thread = self._thread
        return None if thread is None or not thread.is_receiving else (thread.name, thread.change_counts[topic])

    def read_token_of_all_commits(self) -> str | None:
        """Return a token that changes with every commit by any process; None while changes go unnoticed."""
        if self._engine.dialect.name == "sqlite":
            return self._read_data_version()
        thread = self._thread
        return None if thread is None or not thread.is_receiving else f"{thread.name} {thread.count_changes()}"

    def _read_data_version(self) -> str | None:
        # The number compares only with earlier ones of the same connection, so this one stays open.
        with self._lock, suppress(sqlite3.Error):
            if self._version is None:
                address = f"file:{quote(str(self._engine.url.database))}?mode=ro"
                self._version = sqlite3.connect(address, uri=True, check_same_thread=False, isolation_level=None)
            return f"{id(self._version)} {self._version.execute('PRAGMA data_version').fetchone()[0]}"
        return None

    def fetch_cached(self, topic: ChangeTopic, fetch: Callable[[], T], *, key: Hashable = None) -> T:
        """Return the result of `fetch`, cached until the next change of the topic by any host.

        `key` distinguishes several values of one topic. The value is refetched every few seconds regardless, because a
        restored dump may lack the triggers.
        """
        heard = self.get_token_of_announced_changes(topic)
        if heard is None:
            return fetch()
        # Our own commits count too: their notification arrives only after the next wait.
        mark = heard, sql.get_token_of_own_table_commits(self._engine, topic), time.monotonic() // _VERIFY_INTERVAL_S
        kept = self._known.get((topic, key))
        if kept is None or kept[0] != mark:
            self._known[topic, key] = kept = mark, fetch()
        found: T = kept[1]
        return found


_feeds: dict[tuple[sa.URL, str], ChangeFeed] = {}


def get_change_feed(engine: sa.Engine) -> ChangeFeed:
    """Return the process-wide feed of a database: it needs one connection, however many callers there are."""
    if engine.dialect.name != "postgresql":
        return ChangeFeed(engine)
    key = sql.get_database_key(engine)
    return _feeds.get(key) or _feeds.setdefault(key, ChangeFeed(engine))


class _NotificationListener(threading.Thread):
    """A thread with one connection from the engine's pool that waits for notifications."""

    def __init__(self, engine: sa.Engine, call_back: Callable[..., object]) -> None:
        super().__init__(name=f"habitus-news-{secrets.token_hex(4)}", daemon=True)
        self._call_callbacks_of_topic = call_back
        self.is_receiving = False
        self.change_counts = dict.fromkeys(ChangeTopic, 0)
        self._engine = engine
        self._stopped = threading.Event()

    def run(self) -> None:
        """Listen until stopped, reconnecting after errors."""
        of_driver: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        while not self._stopped.is_set():
            try:
                self._listen_until_stopped()
            except (StorageFailed, sa.exc.SQLAlchemyError, of_driver) as error:
                log.debug("no news from the database, so it is asked each time: %s", error)
            finally:
                self.is_receiving = False
                self._call_callbacks_of_topic(None)
            self._stopped.wait(_RETRY_DELAY_S)

    def count_changes(self) -> int:
        return sum(self.change_counts.values())

    def stop(self) -> None:
        self._stopped.set()
        with suppress(StorageFailed):
            # Wakes the thread from its wait.
            self._send_test_notification()
        self.join(_STOP_TIMEOUT_S)

    def _listen_until_stopped(self) -> None:
        with sql.read_transaction(self._engine) as conn:
            channel = conn.execute(sa.text(f"SELECT {NOTIFICATION_CHANNEL}")).scalar_one()
        with sql.translate_storage_errors(self._engine), self._engine.connect() as kept:
            kept.execution_options(isolation_level="AUTOCOMMIT")
            try:
                for name in (channel, self.name):
                    kept.execute(sa.text(f'LISTEN "{name}"'))
                while not self._stopped.is_set():
                    self._verify_delivery(kept)
                    self._receive_notifications(kept, _VERIFY_INTERVAL_S)
            finally:
                # A connection that still listens must not return to the pool.
                kept.invalidate()

    def _verify_delivery(self, kept: sa.Connection) -> None:
        """Send a notification over another connection; raise if it does not arrive."""
        self._send_test_notification()
        if not self._receive_notifications(kept, _VERIFY_TIMEOUT_S, until_ping=True):
            raise StorageFailed("Notifications of one connection do not reach another.", hint="Is there a pooler?")
        if not self.is_receiving:
            # Changes during the gap were missed, so every topic counts as changed.
            self.change_counts = {topic: count + 1 for topic, count in self.change_counts.items()}
            self.is_receiving = True
            self._call_callbacks_of_topic(None)

    def _send_test_notification(self) -> None:
        with sql.read_transaction(self._engine) as conn:
            conn.execute(sa.text("SELECT pg_notify(:name, '')"), {"name": self.name})

    def _receive_notifications(self, kept: sa.Connection, seconds: float, *, until_ping: bool = False) -> bool:
        """Count notifications for some seconds; with `until_ping`, return True as soon as our own arrives."""
        driver: Any = kept.connection.driver_connection
        for notice in driver.notifies(timeout=seconds):
            if notice.channel == self.name:
                if until_ping or self._stopped.is_set():
                    return True
                continue
            # Another release has other topics.
            if notice.payload in self.change_counts:
                topic = ChangeTopic(notice.payload)
                self.change_counts[topic] += 1
                self._call_callbacks_of_topic(topic)
        return False
