"""A background process that answers on a private socket: one per folder, which ends when idle."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from habitus import operating_system
from habitus.locks import try_lock

ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

# The name of the socket and lock of the process behind other agents' hooks.
HOOK_SERVER = "hooks"
_LOOK_S, _LONGEST = 5.0, 1 << 26


@contextlib.contextmanager
def connect_to_process(folder: Path, name: str, *, timeout_s: float | None = None) -> Iterator[socket.socket]:
    """Connect to the process; raise OSError if none is listening."""
    with operating_system.connect_to_local_process(_get_socket_path(folder, name), timeout_s=timeout_s) as line:
        yield line


def is_process_running(folder: Path, name: str, *, timeout_s: float | None = None) -> bool:
    """Return whether a process listens there."""
    try:
        with connect_to_process(folder, name, timeout_s=timeout_s):
            return True
    except OSError:
        return False


async def serve_until_idle(
    folder: Path,
    name: str,
    answer: ConnectionHandler,
    *,
    idle_s: float,
    stop: asyncio.Event,
    close: Callable[[], Awaitable[None]],
) -> None:
    """Answer until stopped, idle for too long, or the folder is gone; return immediately if another process listens.

    `close` releases resources before another process may listen here.
    """
    with try_lock(get_lock_path(folder, name)) as lock:
        if lock is None:
            return
        place = _get_socket_path(folder, name)
        door, greeting = operating_system.open_local_listening_socket(place)
        listening = _IdleTrackingConnectionHandler(answer, greeting)
        with door:
            async with await asyncio.start_server(listening.handle_connection, sock=door, limit=_LONGEST):
                while (
                    not stop.is_set()
                    and _is_own_lock_and_socket_present(lock, folder, name)
                    and listening.idle_s <= idle_s
                ):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), min(_LOOK_S, idle_s))
        # Otherwise another process owns the socket by now.
        if _is_own_lock_and_socket_present(lock, folder, name):
            place.unlink(missing_ok=True)
        await close()


def request_stop(folder: Path, name: str) -> None:
    """Stop the process within seconds; another one may start immediately."""
    # The process notices that one of its files is gone; on Windows an open one, as its lock file, can't be removed.
    for file in (_get_socket_path(folder, name), get_lock_path(folder, name)):
        with contextlib.suppress(PermissionError):
            file.unlink(missing_ok=True)


def _is_own_lock_and_socket_present(lock: int, folder: Path, name: str) -> bool:
    """Return whether the lock file is still the one we hold, and our socket is there."""
    try:
        is_ours = os.path.samestat(os.fstat(lock), get_lock_path(folder, name).stat())
        return is_ours and os.path.lexists(_get_socket_path(folder, name))
    except OSError:
        return False


class _IdleTrackingConnectionHandler:
    def __init__(self, answer: ConnectionHandler, greeting: bytes) -> None:
        self._answer = answer
        self._greeting = greeting
        self._running = 0
        self._last = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last request; 0 while one is running."""
        return 0.0 if self._running else time.monotonic() - self._last

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._running += 1
        try:
            if not self._greeting or hmac.compare_digest(await reader.readline(), self._greeting):
                await self._answer(reader, writer)
        except (OSError, ValueError):
            # The client has gone, or speaks another protocol.
            pass
        finally:
            self._running -= 1
            self._last = time.monotonic()
            writer.close()


def get_lock_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.lock"


def _get_socket_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.socket"


def open_private_file(path: str, flags: int) -> int:
    """Opener for files that only their owner may read."""
    return os.open(path, flags, 0o600)
