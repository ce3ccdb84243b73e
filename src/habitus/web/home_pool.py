"""The home as each signed-in person uses it: every change is recorded under their name.

While the shared database is unreachable, reads are answered from this host's offline snapshot, with a header that says
so. A server started meanwhile has only the snapshot, and switches to the database when it is back.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from habitus.agent.background import run_in_thread
from habitus.app import Habitus
from habitus.app.conversations.chats import UserChatSessions, get_or_open_user_chat_sessions
from habitus.app.home import DATABASE_AWAY
from habitus.app.home_directory import OFFLINE_SNAPSHOT_FILE
from habitus.app.operating import configuring
from habitus.app.operating.people import UserAccount, UserRole
from habitus.app.sharing.approvals import ApprovalWatcher
from habitus.app.sharing.availability import explain_unreachable_database, is_shared_database_back
from habitus.errors import DatabaseUnavailable, HabitusError
from habitus.sql.outage import PROBE_TIMEOUT_S

log = logging.getLogger(__name__)

READ_METHODS = frozenset({"GET", "HEAD"})
# Response header with the time of the snapshot that answered.
AS_OF_HEADER = "Habitus-As-Of"
# Probing on every request would make each one wait for a database that is down.
_PROBE_INTERVAL_S = 1.0


class HomePool:
    """Holds one open home per person, sharing the owner's connections, until `close`."""

    def __init__(self, own: Habitus) -> None:
        """Start with the owner's home; if it is an offline snapshot, wait for the database in a thread."""
        self.owner_home = own
        # The home on the offline snapshot while the database is unreachable.
        self._copy = own if own.is_offline else None
        self._serving = ApprovalWatcher(own, refreshes_snapshot=True)
        self._asked_at = time.monotonic()
        # Keyed by the home whose connections are shared, since the snapshot has homes of its own.
        self._opened: dict[tuple[Habitus, UserAccount], Habitus] = {}
        # Homes opened with outdated settings or on the snapshot; running requests may still use them.
        self._left: list[Habitus] = []
        self._lock = threading.Lock()
        self._followers: list[Callable[[Habitus], None]] = []
        self._at_close: list[Callable[[], None]] = []
        self._closed = threading.Event()
        self._returning = threading.Thread(
            target=self._wait_for_database_and_switch_to_it, name="habitus-returning", daemon=True
        )
        if own.is_offline:
            self._returning.start()

    def add_reconnect_callback(self, callback: Callable[[Habitus], None]) -> None:
        """Call `callback` with the home on the database when it replaces the snapshot."""
        self._followers.append(callback)

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` before the homes are closed."""
        self._at_close.append(callback)

    def get_home(self, person: UserAccount | None, home: Habitus | None = None) -> Habitus:
        """Return a person's home, opened on first use; None is the owner."""
        home = home or self.owner_home
        if person is None:
            return home
        with self._lock:
            if (home, person) not in self._opened:
                self._opened[home, person] = home.as_user(person.name, is_admin=person.role is UserRole.ADMIN)
            return self._opened[home, person]

    def get_home_without_waiting(self, person: UserAccount | None) -> Habitus | None:
        """Return a person's home if that needs no waiting for a lock or a database probe, else None."""
        is_asked = time.monotonic() - self._asked_at < _PROBE_INTERVAL_S
        if self._copy is not None or not (is_asked or self.owner_home.shared.dialect.name != "postgresql"):
            return None
        return self.owner_home if person is None else self._opened.get((self.owner_home, person))

    def get_snapshot_home_while_database_is_away(self, *, is_away: bool = False) -> Habitus | None:
        """Return the home on the offline snapshot while the database is unreachable, else None; probes once
        a second.
        """
        with self._lock:
            is_due = is_away or time.monotonic() - self._asked_at >= _PROBE_INTERVAL_S
            if is_due and self.owner_home.shared.dialect.name == "postgresql":
                is_away = is_away or bool(explain_unreachable_database(self.owner_home.shared.url, PROBE_TIMEOUT_S))
                self._asked_at = time.monotonic()
                if is_away and self._copy is None:
                    # Without a snapshot the request fails with the database's own error.
                    with suppress(HabitusError):
                        self._copy = self._open_home_if_on_wanted_source(is_stand_in=True)
                elif self._copy is not None and not is_away:
                    log.info("The database is back.")
                    self._close_snapshot_homes(self._copy)
                    self._copy = None
            return self._copy

    def _open_home_if_on_wanted_source(self, *, is_stand_in: bool, **changed: object) -> Habitus | None:
        """Open the home and return it if it is on the wanted side, database or snapshot; else None."""
        opened = Habitus.open(self.owner_home.settings.model_copy(update=changed), clock=self.owner_home.clock)
        if opened.is_offline is is_stand_in:
            return opened
        opened.close()
        return None

    def _close_snapshot_homes(self, copy: Habitus) -> None:
        # Homes of people share the snapshot's connections, so they close first.
        theirs = [copy, *(self._opened.pop(key) for key in list(self._opened) if key[0] is copy)]
        for habitus in reversed(theirs):
            habitus.close()

    def _wait_for_database_and_switch_to_it(self) -> None:
        """Wait until the database can be opened, then switch to it."""
        said = ""
        while not self._closed.wait(_PROBE_INTERVAL_S):
            try:
                # On the connection that has just answered. While it is away, opening it would only say so again.
                if (
                    is_shared_database_back(self.owner_home.settings)
                    and (opened := self._open_home_if_on_wanted_source(is_stand_in=False)) is not None
                ):
                    self._replace_snapshot_by_database(opened)
                    return
            except HabitusError as error:
                # A repeated error is logged once, not every second.
                if str(error) != said:
                    said = str(error)
                    log.warning("The database is back, and can't be opened: %s", said)

    def _replace_snapshot_by_database(self, opened: Habitus) -> None:
        """Replace the snapshot by the home on the database and tell the listeners first."""
        try:
            # Listeners load the users before the first request can reach the new home.
            for tell in self._followers:
                tell(opened)
        except BaseException:
            opened.close()
            raise
        with self._lock:
            self._serving.close()
            self._serving = ApprovalWatcher(opened, refreshes_snapshot=True)
            self._asked_at = time.monotonic()
            self._replace_current_home(opened)
            self._copy = None
        log.info("The database is back.")

    @contextmanager
    def reopen_home_with_settings_changed_in_block(self) -> Iterator[None]:
        """Reopen the home with the settings changed inside the block; running requests finish on the old one."""
        if self.owner_home.is_offline or explain_unreachable_database(self.owner_home.shared.url, PROBE_TIMEOUT_S):
            raise DatabaseUnavailable(
                f"{DATABASE_AWAY} Changes are possible again when it is back.", hint="Retry then."
            )
        known = self.owner_home.settings
        before = configuring.reload_settings(known, os.environ)
        yield
        after = configuring.reload_settings(known, os.environ)
        changed = {name: value for name, value in after if value != getattr(before, name)}
        if not changed:
            return
        with self._lock:
            opened = self._open_home_if_on_wanted_source(is_stand_in=False, **changed)
            if opened is None:
                raise DatabaseUnavailable(
                    f"{DATABASE_AWAY} The setting was saved.", hint="Restart Habitus to apply it."
                )
            self._replace_current_home(opened)

    def _replace_current_home(self, opened: Habitus) -> None:
        """Use this home from now on and keep the old ones open until `close`."""
        self.owner_home = opened
        # Each home comes before those that use its connections, so closing in reverse is safe.
        self._left += [opened, *self._opened.values()]
        self._opened.clear()

    def close(self) -> None:
        """Stop waiting for the database and close every home opened here."""
        self._closed.set()
        for callback in self._at_close:
            callback()
        if self._returning.is_alive():
            self._returning.join()
        if self._copy not in (None, self.owner_home):
            self._left.append(self._copy)
        self._serving.close()
        for habitus in (*self._opened.values(), *reversed(self._left)):
            habitus.close()


def get_home_pool(request: Request) -> HomePool:
    """Return the homes of the running application."""
    desks: HomePool = request.app.state.desks
    return desks


def get_public_address(request: Request) -> str:
    """Return the address under which people reach this server: the configured one, else that of the request."""
    web = get_home_pool(request).owner_home.settings.web
    return web.address or f"{request.url.scheme}://{request.headers['host']}"


def get_request_home(request: Request) -> Habitus:
    """Return the sender's home; for reads, the snapshot while the database is unreachable. Call it in a thread."""
    desks = get_home_pool(request)
    if request.method in READ_METHODS and (copy := desks.get_snapshot_home_while_database_is_away()) is not None:
        request.state.as_of = datetime.fromtimestamp(
            int((copy.settings.home / OFFLINE_SNAPSHOT_FILE).stat().st_mtime), UTC
        )
        return desks.get_home(request.state.person, copy)
    return desks.get_home(request.state.person)


async def get_request_home_async(request: Request) -> Habitus:
    """Return the sender's home; uses a thread only if it has to be opened."""
    open_already = get_home_pool(request).get_home_without_waiting(request.state.person)
    return await run_in_thread(lambda: get_request_home(request)) if open_already is None else open_already


def get_request_conversations(request: Request) -> UserChatSessions:
    """Return the sender's open conversations."""
    return get_or_open_user_chat_sessions(get_request_home(request))


class SnapshotFallbackMiddleware:
    """Middleware that answers a read from the offline snapshot if it found the database unreachable."""

    def __init__(self, app: ASGIApp, desks: HomePool) -> None:
        self._app = app
        self._desks = desks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        state["is_away"] = False

        async def mark(message: Message) -> None:
            if message["type"] == "http.response.start" and state.get("as_of") is not None:
                MutableHeaders(scope=message)[AS_OF_HEADER] = state["as_of"].isoformat()
            await send(message)

        async def mark_unless_away(message: Message) -> None:
            if not state["is_away"]:
                await mark(message)

        if scope["type"] != "http" or scope["method"] not in READ_METHODS:
            await self._app(scope, receive, send)
            return
        # The first attempt gets a copy of the scope, because the router writes into it.
        await self._app(dict(scope), receive, mark_unless_away)
        if state["is_away"]:
            await run_in_thread(lambda: self._desks.get_snapshot_home_while_database_is_away(is_away=True))
            await self._app(scope, receive, mark)
