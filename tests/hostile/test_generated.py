"""Harmful programs by the hundred: each does one deed, by one way to name or do it, from one kind of process.

All of them succeed outside the sandbox, which is tested too: a program that could never win would prove nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from habitus.sandbox.fork_servers import ForkServerPool, SandboxedProgram
from habitus.sandbox.machine import get_base_python
from habitus.sandbox.model import SandboxLimits

pytestmark = [pytest.mark.full, pytest.mark.req("SB-09")]

# What is done to a file of the host, at `path`.
FILE_DEEDS = {
    "read": "assert b'gold' in open(path, 'rb').read()",
    "list": "assert os.listdir(os.path.dirname(path) or '.')",
    "append": "open(path, 'ab').write(b'lead')",
    "overwrite": "open(path, 'wb').write(b'lead')",
    "truncate": "os.truncate(path, 0)",
    "create": "os.close(os.open(path + '.new', os.O_CREAT | os.O_WRONLY))",
    "folder": "os.mkdir(path + '.folder')",
    "unlink": "os.unlink(path)",
    "rename": "os.rename(path, path + '.moved')",
    "link": "os.link(path, path + '.linked', follow_symlinks=True)",
    "chmod": "os.chmod(path, 0o777)",
    "utime": "os.utime(path, (1, 1))",
}
# How the file is named.
PATHS = {
    "plain": "path = given['path']",
    "climbing": "path = '../' * 40 + given['path'].lstrip('/')",
    "by the root link": "path = '/proc/self/root' + given['path']",
    "by the root link of the thread": "path = '/proc/thread-self/root' + given['path']",
    "by a symlink to its folder": "os.symlink(os.path.dirname(given['path']), 'way')\npath = 'way/treasure.txt'",
    "from inside its folder": "os.chdir(os.path.dirname(given['path']))\npath = 'treasure.txt'",
    "by a descriptor": """
        folder = os.open(os.path.dirname(given['path']), os.O_PATH | os.O_DIRECTORY)
        path = f'/proc/self/fd/{folder}/treasure.txt'
    """,
}
# Whom it connects to, and how: an address, or a socket in the file system or by name.
LINES = {
    "tcp": (
        "AF_INET",
        "('127.0.0.1', given['tcp'])",
        "struct.pack('=HH4s8x', 2, socket.htons(given['tcp']), socket.inet_aton('127.0.0.1'))",
    ),
    "tcp6": (
        "AF_INET6",
        "('::1', given['tcp6'])",
        "struct.pack('=HHI16sI', 10, socket.htons(given['tcp6']), 0, socket.inet_pton(socket.AF_INET6, '::1'), 0)",
    ),
    "a socket with a path": ("AF_UNIX", "given['path']", "struct.pack('=H108s', 1, given['path'].encode())"),
    "a socket with a name": (
        "AF_UNIX",
        "'\\0' + given['name']",
        "struct.pack('=Hx', 1) + given['name'].encode()",
    ),
}
CONNECTS = {
    "connect": "line.connect({address})",
    "without waiting": """
        line.setblocking(False)
        line.connect_ex({address})
        assert select.select([], [line], [], 1)[1] and not line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        line.getpeername()
    """,
    "by the C library": "raw = {raw}\ncheck(libc.connect(line.fileno(), raw, len(raw)))",
}
SIGNALS = ("0", "signal.SIGSTOP", "signal.SIGTERM", "signal.SIGKILL", "signal.SIGUSR1")
SENDS = {
    "kill": "os.kill(pid, number)",
    "to its group": "os.killpg(pid, number)",
    "to its group by a negative number": "os.kill(-pid, number)",
    "by the C library": "check(libc.kill(pid, number))",
    "to its thread": "check(libc.syscall({'x86_64': 234, 'aarch64': 131}[os.uname().machine], pid, pid, number))",
    "queued": "check(libc.sigqueue(pid, number, ctypes.c_void_p(0)))",
    "by a descriptor": "signal.pidfd_send_signal(os.pidfd_open(pid), number)",
}
PRELUDE = """
import ctypes, json, os, select, signal, socket, struct, subprocess, sys, threading
given = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "refused")
def attempt():
    try:
        deed()
    except (OSError, AssertionError):
        return
    print("WON", flush=True)
