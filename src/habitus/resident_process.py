"""A background process that answers on a private socket: one per folder, which ends when idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from habitus.locks import try_lock

ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

# The name of the socket and lock of the process behind other agents' hooks.
HOOK_SERVER = "hooks"
_LOOK_S, _LONGEST = 5.0, 1 << 26


@contextlib.contextmanager
def connect_to_process(folder: Path, name: str) -> Iterator[socket.socket]:
    """Connect to the process; raise OSError if none is listening."""
    with socket.socket(socket.AF_UNIX) as line, _shorten_socket_path(folder) as place:
        line.connect(f"{place}/{name}.socket")
        yield line


def is_process_running(folder: Path, name: str) -> bool:
    """Return whether a process listens there."""
    try:
        with connect_to_process(folder, name):
            return True
    except OSError:
        return False


def start_in_background(command: list[str], log: Path) -> int:
    """Start a detached process that outlives this one, and return its id."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    return os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


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
        listening = _IdleTracker(answer)
        place = folder / f"{name}.socket"
        with bind_socket(place) as door:
            async with await asyncio.start_unix_server(listening.handle_connection, sock=door, limit=_LONGEST):
                while not stop.is_set() and _is_lock_current(lock, folder, name) and listening.idle_s <= idle_s:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), min(_LOOK_S, idle_s))
        # Otherwise another process owns the socket by now.
        if _is_lock_current(lock, folder, name):
            place.unlink(missing_ok=True)
        await close()


def bind_socket(place: Path) -> socket.socket:
    """Return a socket at this path for its user only, replacing an old one."""
    place.unlink(missing_ok=True)
    door = socket.socket(socket.AF_UNIX)
    with _shorten_socket_path(place.parent) as short:
        door.bind(f"{short}/{place.name}")
    # Before it listens, so nobody else can connect in between.
    place.chmod(0o600)
    return door


def request_stop(folder: Path, name: str) -> None:
    """Stop the process within seconds; another one may start immediately."""
    # The process notices that its lock file is gone.
    get_lock_path(folder, name).unlink(missing_ok=True)


def _is_lock_current(lock: int, folder: Path, name: str) -> bool:
    """Return whether the lock file is still the one we hold."""
    try:
        return os.path.samestat(os.fstat(lock), get_lock_path(folder, name).stat())
    except OSError:
        return False


class _IdleTracker:
    def __init__(self, answer: ConnectionHandler) -> None:
        self._answer = answer
        self._running = 0
        self._last = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Seconds since the last request; 0 while one is running."""
        return 0.0 if self._running else time.monotonic() - self._last

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._running += 1
        try:
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


def open_private_file(path: str, flags: int) -> int:
    """Opener for files that only their owner may read."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def _shorten_socket_path(folder: Path) -> Iterator[str]:
    """Yield a path to the folder that fits into the hundred bytes of a socket address."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
