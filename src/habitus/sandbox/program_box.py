"""A box for another agent's program: bubblewrap with the program, the system and a few folders, and one way out.

The program sees no home, no process of the host and no network except the hosts of its provider, through `egress`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from habitus.errors import Refused
from habitus.sandbox.egress import PROXY_VARIABLES, EgressProxy
from habitus.sandbox.inside import folders
from habitus.sandbox.inside.wire import EGRESS_PORT
from habitus.sandbox.isolation import CERTIFICATES, get_current_interpreter
from habitus.sandbox.machine import MachineCapabilities

# Opens the proxy's port inside, hands its socket to us outside, and becomes the program.
_START = f"""
import os, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as door, socket.create_server(("127.0.0.1", {EGRESS_PORT})) as listener:
    socket.send_fds(door, [b"."], [listener.fileno()])
os.execv(sys.argv[2], sys.argv[2:])
"""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
_SETTINGS = (
    "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf",
    "/etc/pki", "/etc/ca-certificates", "/etc/ssl/openssl.cnf", *CERTIFICATES,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramBox:
    """The box of one run: its home and its working folder, which it may write, and the hosts it may reach."""

    machine: MachineCapabilities
    home: Path
    work: Path
    hosts: tuple[str, ...]

    @asynccontextmanager
    async def wrap_command(self, command: Sequence[str], cwd: Path) -> AsyncIterator[BoxedCommand]:
        """Yield the command inside the box; its way out is open until the block ends.

        What it left in its home is read outside, so only regular files stay there.
        """
        async with EgressProxy(self.hosts).serve_requests() as door:
            try:
                argv = build_program_bubblewrap_command(self, command, cwd, door)
                yield BoxedCommand(argv=argv, descriptors=(door,), environ=_ENVIRONMENT)
            finally:
                os.close(door)
                await asyncio.to_thread(folders.remove_entries_unsafe_to_read, str(self.home))


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxedCommand:
    """A command inside a box, with the descriptors it inherits and the variables it needs."""

    argv: tuple[str, ...]
    descriptors: tuple[int, ...]
    environ: Mapping[str, str]


_ENVIRONMENT = {**PROXY_VARIABLES, "TMPDIR": "/tmp", "NODE_USE_ENV_PROXY": "1"}


def build_program_bubblewrap_command(box: ProgramBox, command: Sequence[str], cwd: Path, door: int) -> tuple[str, ...]:
    """Return the bubblewrap command; raise `Refused` if the program can't be shown without the user's home."""
    assert box.machine.bubblewrap is not None, "asked for before"
    python = get_current_interpreter()
    argv = [str(box.machine.bubblewrap), "--unshare-all", "--unshare-user", "--new-session", "--die-with-parent"]
    argv += ["--hostname", "solver", "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    shown = [*map(Path, (*_SYSTEM, *_SETTINGS)), *python.list_visible_paths(network=False)]
    shown += [Path(python.executable), *find_program_files(command[0])]
    for path in dict.fromkeys(shown):
        if path.is_symlink() and path.is_dir():
            argv += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            argv += ["--ro-bind", str(path), str(path)]
    for path in (box.home, box.work):
        argv += ["--bind", str(path), str(path)]
    argv += ["--remount-ro", "/", "--chdir", str(cwd), "--"]
    return (*argv, python.executable, "-I", "-S", "-c", _START, str(door), *command)


def find_program_files(executable: str) -> list[Path]:
    """Return the program, the links that lead to it, its package, and the interpreter that its first line names."""
    chain = [Path(executable)]
    while chain[-1].is_symlink() and len(chain) < 40:
        chain.append(Path(os.path.normpath(chain[-1].parent / chain[-1].readlink())))
    found = [*chain, _find_npm_package_folder(chain[-1])]
    with chain[-1].open("rb") as file:
        first = file.readline(256)
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    if words and (interpreter := shutil.which(words[1] if words[0].endswith("/env") and words[1:] else words[0])):
        found += [Path(interpreter), Path(interpreter).resolve()]
    return [path for path in found if not path.is_relative_to("/usr")]


def _find_npm_package_folder(program: Path) -> Path:
    """Return the folder of an npm package with its dependencies; the program itself if it is in none."""
    modules = [folder for folder in program.parents if folder.name == "node_modules"]
    if not modules:
        return program
    home = Path.home()
    if home.is_relative_to(modules[-1]):
        raise Refused(f"{program} can't be shown in a box without your home.", hint="Install it elsewhere.")
    return modules[-1]