"""
# From which process or thread.
ACTORS = {
    "itself": "attempt()",
    "a thread": "one = threading.Thread(target=attempt)\none.start()\none.join()",
    "a fork": "if os.fork() == 0:\n    attempt()\n    os._exit(0)\nos.wait()",
    "a program": """
        if 'inner' in given:
            attempt()
        else:
            inner = json.dumps({**given, 'inner': True})
            command = [given['python'], '-I', '-S', '-c', given['code'], inner]
            print(subprocess.run(command, capture_output=True, text=True).stdout)
    """,
}


def _generate(kinds: Iterator[str]) -> list[str]:
    """Return a program for each body of a deed and each process that could do it."""
    found = []
    for deed, actor in product(kinds, ACTORS.values()):
        body = textwrap.indent(textwrap.dedent(deed), "    ")
        found.append(f"{PRELUDE}def deed():\n{body}\n{textwrap.dedent(actor)}\n")
    return found


def _join_lines(*parts: str) -> str:
    return "\n".join(textwrap.dedent(part).strip() for part in parts)


PROGRAMS = {
    "files": _generate(_join_lines(path, deed) for deed, path in product(FILE_DEEDS.values(), PATHS.values())),
    "connections": _generate(
        _join_lines(f"line = socket.socket(socket.{family})", how.format(address=address, raw=raw))
        for (family, address, raw), how in product(LINES.values(), map(textwrap.dedent, CONNECTS.values()))
    ),
    "signals": _generate(
        _join_lines(f"pid, number = given['pid'], {number}", how) for number, how in product(SIGNALS, SENDS.values())
    ),
}


def test_there_are_as_many_programs_as_the_decision_says() -> None:
    every = [program for programs in PROGRAMS.values() for program in programs]
    assert (len(every), len(set(every))) == (524, 524)


@contextmanager
def _victims(folder: Path) -> Iterator[dict[str, Any]]:
    """A file, a process and servers of the host."""
    (folder / "home").mkdir(parents=True)
    treasure = folder / "home" / "treasure.txt"
    treasure.write_text("gold")
    named, abstract = tempfile.mktemp(prefix="habitus-line-", dir="/tmp"), f"habitus-hostile-{os.getpid()}"
    with ExitStack() as exits:
        ports = {}
        for kind, family, address in (
            ("tcp", socket.AF_INET, ("127.0.0.1", 0)),
            ("tcp6", socket.AF_INET6, ("::1", 0)),
            ("path", socket.AF_UNIX, named),
            ("name", socket.AF_UNIX, f"\0{abstract}"),
        ):
            server = exits.enter_context(socket.socket(family))
            server.bind(address)
            server.listen(1_000)
            ports[kind] = server.getsockname()
        exits.callback(os.unlink, named)
        victim = exits.enter_context(subprocess.Popen(["sleep", "1000"], process_group=0))
        exits.callback(victim.kill)
        yield {
            "files": {"path": str(treasure)},
            "connections": {"tcp": ports["tcp"][1], "tcp6": ports["tcp6"][1], "path": named, "name": abstract},
            "signals": {"pid": victim.pid},
        }


@pytest.mark.parametrize("kind", PROGRAMS)
async def test_none_of_them_wins_inside(warm: ForkServerPool, tmp_path: Path, kind: str) -> None:
    with _victims(tmp_path / "host") as victims:
        given = {**victims[kind], "python": get_base_python()}
        limits = SandboxLimits(wall_s=300)
        runs = await asyncio.gather(
            *(
                warm.call_tool(SandboxedProgram(code=code, limits=limits), {**given, "code": code})
                for code in PROGRAMS[kind]
            )
        )
        won = [code for code, run in zip(PROGRAMS[kind], runs, strict=True) if "WON" in run.stdout]
        assert won == []
        broken = [run for run in runs if not run.outcome.is_ok]
        assert broken == []
        home = tmp_path / "host" / "home"
        assert [(path.name, path.read_text()) for path in home.iterdir()] == [("treasure.txt", "gold")]
        state = Path(f"/proc/{victims['signals']['pid']}/stat").read_text().rpartition(") ")[2][0]
        assert state == "S"


# Runs each program in a process of its own with a new file and a new process to attack.
_OUTSIDE = """
import json, os, signal, sys, tempfile, time
for code, given in json.load(sys.stdin):
    os.chdir(folder := tempfile.mkdtemp())
    victim = os.fork()
    if victim == 0:
        os.setpgid(0, 0)
        time.sleep(1000)
    try:
        os.setpgid(victim, victim)
    except OSError:
        pass
    if "treasure.txt" in given.get("path", ""):
        os.mkdir("home")
        given["path"] = os.path.join(folder, "home", "treasure.txt")
        open(given["path"], "w").write("gold")
    given["pid"] = victim
    reading, writing = os.pipe()
    if (actor := os.fork()) == 0:
        os.dup2(writing, 1)
        os.close(reading)
        sys.argv = ["program", json.dumps({**given, "code": code})]
        try:
            exec(code, {"__name__": "__main__"})
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        won = "WON" in said.read()
    os.waitpid(actor, 0)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    print(int(won))
"""


@pytest.mark.parametrize("kind", PROGRAMS)
def test_all_of_them_win_outside(tmp_path: Path, kind: str) -> None:
    with _victims(tmp_path / "host") as victims:
        asked = [(code, {**victims[kind], "python": sys.executable}) for code in PROGRAMS[kind]]
        ran = subprocess.run(
            [sys.executable, "-c", _OUTSIDE],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
    lost = [code for code, won in zip(PROGRAMS[kind], ran.stdout.split(), strict=True) if won != "1"]
    assert lost == []
