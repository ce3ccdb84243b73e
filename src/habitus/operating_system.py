"""What operating systems do differently: files, locks, accounts, processes, local sockets, signals and terminals.

Everything else runs alike on Linux, macOS and Windows. Code that only the sandbox runs is for Linux and stays there.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

# Flags for every descriptor: children don't inherit it, and line ends stay as they are.
O_PLAIN: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_O_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_O_NOFOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
StatFunction = Callable[[str], os.stat_result]


def open_regular_file_for_reading(path: Path | str, *, follow_links: bool = True) -> int:
    """Open a regular file, without waiting for the other end of a pipe; raise OSError for a link not to follow."""
    if not follow_links and not _O_NOFOLLOW and os.path.islink(path):  # noqa: PTH114  # called for each of many files
        raise OSError(f"{path} is a link")
    return os.open(path, os.O_RDONLY | O_PLAIN | _O_NONBLOCK | (0 if follow_links else _O_NOFOLLOW))


if sys.platform == "win32":
    import ctypes
    import hashlib
    import msvcrt
    import secrets
    import tempfile

    # Windows locks bytes, which nobody else can read then, so they lie behind the content of any lock file.
    _LOCK_START, _LOCK_LENGTH = 1 << 30, 1 << 10
    CAN_SHARE_SOCKETS = False

    def open_lock_file(path: Path) -> int:
        """Open the file to lock; for a folder, which can't be opened, one with its name among temporary files."""
        if path.is_dir():
            name = hashlib.sha256(str(path.resolve()).casefold().encode()).hexdigest()
            path = Path(tempfile.gettempdir(), f"habitus-{name}.lock")
        return os.open(path, os.O_RDWR | os.O_CREAT | O_PLAIN, 0o600)

    def try_lock_descriptor(descriptor: int, *, shared: bool) -> bool:
        """Lock an open file until it is closed; False if another process holds it."""
        # A shared lock holds one byte of the range, an exclusive one all of them.
        offset = secrets.randbelow(_LOCK_LENGTH) if shared else 0
        os.lseek(descriptor, _LOCK_START + offset, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1 if shared else _LOCK_LENGTH)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

    def sync_to_disk(path: Path | str) -> None:
        """Flush a file to disk; Windows writes the names in a folder itself."""
        if Path(path).is_file():
            with Path(path).open("r+b") as file:
                os.fsync(file)

    def flush_all_files_to_disk() -> None:
        """Do nothing: Windows flushes single files only."""

    def set_file_permissions(descriptor: int, mode: int) -> None:
        """Do nothing: Windows has no permission bits; a file inherits the permissions of its folder."""

    def copy_file_permissions_and_owner(path: Path, owner: os.stat_result) -> None:
        """Do nothing: on Windows the folder decides."""

    @contextmanager
    def open_folder_to_stat_entries(folder: Path) -> Iterator[StatFunction]:
        """Yield a function that returns the status of a path in the folder."""
        yield lambda path: (folder / path).stat()

    def get_account_name() -> str:
        """Return the account of this process, whatever the variables say."""
        return os.getlogin()

    def get_current_user_id() -> int:
        """Return the owner of our files, which is the same for all users here."""
        return 0

    def is_superuser() -> bool:
        """Return False: an administrator's files are like everyone's."""
        return False

    def get_user_name_by_id(user_id: int) -> str:
        """Return the id as text: Windows names no owner by number."""
        return str(user_id)

    def get_process_start_id(pid: int) -> str:
        """Return a text that identifies this start of a process among all with its id; empty if there is no process."""
        kernel = ctypes.windll.kernel32
        # PROCESS_QUERY_LIMITED_INFORMATION
        if not (process := kernel.OpenProcess(0x1000, False, pid)):
            return ""
        created, ended, in_kernel, in_user = (ctypes.c_uint64() for _ in range(4))
        found = kernel.GetProcessTimes(process, *map(ctypes.byref, (created, ended, in_kernel, in_user)))
        kernel.CloseHandle(process)
        return str(created.value) if found and not ended.value else ""

    def kill_process_tree(pid: int) -> None:
        """Kill a process and what it started."""
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(pid)], capture_output=True, check=False)

    def start_detached_process(command: list[str], log: Path) -> int:
        """Start a detached process that outlives this one, and return its id."""
        flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP
        with log.open("wb") as out:
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, creationflags=flags)
        # It is not waited for.
        started.returncode = 0
        return started.pid

    def limit_resources_of_this_process(*, cpu_s: int, memory: int) -> None:
        """Do nothing: the caller's timeout is the only limit."""

    def open_local_listening_socket(place: Path) -> tuple[socket.socket, bytes]:
        """Return a socket for this user only, and the line that a caller sends first; the file at `place` has both."""
        door, token = socket.create_server(("127.0.0.1", 0)), secrets.token_hex(32)
        aside = place.with_name(f"{place.name}.new")
        aside.write_text(f"{door.getsockname()[1]} {token}", encoding="ascii")
        aside.replace(place)
        return door, f"{token}\n".encode()

    def connect_to_local_process(place: Path, *, timeout_s: float | None = None) -> socket.socket:
        """Connect to the process that listens at a place; raise OSError if none does."""
        port, _, token = place.read_text(encoding="ascii").partition(" ")
        line = socket.create_connection(("127.0.0.1", int(port)), timeout=timeout_s)
        line.sendall(f"{token}\n".encode())
        return line

    def connect_unix_socket(path: str, timeout_s: float) -> socket.socket:
        """Raise OSError: Windows reaches a server over the network only."""
        raise OSError(f"this system can't reach the socket {path}")

    def wait_for_pipe_input(descriptor: int, timeout_s: float | None) -> bool:
        """Return whether a pipe has input; Windows can't tell before it is read, so a timeout passes at once."""
        return timeout_s is None

    @contextmanager
    def suppress_echo() -> Iterator[None]:
        """Do nothing: the console of Windows echoes only what a program reads."""
        yield

    def discard_typed_input() -> None:
        """Drop the keys typed before the next prompt."""
        while msvcrt.kbhit():
            msvcrt.getwch()

    @contextmanager
    def pass_typed_keys_to_function(loop: AbstractEventLoop, handle_key: Callable[[str], object]) -> Iterator[None]:
        """Do nothing: Ctrl-C ends the block."""
        yield

