"""Tells open pages that the home's data changed; they then fetch their live parts, as rendered by the server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator

from fastapi import Request

from habitus.agent.background import run_in_thread
from habitus.sql.change_notifications import ChangeFeed, get_change_feed
from habitus.web.home_pool import HomePool
from habitus.web.streams import LiveUpdate, LiveUpdateAction

# However many pages listen, the database is asked once in this time.
_POLL_S = 0.25
# Proxies close a connection that is silent for a minute.
_KEEP_ALIVE_S = 20.0


class ChangeWatcher:
    """Reads the change marker of a home's database for every open page, one poll for the whole process."""

    def __init__(self, homes: HomePool) -> None:
        self._homes = homes
        self._lock = threading.Lock()
        self._feed: ChangeFeed | None = None
        self._asked_at = -_POLL_S
        self._marker: str | None = None
        homes.add_close_callback(self.close)

    def read_data_change_marker(self) -> str | None:
        """Return a token that changes with the data; None while changes go unnoticed."""
        with self._lock:
            if time.monotonic() - self._asked_at >= _POLL_S:
                # After a reconnect the home has another database; a snapshot of one that is away does not change.
                home = self._homes.owner_home
                feed = None if home.is_offline else get_change_feed(home.shared)
                if feed is None or self._feed is None or self._feed.key != feed.key:
                    self._replace_change_feed(feed)
                self._marker = None if self._feed is None else self._feed.read_token_of_all_commits()
                self._asked_at = time.monotonic()
            return self._marker

    def _replace_change_feed(self, feed: ChangeFeed | None) -> None:
        if self._feed is not None:
            self._feed.close()
        self._feed = feed
        if feed is not None:
            feed.start()

    def close(self) -> None:
        """Stop listening to the database."""
        with self._lock:
            self._replace_change_feed(None)

    async def iterate_updates_after_changes(self) -> AsyncIterator[LiveUpdate]:
        """Yield the marker now and after each change; ends when changes go unnoticed."""
        said, said_at = "", time.monotonic()
        while (marker := await run_in_thread(self.read_data_change_marker)) is not None:
            if marker != said or time.monotonic() - said_at > _KEEP_ALIVE_S:
                yield LiveUpdate(mode=LiveUpdateAction.CHANGED, data=marker)
                said, said_at = marker, time.monotonic()
            await asyncio.sleep(_POLL_S)


def get_change_watcher(request: Request) -> ChangeWatcher:
    """Return the watcher of the running application."""
    watcher: ChangeWatcher = request.app.state.changes
    return watcher
