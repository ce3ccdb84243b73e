"""`habitus` in a process of its own that starts at once: forked from one that has imported everything and taken a turn.

`with forked_habitus(folder) as program:` writes a program that behaves as the installed command does: arguments,
environment, working directory, standard streams or a terminal, interrupts, exit code. Only starting is not the same,
so what Python itself makes of an environment (encodings of streams, a closed one) is tested on the installed command.
Beside it lies `python`, for a script or `-c`: what somebody's own program does with the library.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import fcntl
import gc
import importlib
import io
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import habitus
from habitus.agent.session import Session
from habitus.errors import NotInstalled
from tests.compiled import share_compiled_statements
from tests.homes import furnish
from tests.hurried import wait_for_no_disk
from tests.one_connection import no_model_in_a_transaction, no_waiting_in_a_transaction, one_connection_each

_PROJECT = Path(__file__).parents[1]

_CLIENT = """#!{python} -IS
import os, sys, _signal, _socket  # what these are made of: the modules for people take longer to load than Python
def told():
    line = b""
    while more := server.recv(1).strip():
        line += more
    return int(line or 99)
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
if os.isatty(0):  # it goes over to the command, so that its keys are signals there
    import fcntl, termios
    _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)
    try:
        fcntl.ioctl(0, termios.TIOCNOTTY)
    except OSError:
        pass
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([b"."], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(ascii((sys.argv, os.getcwd(), dict(os.environ))).encode() + b"\\n")
command = told()
for number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(number, lambda number, _: os.kill(command, number))
sys.exit(told())
"""


@contextlib.contextmanager
def forked_habitus(folder: Path) -> Iterator[Path]:
    """The program, `folder/habitus`; it works as long as the context is open, and once `wait_for_server` returns."""
    address = folder / "socket"
    for program in (folder / "python", folder / "habitus"):
        program.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
        program.chmod(0o755)
    command = [sys.executable, "-P", __file__, str(address)]
    environ = {**os.environ, "PYTHONPATH": str(_PROJECT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environ):
        yield program  # leaving closes standard input, and with it the server


def wait_for_server(program: Path) -> None:
    """Returns when it answers. A busy machine takes a while to import everything."""
    for _ in range(3000):
        with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            asking.connect(str(program.with_name("socket")))
            return
        time.sleep(0.1)
    raise TimeoutError("No forked command after five minutes.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A command at work: its process, a pipe that ends with it, and who asked for it."""

    process: int
    ended: int
    asked: socket.socket


def _serve(address: str) -> None:
    sys.path.remove(str(_PROJECT))  # a command finds what is installed
    _import_everything()
    _use_once()
    gc.freeze()  # a collection in a child would touch, and so copy, all of it
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        commands: list[Running] = []
        while True:
            pipes, sockets = [command.ended for command in commands], [command.asked for command in commands]
            ready, _, _ = select.select([sys.stdin, listener, *pipes, *sockets], [], [])
            if sys.stdin in ready:
                return
            for command in [command for command in commands if command.asked in ready or command.ended in ready]:
                _end(command, has_ended=command.ended in ready)
                commands.remove(command)
            if listener in ready and (started := _start(listener.accept()[0], commands)):
                commands.append(started)


def _import_everything() -> None:
    import alembic.command  # noqa: F401  # a new home needs it

    for module in pkgutil.walk_packages(habitus.__path__, "habitus."):
        if not module.name.startswith(("habitus.__main__", "habitus.migrations", "habitus.sandbox.inside")):
            with contextlib.suppress(NotInstalled):  # the integration of a framework that is not here
                importlib.import_module(module.name)


def _use_once() -> None:
    """Take a turn, so that what a process reads and compiles when it first needs it is there in every child."""
    from habitus.app import Habitus, read_settings
    from habitus.cli import main
    from habitus.llm.scripted import ScriptedModel, calls, says
    from habitus.skills.model import Skill

    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads don't live on in a child
    share_compiled_statements()
    wait_for_no_disk()
    one_connection_each()
    no_model_in_a_transaction()
    no_waiting_in_a_transaction()
    main.build_root_command()
    script = [calls("search_skills", {"query": "tea"}), calls("recall_skill", {"name": "brew-tea"}), says("Done.")]
    with TemporaryDirectory(prefix="habitus-once-") as folder:
        settings = read_settings(furnish(Path(folder) / "home"), {"HOME": folder, "USER": "ann"})
        with Habitus.open(settings.model_copy(update={"durable": False})) as habitus:
            tea = Skill(name="brew-tea", description="How tea is brewed", body="1. Boil water.")
            habitus.skills.create(tea, habitus.build_author())
            asyncio.run(_ask(habitus.session(ScriptedModel(script))))
    assert threading.active_count() == 1, f"Children would lack {threading.enumerate()}."


async def _ask(session: Session) -> None:
    async with session:
        await session.turn("Brew some tea for me")


def _start(asked: socket.socket, others: Sequence[Running]) -> Running | None:
    """Run what is asked for in a child, unless who asked went before saying it."""
    _, streams, _, _ = socket.recv_fds(asked, 1, 3)
    with asked.makefile("rb") as lines:  # nothing from who only looked whether we are here
        request = lines.readline()
    if not request.endswith(b"\n"):
        asked.close()
        return None
    ended, alive = os.pipe()
    process = os.fork()
    if process == 0:
        for number in (ended, asked.fileno(), *(n for other in others for n in (other.ended, other.asked.fileno()))):
            os.close(number)
        arguments, cwd, environ = ast.literal_eval(request.decode())
        _become(arguments, cwd, environ, streams)
    for number in (alive, *streams):
        os.close(number)
    asked.sendall(f"{process}\n".encode())
    return Running(process=process, ended=ended, asked=asked)


def _end(command: Running, *, has_ended: bool) -> None:
    if not has_ended:
        os.kill(command.process, signal.SIGKILL)  # who asked has gone
    code = os.waitstatus_to_exitcode(os.waitpid(command.process, 0)[1])
    with contextlib.suppress(BrokenPipeError), command.asked:
        command.asked.sendall(f"{code & 0xFF}\n".encode())
    os.close(command.ended)


def _become(arguments: list[str], cwd: str, environ: dict[str, str], streams: list[int]) -> None:
    from habitus.cli import start

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
    sys.argv = arguments
    sys.stdin = io.TextIOWrapper(os.fdopen(0, "rb", closefd=False), encoding="utf-8", errors="surrogateescape")
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8", line_buffering=os.isatty(1))
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding="utf-8", line_buffering=True)
    code = 0
    try:
        match [Path(arguments[0]).name, *arguments[1:]]:
            case ["python", "-c", text, *more]:
                sys.argv = ["-c", *more]
                exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
            case ["python", script, *more]:
                sys.argv = [script, *more]
                sys.path.insert(0, str(Path(script).parent))
                runpy.run_path(script, run_name="__main__")
            case _:
                start.run()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)  # taking down everything that was imported takes longer than the command


if __name__ == "__main__":
    _serve(sys.argv[1])
