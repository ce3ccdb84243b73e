"""`habitus up --workers N`: starts processes that share one listening socket, and replaces those that die."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

import typer

from habitus import operating_system
from habitus.cli.opening import open_habitus
from habitus.errors import Invalid, Refused
from habitus.mcp.http import open_listening_socket

_LOOK_S = 0.2
# A process that lives shorter than this is not started again at once.
_SHORT_LIFE_S = 5.0
# Processes that may die so early, one after the other, before the server gives up.
_MAX_SHORT_LIVES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerProcessOptions:
    """One process of a server: the socket that it inherits, if there are several, and its number."""

    inherited_socket: int | None = None
    number: int = 0

    @classmethod
    def parse_inherited_socket_and_number(cls, inherited: str) -> ServerProcessOptions:
        """Read 'SOCKET:NUMBER' as a parent gave it; empty for the only process."""
        if not inherited:
            return cls()
        descriptor, _, number = inherited.partition(":")
        if not (descriptor.isdecimal() and number.isdecimal()):
            raise Invalid(f"'{inherited}' names no socket.", hint="Leave --inherited out.")
        return cls(inherited_socket=int(descriptor), number=int(number))

    @property
    def is_first_process(self) -> bool:
        return self.number == 0

    def open_or_inherit_listening_socket(self, host: str, port: int) -> socket.socket:
        """Return the listening socket; a process that inherits it ends with its parent."""
        if self.inherited_socket is None:
            return open_listening_socket(host, port)
        threading.Thread(target=_terminate_self_when_parent_ends, name="habitus-parent", daemon=True).start()
        return socket.socket(fileno=self.inherited_socket)


def _terminate_self_when_parent_ends() -> None:
    # The parent never writes; its death closes the pipe.
    with suppress(OSError, ValueError):
        os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


def run_server_processes(context: typer.Context, host: str, port: int, count: int, *, with_jobs: bool) -> None:
    """Run `count` processes of this command until interrupted; the first one also runs the jobs."""
    if not operating_system.CAN_SHARE_SOCKETS:
        hint = "Omit --workers, and start 'habitus up' once for each port."
        raise Refused("Several processes can't serve one port on Windows.", hint=hint)
    with open_habitus(context) as habitus:
        if habitus.shared.dialect.name != "postgresql":
            raise Refused(
                "Several processes serve only a PostgreSQL database.", hint="Set 'database', or omit --workers."
            )
    stopped = threading.Event()
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda *_: stopped.set())
    with open_listening_socket(host, port) as door:
        command = [
            sys.executable,
            "-m",
            "habitus",
            *_build_child_process_command_line(context),
            "--port",
            str(door.getsockname()[1]),
        ]

        def start(number: int) -> _StartedServerProcess:
            jobs = "--jobs" if with_jobs and number == 0 else "--no-jobs"
            given = [*command, jobs, "--inherited", f"{door.fileno()}:{number}"]
            return _StartedServerProcess(subprocess.Popen(given, stdin=subprocess.PIPE, pass_fds=[door.fileno()]))

        children = {number: start(number) for number in range(count)}
        short_lives = 0
        try:
            while not stopped.wait(_LOOK_S):
                for number, child in children.items():
                    if child.process.poll() is None:
                        continue
                    short_lives = short_lives + 1 if child.age_in_seconds < _SHORT_LIFE_S else 0
                    if short_lives >= _MAX_SHORT_LIVES:
                        raise typer.Exit(child.process.returncode or 1)
                    children[number] = start(number)
        finally:
            for child in children.values():
                child.process.terminate()
            for child in children.values():
                child.process.wait()


class _StartedServerProcess:
    """A started process, and since when it runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._started = time.monotonic()

    @property
    def age_in_seconds(self) -> float:
        return time.monotonic() - self._started


def _build_child_process_command_line(context: typer.Context) -> list[str]:
    """Return the command's words and its options for one process, without those that each process gets anew."""
    home = context.find_root().obj
    given = context.params
    words = [*(["--home", str(home)] if home else []), "up", "--host", given["host"]]
    for name in given["name"] or ():
        words += ["--name", name]
    if given["open_reading"]:
        words.append("--open-reading")
    if given["publish"]:
        words += ["--publish", str(given["publish"])]
    return words
