"""`habitus` in a process of its own that starts at once: forked from one that has imported everything.

`with forked_habitus(folder) as program:` writes a program that behaves as the installed command does: arguments,
environment, working directory, standard streams or a terminal, interrupts, exit code. Only starting is not the same,
so what Python itself makes of an environment (encodings of streams, a closed one) is tested on the installed command.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import habitus

_CLIENT = """#!{python} -IS
import fcntl, json, os, signal, socket, sys, termios
with socket.socket(socket.AF_UNIX) as server, server.makefile("r") as told:
    server.connect({address!r})
    if os.isatty(0):  # it goes over to the command, so that its keys are signals there
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            fcntl.ioctl(0, termios.TIOCNOTTY)
        except OSError:
            pass
    socket.send_fds(server, [b"."], [0, 1, 2])
    server.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode() + b"\\n")
    command = int(told.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(command, number))
    sys.exit(int(told.readline() or 99))
"""


@contextlib.contextmanager
def forked_habitus(folder: Path) -> Iterator[Path]:
    """The program, `folder/habitus`; it works as long as the context is open."""
    address = folder / "socket"
    program = folder / "habitus"
    program.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)
    command = [sys.executable, "-P", __file__, str(address)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield program  # leaving closes standard input, and with it the server


def _serve(address: str) -> None:
    _import_everything()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those who answer leave nothing to be waited for
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _answer(connection)


def _import_everything() -> None:
    import alembic.command  # noqa: F401  # a new home needs it

    for module in pkgutil.walk_packages(habitus.__path__, "habitus."):
        if not module.name.startswith(("habitus.__main__", "habitus.migrations", "habitus.sandbox.inside")):
            importlib.import_module(module.name)
    from habitus.search.embedding import default_embedder

    default_embedder()
    gc.freeze()  # a collection in a child would touch, and so copy, all of it


def _answer(connection: socket.socket) -> None:
    """Run the command in a child, because only a parent learns how a process ended."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as request:
        arguments, cwd, environ = json.loads(request.readline())
    ended, alive = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ended)
        connection.close()
        _become(arguments, cwd, environ, streams)
    for number in (alive, *streams):
        os.close(number)
    connection.sendall(f"{child}\n".encode())
    if ended not in select.select([ended, connection.fileno()], [], [])[0]:
        os.kill(child, signal.SIGKILL)  # who asked has gone
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{code & 0xFF}\n".encode())
    os._exit(0)


def _become(arguments: list[str], cwd: str, environ: dict[str, str], streams: list[int]) -> None:
    from habitus.cli import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(0):
        os.setsid()
        with contextlib.suppress(OSError):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.argv = ["habitus", *arguments]
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8", errors="surrogateescape")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8", line_buffering=os.isatty(1))
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding="utf-8", line_buffering=True)
    try:
        main.run()
    except SystemExit as stopped:
        sys.stdout.flush()
        os._exit(int(stopped.code or 0))  # taking down everything that was imported takes longer than the command


if __name__ == "__main__":
    _serve(sys.argv[1])