else:
    import fcntl
    import pwd
    import resource

    CAN_SHARE_SOCKETS = True

    def open_lock_file(path: Path) -> int:
        """Open the file or folder to lock, creating a missing file."""
        flags = os.O_RDONLY | os.O_DIRECTORY if path.is_dir() else os.O_RDWR | os.O_CREAT
        return os.open(path, flags | O_PLAIN, 0o600)

    def try_lock_descriptor(descriptor: int, *, shared: bool) -> bool:
        """Lock an open file until it is closed; False if another process holds it."""
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def sync_to_disk(path: Path | str) -> None:
        """Flush a file, or the names in a folder, to disk."""
        handle = os.open(path, os.O_RDONLY | O_PLAIN)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def flush_all_files_to_disk() -> None:
        """Flush all files to disk."""
        os.sync()

    def set_file_permissions(descriptor: int, mode: int) -> None:
        """Set the permissions of an open file."""
        os.fchmod(descriptor, mode)

    def copy_file_permissions_and_owner(path: Path, owner: os.stat_result) -> None:
        """Give a file the permissions of another, and its owner if that is allowed."""
        path.chmod(stat.S_IMODE(owner.st_mode))
        with contextlib.suppress(PermissionError):
            os.chown(path, owner.st_uid, owner.st_gid)

    @contextmanager
    def open_folder_to_stat_entries(folder: Path) -> Iterator[StatFunction]:
        """Yield a function that returns the status of a path in the folder."""
        # Paths relative to an open directory spare the kernel from resolving the folder each time.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield partial(os.stat, dir_fd=handle)
        finally:
            os.close(handle)

    def get_account_name() -> str:
        """Return the account of this process, whatever the variables say."""
        return get_user_name_by_id(os.getuid())

    def get_current_user_id() -> int:
        """Return the owner of our files."""
        return os.getuid()

    def is_superuser() -> bool:
        """Return whether this process may do everything."""
        return os.geteuid() == 0

    def get_user_name_by_id(user_id: int) -> str:
        """Return the name of an account, or its id if it has none."""
        try:
            return pwd.getpwuid(user_id).pw_name
        except KeyError:
            return str(user_id)

    def get_process_start_id(pid: int) -> str:
        """Return a text that identifies this start of a process among all with its id; empty if there is no process."""
        try:
            # After the name in parentheses, which may contain anything; the 20th value is the start since boot.
            ticks = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19]
            return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {int(ticks)}"
        except (OSError, IndexError, ValueError):
            pass
        if Path("/proc/self").exists():
            return ""
        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def kill_process_tree(pid: int) -> None:
        """Kill a process that leads a group, and what it started."""
        os.killpg(pid, signal.SIGKILL)

    def start_detached_process(command: list[str], log: Path) -> int:
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

    def limit_resources_of_this_process(*, cpu_s: int, memory: int) -> None:
        """Limit processor time and memory of this process, and forbid it to write files."""
        for what, most in ((resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0)):
            # Not every system has each limit.
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(what, (most, most))

    def open_local_listening_socket(place: Path) -> tuple[socket.socket, bytes]:
        """Return a socket at this path for this user only, and nothing that a caller has to send first."""
        place.unlink(missing_ok=True)
        door = socket.socket(socket.AF_UNIX)
        with _shorten_socket_path(place) as short:
            door.bind(short)
        # Before it listens, so nobody else can connect in between.
        place.chmod(0o600)
        return door, b""

    def connect_to_local_process(place: Path, *, timeout_s: float | None = None) -> socket.socket:
        """Connect to the process that listens at a place; raise OSError if none does."""
        with _shorten_socket_path(place) as short:
            return connect_unix_socket(short, timeout_s)

    def connect_unix_socket(path: str, timeout_s: float | None) -> socket.socket:
        """Connect to a Unix socket; raise OSError if that fails."""
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(timeout_s)
        try:
            line.connect(path)
        except OSError:
            line.close()
            raise
        return line

    @contextmanager
    def _shorten_socket_path(place: Path) -> Iterator[str]:
        """Yield a path to the socket that fits into the hundred bytes of its address, where /proc has one."""
        fd = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            short = Path(f"/proc/self/fd/{fd}")
            yield f"{short}/{place.name}" if short.exists() else min(str(place), os.path.relpath(place), key=len)
        finally:
            os.close(fd)

    def wait_for_pipe_input(descriptor: int, timeout_s: float | None) -> bool:
        """Return whether a pipe has input before the timeout."""
        return bool(select.select([descriptor], [], [], timeout_s)[0])

    @contextmanager
    def suppress_echo() -> Iterator[None]:
        """Keep typed keys for the next prompt instead of echoing them into the output."""
        import termios

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        silent = [*before]
        # Index 3 holds the local modes.
        silent[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
        try:
            yield
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    def discard_typed_input() -> None:
        """Drop the keys typed before the next prompt."""
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    @contextmanager
    def pass_typed_keys_to_function(loop: AbstractEventLoop, handle_key: Callable[[str], object]) -> Iterator[None]:
        """Pass each key to the function while the block runs, and restore the terminal afterwards."""
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        now = termios.tcgetattr(sys.stdin)
        # Ctrl-C is delivered as a key: as a signal it would also end the `make` that started the program.
        now[6][termios.VINTR] = b"\0"
        termios.tcsetattr(sys.stdin, termios.TCSANOW, now)
        loop.add_reader(sys.stdin, lambda: handle_key(sys.stdin.read(1)))
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextmanager
def handle_signal(loop: AbstractEventLoop, number: signal.Signals, handler: Callable[[], object]) -> Iterator[None]:
    """Call a function on the loop when the signal arrives, and restore the default afterwards."""
    try:
        loop.add_signal_handler(number, handler)
    except NotImplementedError:
        # Windows, where a handler runs beside the loop.
        before = signal.signal(number, lambda *_: loop.call_soon_threadsafe(handler))
        try:
            yield
        finally:
            signal.signal(number, before)
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
